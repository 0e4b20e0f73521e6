"""All jobs that are remembered: in memory for whoever asks, in the store for the next scheduler."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec

from headway.live.core.events import JobSpec
from headway.live.core.job_state import FINISHED, JobState
from headway.live.daemon.clock import Clock
from headway.live.daemon.hub import Hub
from headway.live.daemon.job_records import JobRecord
from headway.live.daemon.metrics import Metrics
from headway.live.daemon.store import Store

MOST_FINISHED = 10_000
"""Finished jobs that are remembered; then the oldest is forgotten."""


class Book:
    """Records of jobs, by their names, in the order of submission."""

    def __init__(self, store: Store, clock: Clock, hub: Hub, metrics: Metrics) -> None:
        self._store, self._clock, self._hub, self._metrics = store, clock, hub, metrics
        self.records = {record.job_id: record for record in store.jobs}
        self._counts = Counter(record.state for record in store.jobs)
        self._last = max((int(job) for job in self.records), default=0)

    def count_from(self, number: int) -> None:
        """Give new jobs higher numbers than this one, which jobs that nobody remembers had."""
        self._last = max(self._last, number)

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        return {state: self._counts[state] for state in JobState}

    async def enter(self, spec: JobSpec) -> JobRecord:
        """Give a new job a name and return it, once it is on the disk; else raise StorageError."""
        self._last += 1
        record = JobRecord(
            job_id=str(self._last),
            spec=spec,
            state=JobState.QUEUED,
            submitted_ns=self._clock.now_ns(),
            submitted_at=time.time(),
        )
        await self._store.offer(record)
        self.records[record.job_id] = record
        self._counts[JobState.QUEUED] += 1
        self._hub.tell("job", record)
        return record

    def update(self, job: str, **values: Any) -> None:
        """Change a job's record, if these values differ from it, and save it."""
        old = self.records[job]
        new = msgspec.structs.replace(old, **values)
        if new == old:
            return
        if new.state != old.state:
            new = self._stamped(old, new)
        self.records[job] = new
        self._store.save(new)
        if new.state != old.state or new.slots != old.slots:
            self._hub.tell("job", new)

    def _stamped(self, old: JobRecord, new: JobRecord) -> JobRecord:
        """Count a change of state, and note when it was."""
        self._counts[old.state] -= 1
        self._counts[new.state] += 1
        now_ns, now = self._clock.now_ns(), time.time()
        if new.state == JobState.RUNNING and new.started_ns is None:
            return msgspec.structs.replace(new, started_ns=now_ns, started_at=now)
        if new.finished:
            self._metrics.jct.add(max(0, now_ns - new.submitted_ns) / 1e9)
            self._metrics.ended[new.state] += 1
            self._forget_oldest()
            return msgspec.structs.replace(new, ended_ns=now_ns, ended_at=now)
        return new

    def _forget_oldest(self) -> None:
        if sum(self._counts[state] for state in FINISHED) <= MOST_FINISHED:
            return
        for job, record in self.records.items():
            if record.finished:
                del self.records[job]
                self._counts[record.state] -= 1
                self._store.forget(job)
                return
