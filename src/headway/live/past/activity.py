"""What an event log says about jobs: attempts on slots, messages and iterations.

The log has every decision, so nothing is decided again and no policy is needed. As in the core, of
a job on several nodes one message at a time waits for admission or is in flight; messages of a job
on one node meet no others and are left out. Times are in ns since 1970.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.domain.limits import HORIZON_NS
from headway.live.core.events import (
    ComputeDone,
    ComputeReady,
    GrantMessage,
    IterationDone,
    JobCancelled,
    JobExited,
    JobRestored,
    JobSpec,
    JobSubmitted,
    Launch,
    MessageDone,
    MessageReady,
    NodeUp,
    PolicyChanged,
    Slot,
    Stop,
    WorkerLost,
)
from headway.live.core.job_state import JobState
from headway.live.daemon.event_log.format import Entry

Integers = NDArray[np.int64]


@dataclass(slots=True)
class PastJob:
    """A job."""

    job_id: str
    spec: JobSpec
    submitted_ns: int
    cancelled_ns: int | None = None
    """When it was taken off the queue, if it was."""
    attempts: list[PastAttempt] = field(default_factory=list)


@dataclass(slots=True)
class _Request:
    """A request to send; `ready_ns` is None until it is up for admission."""

    is_last: bool
    ready_ns: int | None = None
    granted_ns: int | None = None


@dataclass(slots=True)
class PastAttempt:
    """An attempt at a job; `end_ns` is None while it has its slots."""

    index: int
    job: PastJob
    number: int
    slots: tuple[Slot, ...]
    nodes: tuple[int, ...]
    """The nodes of its slots by index, ascending."""
    start_ns: int
    end_ns: int | None = None
    succeeded: bool = False
    cancelled: bool = False
    iterations: int = 0
    requests: dict[int, _Request] = field(default_factory=dict)
    computing: set[tuple[int, int]] = field(default_factory=set)
    """Open computations: rank and request."""
    reports: bool = False
    """Whether it has reported anything."""
    silent_ns: int | None = None
    """Since when it runs under a scheduler that it has not connected to yet."""

    @property
    def name(self) -> str:
        """The job's id, with the number of the attempt if there were several."""
        return (
            self.job.job_id if len(self.job.attempts) == 1 else f"{self.job.job_id}.{self.number}"
        )

    @property
    def state(self) -> JobState:
        """What it is doing when the log ends, or how it ended."""
        if self.end_ns is None:
            return JobState.RUNNING
        if self.succeeded:
            return JobState.DONE
        return JobState.CANCELLED if self.cancelled else JobState.FAILED


class OpenMessage(NamedTuple):
    """A message that waits for admission or, once granted, is in flight."""

    attempt: PastAttempt
    ready_ns: int
    granted_ns: int | None


class MessageColumns(NamedTuple):
    """Messages in the order of their ends; one that was never granted starts when it ends."""

    attempt: Integers
    iteration: Integers
    ready_ns: Integers
    start_ns: Integers
    end_ns: Integers


class IterationColumns(NamedTuple):
    """How many iterations an attempt had done, and since when."""

    attempt: Integers
    at_ns: Integers
    iterations: Integers


