"""The jobs of a live cluster as the simulator's: what they do in an iteration, and where they are.

Their times and bytes are measured, declared or estimated, and corrected by what was observed: how
long iterations took lately, and how much longer messages took than by the network model. Within an
iteration the scheduler knows only which messages are in flight or wait, so a job that computes
counts as at the beginning of its iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from headway.domain.job import Job
from headway.domain.limits import HORIZON_NS, LONGEST_NS, MAX_BYTES
from headway.domain.moment import InFlight, PendingMessage, StartedJob
from headway.graphs.ddp import bucketed
from headway.live.core.events import Slot
from headway.live.core.present_state import ESTIMATES, PresentJob, PresentState
from headway.network.contention import NetworkModel


class Correction(NamedTuple):
    """By how much a job's times and the bytes of its messages are multiplied.

    More bytes stand for a network that is slower than assumed.
    """

    times: float = 1.0
    messages: float = 1.0

    def time_ns(self, time_ns: int) -> int:
        """Return a time, corrected."""
        return min(LONGEST_NS, max(1, round(self.times * time_ns)))

    def size_bytes(self, size_bytes: int) -> int:
        """Return the size of a message, corrected."""
        return min(MAX_BYTES, round(self.times * self.messages * size_bytes))


@dataclass(frozen=True)
class LiveJobs:
    """The jobs on slots or in the queue, and what is known of them together."""

    jobs: tuple[PresentJob, ...]
    network: NetworkModel
    typical: Mapping[str, int]
    """Medians of the estimates that are known, for jobs of which nothing is; empty if none are."""
    start_ns: int
    exit_ns: int
    """How long jobs take before their first iteration and after their last one."""
    now_ns: int
    busy: Mapping[Slot, float]
    """How much of the time jobs compute on a slot that do not take turns, together."""
    message_factor: float
    """The median of how many times longer messages took than by the network model."""

    @classmethod
    def of(cls, jobs: Iterable[PresentJob], state: PresentState) -> LiveJobs:
        """Return these jobs of a scheduler."""
        jobs = tuple(jobs)
        known = [job for job in jobs if not job.unknown]
        busy: dict[Slot, float] = {}
        for job in jobs:
            for slot in job.slots:
                busy[slot] = busy.get(slot, 0.0) + _busy_share(job)
        factors = [job.observed.message_factor for job in jobs]
        return cls(
            jobs,
            state.network,
            {name: int(median(getattr(job, name) for job in known)) for name in ESTIMATES}
            if known
            else {},
            state.start_ns,
            state.exit_ns,
            state.clock_ns,
            busy,
            median([one for one in factors if one is not None] or [1.0]),
        )

    def correction(self, index: int, pace: Mapping[int, float]) -> Correction:
        """Return a job's correction, given the pace factors of those that have been observed.

        A job whose times are not known takes after the others. One that shares GPUs without taking
        turns has measured how long it computes beside others; in the simulation it computes alone.
        """
        job = self.jobs[index]
        times = pace.get(index, 1.0)
        if is_unknown(job) and pace:
            times = median(pace.values())
        beside = max((self.busy[slot] - _busy_share(job) for slot in job.slots), default=0.0)
        slowed = 1.0 + beside if _busy_share(job) else 1.0
        messages = job.observed.message_factor or self.message_factor
        return Correction(times / slowed, messages * slowed)

    def job(self, index: int, correction: Correction) -> Job:
        """Return a job for the simulator."""
        job = self.jobs[index]
        found = Job(
            job_id=job.job_id,
            arrival_ns=job.submitted_ns,
            gpus=job.gpus,
            iterations=1,
            memory_bytes=job.memory_bytes,
            exclusive=job.memory_bytes == 0,
            priority=job.priority,
            **self._iteration(job, correction),
        )
        # Starting and exiting count as iterations, too, since the simulator knows neither.
        around = self._around_ns(job) / (found.compute_ns + self._sending_ns(found))
        iterations = job.iterations + _iterations_left(job) + round(around)
        # A correction must not take a job past the simulator's last instant.
        most = max(job.iterations + 1, (HORIZON_NS - found.arrival_ns) // found.compute_ns)
        return replace(found, iterations=min(iterations, most))

    def _around_ns(self, job: PresentJob) -> int:
        """Return how long a job will take to start, if it has not, and to exit."""
        if job.iterations > 0:
            return self.exit_ns
        since_ns = 0 if job.started_ns is None else self.now_ns - job.started_ns
        return self.exit_ns + max(0, self.start_ns - since_ns)

    def _sending_ns(self, job: Job) -> int:
        """Return how long the messages of an iteration take, alone and not overlapped."""
        if job.gpus == 1 or job.graph is not None:
            return 0
        return self.network.all_reduce_ns(job.gradient_bytes) if job.gradient_bytes else 0

    def _iteration(self, job: PresentJob, correction: Correction) -> dict[str, Any]:
        """Return the fields that say what a job's iterations are: measured before estimated."""
        measured, time_ns, size_bytes = job.measured, correction.time_ns, correction.size_bytes
        if measured is None:
            fields = self._estimates(job)
            return {
                "forward_ns": time_ns(fields["forward_ns"]),
                "backward_ns": time_ns(fields["backward_ns"]),
                "gradient_bytes": size_bytes(fields["gradient_bytes"]),
            }
        if overlaps(job):
            cuts = [
                (time_ns(one.backward_ns), size_bytes(one.bucket_bytes)) for one in measured.buckets
            ]
            optimizer_ns = time_ns(measured.optimizer_ns) if measured.optimizer_ns else 0
            return {"graph": bucketed(job.gpus, time_ns(measured.forward_ns), cuts, optimizer_ns)}
        return {
            # The optimizer's step counts as part of the next forward pass.
            "forward_ns": time_ns(measured.forward_ns + measured.optimizer_ns),
            "backward_ns": time_ns(sum(one.backward_ns for one in measured.buckets)),
            "gradient_bytes": size_bytes(sum(one.bucket_bytes for one in measured.buckets)),
        }

    def _estimates(self, job: PresentJob) -> dict[str, int]:
        """Return the estimates of a job whose iterations are not measured.

        If those that are not known were observed nevertheless, they follow from that.
        """
        fields = {name: getattr(job, name) for name in ESTIMATES}
        if not job.unknown:
            return fields
        iteration_ns, factor = job.observed.iteration_ns, job.observed.message_factor
        if iteration_ns is None:
            return fields | {name: self.typical[name] for name in job.unknown if self.typical}
        if "gradient_bytes" in job.unknown:
            fields["gradient_bytes"] = 0  # It has sent nothing that it asked for.
        sending_ns = 0.0
        if factor is not None and fields["gradient_bytes"]:
            sending_ns = factor * self.network.all_reduce_ns(fields["gradient_bytes"])
        computing_ns = max(2, round(iteration_ns - sending_ns))
        return fields | {
            "forward_ns": computing_ns // 2,
            "backward_ns": computing_ns - computing_ns // 2,
        }


