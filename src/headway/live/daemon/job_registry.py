"""All jobs the scheduler remembers: in memory to answer requests, in the store for a restart."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from headway.live.core.events import JobSpec
from headway.live.core.job_state import ACTIVE, FINISHED, JobState
from headway.live.core.jobs import LiveJob
from headway.live.daemon.change_feed import ChangeFeed
from headway.live.daemon.clock import Clock
from headway.live.daemon.errors import NotFoundError
from headway.live.daemon.job_record import MAX_HISTORY, AttemptRecord, JobRecord
from headway.live.daemon.metrics import Metrics
from headway.live.daemon.predictions import Predictions
from headway.live.daemon.state_store import StateStore

MAX_FINISHED = 10_000
"""Finished jobs that are remembered; beyond that the oldest is forgotten."""


class JobRegistry:
    """Job records by job id, in order of submission; every change is saved and published."""

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        feed: ChangeFeed,
        metrics: Metrics,
        predictions: Predictions,
    ) -> None:
        self._store, self._clock, self._feed, self._metrics = store, clock, feed, metrics
        self._predictions = predictions
        self._records = {record.job_id: record for record in store.jobs}
        self._counts = Counter(record.state for record in store.jobs)
        self._last_id = max((int(job_id) for job_id in self._records), default=0)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._records

    def __getitem__(self, job_id: str) -> JobRecord:
        record = self._records.get(job_id)
        if record is None:
            raise NotFoundError(f"there is no job {job_id}.")
        return record

    def unfinished_job(self, job_id: str) -> JobRecord | None:
        """Return a job's record, or None if it is finished or unknown."""
        record = self._records.get(job_id)
        return None if record is None or record.finished else record

    def records(self) -> list[JobRecord]:
        """Return all jobs, in order of submission."""
        return list(self._records.values())

    def unfinished(self) -> list[JobRecord]:
        """Return the jobs that are not finished, in order of submission."""
        return [record for record in self._records.values() if not record.finished]

    def active(self) -> list[JobRecord]:
        """Return the jobs that may have processes, in order of submission."""
        return [record for record in self._records.values() if record.state in ACTIVE]

    def reserve_ids(self, last: int) -> None:
        """Number new jobs above `last`, an id used by a job that is no longer remembered."""
        self._last_id = max(self._last_id, last)

    def adopt(self, records: Iterable[JobRecord]) -> None:
        """Add or replace jobs that were rebuilt from other sources than the store."""
        self._records |= {record.job_id: record for record in records}
        self._records = dict(sorted(self._records.items(), key=lambda one: int(one[0])))
        self._counts = Counter(record.state for record in self._records.values())
        self.reserve_ids(max((int(job_id) for job_id in self._records), default=0))
        for record in self._records.values():
            self._store.save(record)

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        return {state: self._counts[state] for state in JobState}

    async def add(self, spec: JobSpec) -> JobRecord:
        """Return a new job's record once it is on disk, or raise StorageError."""
        self._last_id += 1
        record = JobRecord(
            job_id=str(self._last_id),
            spec=spec,
            state=JobState.QUEUED,
            submitted_ns=self._clock.now_ns(),
            submitted_at=time.time(),
        )
        await self._store.insert(record)
        self._records[record.job_id] = record
        self._counts[JobState.QUEUED] += 1
        self._feed.publish("job", record)
        return record

    def copy_from_core(self, job: LiveJob) -> None:
        """Update a job's record from the core's state of it.

        The core takes a job off its slots when an attempt ends; its record keeps them.
        """
        old = self._records[job.job_id]
        kept = job.state != JobState.QUEUED and job.attempts == old.attempts and old.slots
        self.update(
            job.job_id,
            state=job.state,
            attempts=job.attempts,
            unstarted=job.unstarted,
            slots=kept or job.slots,
            iterations=job.iterations,
            reason=job.reason,
        )

    def update(self, job_id: str, **values: Any) -> None:
        """Change fields of a job's record, and save it if any of them differs."""
        old = self._records[job_id]
        new = msgspec.structs.replace(old, **values)
        if new == old:
            return
        if (new.state, new.attempts) != (old.state, old.attempts):
            new = self._with_history(old, new)
        if new.state != old.state:
            new = self._changed_state(old, new)
        self._records[job_id] = new
        self._store.save(new)
        if (new.state, new.slots) != (old.state, old.slots) or new.spec is not old.spec:
            self._feed.publish("job", new)

    def publish(self, job_id: str) -> None:
        """Publish a change that is not part of a job's record."""
        self._feed.publish("job", self._records[job_id])

    def _with_history(self, old: JobRecord, new: JobRecord) -> JobRecord:
        """Return a record that tells of attempts that have begun or ended since the old one."""
        history, active = old.history, new.state in ACTIVE
        now_ns, now = self._clock.now_ns(), time.time()
        begins = active and new.attempts > old.attempts
        if history and history[-1].ended_ns is None and (begins or not active):
            reason = new.reason or (new.state if new.finished else "never started")
            ended = {"ended_ns": now_ns, "ended_at": now, "reason": reason}
            history = (*history[:-1], msgspec.structs.replace(history[-1], **ended))
        if begins:
            begun = AttemptRecord(
                number=new.attempts, slots=new.slots, started_ns=now_ns, started_at=now
            )
            history = (*history, begun)[-MAX_HISTORY:]
        return msgspec.structs.replace(new, history=history)

    def _changed_state(self, old: JobRecord, new: JobRecord) -> JobRecord:
        """Count a change of state and return the record with the time of its start or end."""
        self._counts[old.state] -= 1
        self._counts[new.state] += 1
        now_ns, now = self._clock.now_ns(), time.time()
        if new.state == JobState.RUNNING and new.started_ns is None:
            return msgspec.structs.replace(new, started_ns=now_ns, started_at=now)
        if new.finished:
            self._metrics.job_ended(new.state, max(0, now_ns - new.submitted_ns) / 1e9)
            self._forget_oldest()
            ended = msgspec.structs.replace(new, ended_ns=now_ns, ended_at=now)
            return self._predictions.ended(ended)
        return new

    def _forget_oldest(self) -> None:
        if sum(self._counts[state] for state in FINISHED) <= MAX_FINISHED:
            return
        for job_id, record in self._records.items():
            if record.finished:
                del self._records[job_id]
                self._counts[record.state] -= 1
                self._store.delete(job_id)
                return