class Activity:
    """Takes in the entries of a log, one after the other.

    `most_rows` limits how many messages, and how many reports of iterations, are kept.
    """

    def __init__(self, most_rows: int | None = None) -> None:
        self._most_rows = most_rows
        self.now_ns = 0
        """The time of the latest entry."""
        self.policy = ""
        """The policy in force."""
        self.nodes: dict[str, int] = {}
        """The index of each node that there ever was."""
        self.node_slots: list[int] = []
        """The most slots that each of them had."""
        self.jobs: dict[str, PastJob] = {}
        self.attempts: list[PastAttempt] = []
        self._active: dict[tuple[str, int], PastAttempt] = {}
        self._messages = [array("q") for _ in MessageColumns._fields]
        self._iterations = [array("q") for _ in IterationColumns._fields]
        self._unknown: list[tuple[int, int]] = []
        self._dropped_ns = 0
        self._missed_from_ns: int | None = None  # since when the rest of a run is missing
        self._began_ns = 0  # when the present run began
        self._ahead_ns = 0
        # Attempts that were launched before the log begins, and when they ended.
        self._strangers: dict[tuple[str, int], int | None] = {}
        self._strange_from_ns: int | None = None
        self._handlers: dict[type[Any], Any] = {
            NodeUp: self._node_up,
            PolicyChanged: self._policy_changed,
            JobSubmitted: self._job_submitted,
            JobRestored: self._job_restored,
            JobCancelled: self._job_cancelled,
            JobExited: self._job_exited,
            MessageReady: self._message_ready,
            MessageDone: self._message_done,
            ComputeReady: self._compute_ready,
            ComputeDone: self._compute_done,
            IterationDone: self._iteration_done,
            WorkerLost: self._worker_lost,
        }

    def take(self, entry: Entry, ahead_ns: int) -> None:
        """Take in an entry; the scheduler's clock is `ahead_ns` behind the machine's."""
        event, self._ahead_ns = entry.event, ahead_ns
        self.now_ns = max(self.now_ns, event.at_ns + ahead_ns)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        for instruction in entry.instructions:
            if type(instruction) is GrantMessage:
                self._granted(instruction)
            elif type(instruction) is Launch:
                job = self.jobs.get(instruction.job_id)
                if job is not None:
                    self._begin(job, instruction.attempt, instruction.slots)
            elif type(instruction) is Stop:
                attempt = self._active.get((instruction.job_id, instruction.attempt))
                if attempt is not None:
                    self._drop_requests(attempt)

    def begin_run(self, begins_ns: int) -> None:
        """End what the scheduler left behind; the next run says what of it goes on.

        What jobs did in between is not known if there were any.
        """
        self._began_ns = begins_ns
        if self._active:
            self.add_unknown(self.now_ns, begins_ns)
        if self._missed_from_ns is not None:
            self.add_unknown(self._missed_from_ns, begins_ns)
            self._missed_from_ns = None
        self._unknown += self._strange()
        self._strangers.clear()
        self._strange_from_ns = None
        for attempt in self._active.values():
            self._drop_requests(attempt)
            self._end_silence(attempt)
            attempt.end_ns = self.now_ns
        self._active.clear()

    def miss_beginning(self, is_first: bool, begins_ns: int) -> None:
        """Note that parts of the log are gone: jobs may run that it does not name.

        With `is_first`, nothing is known of the time before.
        """
        if is_first:
            self.now_ns = begins_ns
            self.add_unknown(0, begins_ns)
        if self._strange_from_ns is None:
            self._strange_from_ns = self.now_ns

    def miss_rest(self) -> None:
        """Note that from here on nothing is known, up to the beginning of the next run."""
        if self._missed_from_ns is None:
            self._missed_from_ns = self.now_ns

    def _strange(self) -> list[tuple[int, int]]:
        """Return the stretch of time in which attempts ran that the log does not name."""
        if self._strange_from_ns is None or not self._strangers:
            return []
        ends = [self.now_ns if end_ns is None else end_ns for end_ns in self._strangers.values()]
        return [(self._strange_from_ns, max(ends))]

    def add_unknown(self, from_ns: int, to_ns: int) -> None:
        """Note a stretch of time that the log does not tell everything about."""
        if from_ns < to_ns:
            self._unknown.append((from_ns, to_ns))

    @property
    def unknown(self) -> list[tuple[int, int]]:
        """Stretches of time in which messages may be missing, in order."""
        found = [*self._unknown, *self._strange()]
        for attempt in self._active.values():
            if attempt.silent_ns is not None:
                found.append((attempt.silent_ns, self.now_ns))
        if self._dropped_ns:
            found.append((0, self._dropped_ns))
        if self._missed_from_ns is not None:
            found.append((self._missed_from_ns, HORIZON_NS))
        joined: list[tuple[int, int]] = []
        for from_ns, to_ns in sorted(found):
            if joined and from_ns <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(to_ns, joined[-1][1]))
            else:
                joined.append((from_ns, to_ns))
        return joined

    def open_messages(self) -> list[OpenMessage]:
        """Return the messages that wait for admission or are in flight."""
        return [
            OpenMessage(attempt, request.ready_ns, request.granted_ns)
            for attempt in self._active.values()
            for request in attempt.requests.values()
            if request.ready_ns is not None
        ]

    def messages(self) -> MessageColumns:
        """Return all messages; those that have not ended are cut off now."""
        return self.messages_between(0, HORIZON_NS)

    def messages_between(self, from_ns: int, to_ns: int) -> MessageColumns:
        """Return the messages that overlap a stretch of time."""
        rows = self._taken(self._messages, 2, 4, from_ns, to_ns)
        unfinished = [
            (one.attempt.index, one.attempt.iterations, one.ready_ns, granted_ns, self.now_ns)
            for one in self.open_messages()
            if one.ready_ns < to_ns and from_ns <= self.now_ns
            for granted_ns in (self.now_ns if one.granted_ns is None else one.granted_ns,)
        ]
        if unfinished:
            more = np.array(unfinished, np.int64).T
            rows = [np.concatenate(pair) for pair in zip(rows, more, strict=True)]
        return MessageColumns(*rows)

    def iterations(self) -> IterationColumns:
        """Return all reports of iterations, in the order of time."""
        return self.iterations_between(0, HORIZON_NS)

    def iterations_between(self, from_ns: int, to_ns: int) -> IterationColumns:
        """Return the reports of a stretch of time."""
        return IterationColumns(*self._taken(self._iterations, 1, 1, from_ns, to_ns))

    @staticmethod
    def _taken(
        columns: list[array[int]], begin: int, end: int, from_ns: int, to_ns: int
    ) -> list[Integers]:
        """Return the rows that end at a time or later, in order of their ends, and begin before.

        `begin` and `end` are the columns of these times.
        """
        views = [
            np.frombuffer(column, np.int64) if column else np.zeros(0, np.int64)
            for column in columns
        ]
        first = int(np.searchsorted(views[end], from_ns))
        chosen = first + np.flatnonzero(views[begin][first:] < to_ns)
        return [view[chosen] for view in views]

    def _node_up(self, event: NodeUp) -> None:
        self._node(event.node, event.gpus)

    def _policy_changed(self, event: PolicyChanged) -> None:
        self.policy = event.policy

    def _node(self, name: str, slots: int) -> int:
        index = self.nodes.setdefault(name, len(self.nodes))
        if index == len(self.node_slots):
            self.node_slots.append(slots)
        self.node_slots[index] = max(slots, self.node_slots[index])
        return index

    def _job_submitted(self, event: JobSubmitted) -> None:
        if event.job_id not in self.jobs:
            self.jobs[event.job_id] = PastJob(event.job_id, event.spec, self.now_ns)

    def _job_restored(self, event: JobRestored) -> None:
        job = self.jobs.get(event.job_id)
        if job is None:
            submitted_ns = min(self.now_ns, event.submitted_ns + self._ahead_ns)
            job = self.jobs[event.job_id] = PastJob(event.job_id, event.spec, submitted_ns)
        if not event.slots:
            return
        latest = job.attempts[-1] if job.attempts else None
        if latest is not None and (latest.number, latest.slots) == (event.attempts, event.slots):
            latest.end_ns = None
            latest.silent_ns = self._began_ns if latest.reports else None
            self._active[job.job_id, latest.number] = latest
        else:
            latest = self._begin(job, event.attempts, event.slots)
            latest.iterations = event.iterations

    def _begin(self, job: PastJob, number: int, slots: tuple[Slot, ...]) -> PastAttempt:
        if not slots:
            raise ValueError(f"attempt {number} of job {job.job_id} has no slots")
        nodes = {self._node(slot.node, slot.index + 1) for slot in slots}
        attempt = PastAttempt(
            len(self.attempts), job, number, slots, tuple(sorted(nodes)), self.now_ns
        )
        self.attempts.append(attempt)
        job.attempts.append(attempt)
        self._active[job.job_id, number] = attempt
        return attempt

    def _job_cancelled(self, event: JobCancelled) -> None:
        job = self.jobs.get(event.job_id)
        if job is None:
            return
        if job.attempts and job.attempts[-1].end_ns is None:
            job.attempts[-1].cancelled = True
        else:
            job.cancelled_ns = self.now_ns

    def _job_exited(self, event: JobExited) -> None:
        key = event.job_id, event.attempt
        attempt = self._active.pop(key, None)
        if attempt is not None:
            self._drop_requests(attempt)
            self._end_silence(attempt)
            attempt.end_ns = self.now_ns
            attempt.succeeded = event.code == 0
        elif key in self._strangers:
            self._strangers[key] = self.now_ns

    def _message_ready(self, event: MessageReady) -> None:
        attempt = self._attempt(event)
        if attempt is not None and len(attempt.nodes) > 1:
            is_last = event.message_bytes >= event.unsent_bytes
            attempt.requests[event.request] = _Request(is_last)
            self._ask_for_admission(attempt)

    def _message_done(self, event: MessageDone) -> None:
        attempt = self._attempt(event)
        if attempt is not None and event.request in attempt.requests:
            self._end_message(attempt, attempt.requests.pop(event.request))
            self._ask_for_admission(attempt)

    def _compute_ready(self, event: ComputeReady) -> None:
        attempt = self._attempt(event)
        if attempt is None:
            return
        attempt.computing.add((event.rank, event.request))
        first = next(iter(attempt.requests.values()), None)
        if first is not None and first.is_last and first.granted_ns is None:
            first.ready_ns = None  # Its gradients are not complete.

    def _compute_done(self, event: ComputeDone) -> None:
        attempt = self._attempt(event)
        if attempt is not None:
            attempt.computing.discard((event.rank, event.request))
            self._ask_for_admission(attempt)

    def _iteration_done(self, event: IterationDone) -> None:
        attempt = self._attempt(event)
        if attempt is not None:
            attempt.iterations = event.iterations
            self._append(self._iterations, (attempt.index, self.now_ns, event.iterations), 1)

    def _worker_lost(self, event: WorkerLost) -> None:
        attempt = self._attempt(event)
        if attempt is None:
            return
        attempt.computing = {one for one in attempt.computing if one[0] != event.rank}
        if event.rank == 0:
            self._drop_requests(attempt)
        self._ask_for_admission(attempt)

    def _attempt(self, event: Any) -> PastAttempt | None:
        """Return the attempt that reports; one that the log does not name is noted."""
        key = event.job_id, event.attempt
        attempt = self._active.get(key)
        if attempt is None:
            self._strangers.setdefault(key, None)
        else:
            attempt.reports = True
            if attempt.silent_ns is not None:
                self._end_silence(attempt)
        return attempt

    def _end_silence(self, attempt: PastAttempt) -> None:
        """Note that nobody knows what an attempt did before it connected again, or ended."""
        if attempt.silent_ns is not None:
            self.add_unknown(attempt.silent_ns, self.now_ns)
            attempt.silent_ns = None

    def _ask_for_admission(self, attempt: PastAttempt) -> None:
        """Put an attempt's first request up for admission, unless its gradients are incomplete."""
        first = next(iter(attempt.requests.values()), None)
        if first is None or first.ready_ns is not None:
            return
        if not (first.is_last and attempt.computing):
            first.ready_ns = self.now_ns

    def _granted(self, grant: GrantMessage) -> None:
        attempt = self._active.get((grant.job_id, grant.attempt))
        if attempt is None or grant.request not in attempt.requests:
            return
        request = attempt.requests[grant.request]
        request.granted_ns = self.now_ns
        if request.ready_ns is None:
            # A computation that was given up is not in the log.
            request.ready_ns = self.now_ns
            attempt.computing.clear()

    def _drop_requests(self, attempt: PastAttempt) -> None:
        for request in attempt.requests.values():
            self._end_message(attempt, request)
        attempt.requests.clear()
        attempt.computing.clear()

    def _end_message(self, attempt: PastAttempt, request: _Request) -> None:
        if request.ready_ns is not None:
            start_ns = self.now_ns if request.granted_ns is None else request.granted_ns
            row = (attempt.index, attempt.iterations, request.ready_ns, start_ns, self.now_ns)
            self._append(self._messages, row, 4)

    def _append(self, columns: list[array[int]], row: tuple[int, ...], time: int) -> None:
        """Add a row; beyond the limit the oldest quarter is dropped."""
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        if self._most_rows is not None and len(columns[0]) > self._most_rows:
            dropped = self._most_rows // 4
            self._dropped_ns = max(self._dropped_ns, columns[time][dropped - 1])
            for column in columns:
                del column[:dropped]
