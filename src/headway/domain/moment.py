"""A moment of a run: what every job has done and is doing once all steps of an instant are over.

A simulation can start from one (`headway.simulate(..., initial=...)`), as the continuation of a
simulated run or of what a live cluster is doing now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.limits import HORIZON_NS, whole
from headway.domain.workload import Workload


@dataclass(frozen=True, slots=True)
class InFlight:
    """A message, or a bucket of it, on the network."""

    order: int
    """Messages are admitted one after another: a higher number later."""
    start_ns: int
    since_ns: int
    """The later of the last change of its cost and the end of its latency."""
    bytes_left: float
    """At `since_ns`."""
    cost_ns_per_byte: float
    end_ns: int


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message of an iteration that is ready and has not ended."""

    number: int
    """Among the messages of its job, from 0."""
    ready_ns: int
    unsent_bytes: int
    """With those of the bucket that waits or is in flight."""
    not_before_ns: int | None = None
    """The time that an admission policy named, if it waits for that."""
    is_whole: bool = False
    """Whether it is not cut, where messages are cut only if they share a port."""
    in_flight: InFlight | None = None
    """None if it waits for admission."""


@dataclass(frozen=True, slots=True)
class StartedJob:
    """A job that has been placed; finished if all its iterations are done."""

    job: int
    """Its index in the workload."""
    gpus: tuple[int, ...]
    """Ascending: rank r is on the r-th."""
    start_ns: int
    iterations_done: int
    finish_ns: int | None = None
    tasks_done: tuple[int, ...] = ()
    """By rank: the compute tasks of this iteration that have ended."""
    task_start_ns: tuple[int | None, ...] = ()
    """By rank: when the task that runs on its GPU started; None if it waits, or all have ended."""
    messages_done: frozenset[int] = frozenset()
    """The numbers of the messages of this iteration that have ended, those within a server too."""
    messages: tuple[PendingMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a run at a time, after everything that happens then.

    Jobs that have arrived by then, and are not among the started ones, are queued.
    """

    time_ns: int
    started: tuple[StartedJob, ...] = ()
    settled: bool = True
    """False if policies have yet to decide at this time, because others take over, for example."""
    closed_gpus: frozenset[int] = frozenset()
    """GPUs that take no more jobs."""

    def check(self, workload: Workload, cluster: Cluster) -> None:
        """Refuse what cannot be a moment of this workload on this cluster.

        Raises:
            InputError: It says which job and what is wrong.
        """
        whole(self.time_ns, "time_ns", 0, HORIZON_NS)
        if not self.closed_gpus <= set(range(cluster.gpus)):
            raise InputError(
                f"closed GPUs must be from 0 to {cluster.gpus - 1:,}.", field="initial"
            )
        seen: set[int] = set()
        computing: set[int] = set()
        for started in self.started:
            if not 0 <= started.job < len(workload) or started.job in seen:
                raise InputError(
                    f"job {started.job}: not an index of the workload, or twice.", field="initial"
                )
            seen.add(started.job)
            job = workload[started.job]
            problem = _problem(started, job, cluster, self.time_ns)
            if problem is None and started.finish_ns is None:
                busy = {
                    gpu
                    for gpu, since in zip(started.gpus, started.task_start_ns, strict=True)
                    if since is not None
                }
                if busy & computing:
                    problem = "computes on a GPU where another job does"
                computing |= busy
            if problem is not None:
                raise InputError(f"job '{job.job_id}' {problem}.", field="initial")


def _problem(started: StartedJob, job: Job, cluster: Cluster, now_ns: int) -> str | None:
    """Return what is wrong with a started job, to follow its name."""
    gpus = started.gpus
    if len(gpus) != job.gpus or list(gpus) != sorted(set(gpus)):
        return f"must have {job.gpus:,} different GPUs in ascending order"
    if gpus[0] < 0 or gpus[-1] >= cluster.gpus:
        return f"has a GPU that is not from 0 to {cluster.gpus - 1:,}"
    if not job.arrival_ns <= started.start_ns <= now_ns:
        return "must start between its arrival and the moment"
    if started.finish_ns is not None:
        if started.iterations_done != job.iterations:
            return "has finished, but not all its iterations are done"
        if not started.start_ns <= started.finish_ns <= now_ns:
            return "must finish between its start and the moment"
        return None
    if not 0 <= started.iterations_done < job.iterations:
        return f"must have done from 0 to {job.iterations - 1:,} iterations, or have finished"
    if len(started.tasks_done) != job.gpus or len(started.task_start_ns) != job.gpus:
        return f"needs the tasks of each of its {job.gpus:,} ranks"
    tasks = _tasks_by_rank(job)
    for done, since, total in zip(started.tasks_done, started.task_start_ns, tasks, strict=True):
        if not 0 <= done <= total or (done == total and since is not None):
            return f"has done {done:,} tasks on a rank of {total:,}, or runs another"
        if since is not None and not 0 <= since <= now_ns:
            return "has a task that starts after the moment"
    return _problem_of_messages(started, job, now_ns)


def _problem_of_messages(started: StartedJob, job: Job, now_ns: int) -> str | None:
    """Return what is wrong with the messages of a started job."""
    pending = [message.number for message in started.messages]
    numbers = [*pending, *started.messages_done]
    if len(set(numbers)) != len(numbers):
        return "has a message twice"
    if not all(0 <= number < job.message_count for number in numbers):
        return f"has a message whose number is not from 0 to {job.message_count - 1:,}"
    if job.graph is None and started.messages_done:
        return "has sent its message, so its iteration is over"
    if job.graph is None and pending and min(started.tasks_done) < 2:
        return "has a message while it still computes"
    for message in started.messages:
        flight = message.in_flight
        if message.ready_ns > now_ns or message.unsent_bytes < 0:
            return "has a message that is ready after the moment, or less than nothing to send"
        if flight is not None and not (
            flight.start_ns <= now_ns < flight.end_ns
            and flight.cost_ns_per_byte > 0
            and 0 <= flight.bytes_left <= message.unsent_bytes
        ):
            return "has a message in flight that does not fit the moment"
        if message.not_before_ns is not None and message.not_before_ns <= now_ns:
            return "has a message that waits for a time that is past"
    return None


def _tasks_by_rank(job: Job) -> Iterable[int]:
    """Return the number of compute tasks of each rank in an iteration."""
    if job.graph is None:
        return [2] * job.gpus
    counts = [0] * job.gpus
    for entry in job.graph.tasks:
        for rank in entry.ranks:
            counts[rank] += 1
    return counts