def _busy_share(job: PresentJob) -> float:
    """Return how much of the time a job computes; 0 if it takes turns, or that is not known."""
    measured, iteration_ns = job.measured, job.observed.iteration_ns
    if measured is None or iteration_ns is None or job.takes_turns:
        return 0.0
    computing_ns = measured.forward_ns + measured.optimizer_ns
    computing_ns += sum(one.backward_ns for one in measured.buckets)
    return min(1.0, computing_ns / iteration_ns)


def is_unknown(job: PresentJob) -> bool:
    """Whether the times or bytes of a job are neither declared nor measured nor observed."""
    return bool(job.unknown) and job.measured is None and job.observed.iteration_ns is None


def _iterations_left(job: PresentJob) -> int:
    """Return the estimate that the scheduler itself uses: see `headway.live.core.jobs`."""
    done, total = job.iterations, job.total_iterations
    return max(1, done if total is None else total - done)


def overlaps(job: PresentJob) -> bool:
    """Whether a job sends gradients while its backward pass goes on: that takes a graph."""
    measured = job.measured
    if measured is None or job.gpus == 1:
        return False
    return sum(one.bucket_bytes > 0 for one in measured.buckets) > 1


def started_job(
    job: PresentJob,
    index: int,
    first_gpu: Mapping[str, int],
    state: PresentState,
    correction: Correction,
) -> StartedJob:
    """Return what a job on slots has done so far."""
    now_ns, began_ns = state.clock_ns, job.started_ns
    gpus = sorted(first_gpu[slot.node] + slot.index for slot in job.slots)
    spread = len({slot.node for slot in job.slots}) > 1
    pending, tasks_done = _message(job, state, correction) if spread else None, 0
    if pending is not None:
        number, tasks_done = _bucket(job) if overlaps(job) else (0, 2)
        pending = replace(pending, number=number)
    return StartedJob(
        job=index,
        gpus=tuple(gpus),
        start_ns=now_ns if began_ns is None else min(began_ns, now_ns),
        iterations_done=job.iterations,
        tasks_done=(tasks_done,) * len(gpus),
        task_start_ns=(None,) * len(gpus),
        messages_done=frozenset(range(0 if pending is None else pending.number)),
        messages=() if pending is None else (pending,),
    )


def _bucket(job: PresentJob) -> tuple[int, int]:
    """Return the number of a job's message among its buckets, and the tasks before it.

    What its iteration has yet to send tells which it is.
    """
    assert job.measured is not None
    sizes = [one.bucket_bytes for one in job.measured.buckets]
    sent = [index for index, size in enumerate(sizes) if size > 0]
    index = min(sent, key=lambda index: abs(sum(sizes[index:]) - job.unsent_bytes))
    return sent.index(index), 2 + index


def _message(job: PresentJob, state: PresentState, correction: Correction) -> PendingMessage | None:
    """Return a job's message that is in flight or waits, if there is one."""
    now_ns, cost = state.clock_ns, max(1e-9, state.network.b_ns_per_byte)
    if job.message is not None:
        size_bytes, since_ns = job.message.message_bytes, job.message.since_ns
        # What it has sent by now is sent, whatever its size.
        left = max(0, correction.size_bytes(size_bytes) - (size_bytes - job.message.left_bytes))
        # Its cost follows from what is on its links: it is set when the simulation begins.
        flight = InFlight(
            since_ns,
            min(since_ns, now_ns),
            now_ns,
            float(left),
            cost,
            now_ns + 1 + int(left * cost),
        )
        return PendingMessage(0, min(since_ns, now_ns), left, is_whole=True, in_flight=flight)
    if job.waiting is not None:
        ready_ns = min(job.waiting.since_ns, now_ns)
        size_bytes = correction.size_bytes(job.waiting.message_bytes)
        return PendingMessage(0, ready_ns, size_bytes, is_whole=True)
    return None
