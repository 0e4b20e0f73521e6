"""What jobs do or wait for, in sentences."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from headway.domain.limits import HORIZON_NS
from headway.domain.records import NOT_RESERVED
from headway.live.core.job_state import JobState
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.lease_rules import SECOND_NS
from headway.live.core.state import CoreState

_MEGABYTE = 2**20


def why(state: CoreState, job_id: str, now_ns: int = 0) -> str:
    """Return a sentence on what a job does or waits for; `now_ns` as for `FreeSlots`."""
    job = state.jobs.get(job_id)
    return f"there is no job {job_id}." if job is None else why_job(state, job, now_ns)


def why_job(state: CoreState, job: LiveJob, now_ns: int = 0) -> str:
    """Return a sentence on what a job does or waits for."""
    if job.number in state.waiting:
        return InFlight(state, job.node_names).why_not_admitted(job)
    if job.state is not JobState.RUNNING or job.stuck:
        return why_steadily(state, job, FreeSlots(state, now_ns))
    where = ", ".join(job.node_names)
    if job.granted is not None:
        size_bytes, left_bytes = job.first_request.message_bytes, state.arrays.bytes_left(job)
        left = f"about {_mb(left_bytes)} left" if left_bytes else "longer than predicted"
        return f"running on {where}; sending {_mb(size_bytes)}, {left}."
    held_back = ""
    if job.ports and job.requests:
        held_back = "; its all-reduce waits until all ranks have computed"
    return f"running on {where}{held_back}{_why_no_turn(state, job)}."


def why_steadily(state: CoreState, job: LiveJob, free: FreeSlots) -> str:
    """Do as `why_job`, without messages and turns, which change all the time."""
    if job.state is JobState.QUEUED:
        return free.why_queued(job)
    if job.finished or job.state is JobState.STOPPING:
        return f"{job.state}." if job.reason in ("", job.state) else f"{job.state}: {job.reason}."
    where = ", ".join(job.node_names)
    if job.stuck:
        return f"stuck on {where}: {job.stuck}; {_when_stopped(state, job)}."
    return f"{job.state} on {where}."


def _when_stopped(state: CoreState, job: LiveJob) -> str:
    if job.stop_ns == NEVER_NS:
        return "no other job waits for it"
    left_s = max(0, job.stop_ns - state.now_ns) / SECOND_NS
    return f"no other job waits for it, and it is stopped in {left_s:,.0f} s"


def _why_no_turn(state: CoreState, job: LiveJob) -> str:
    """Name the jobs that compute on the slots for which a job's ranks wait."""
    waits = [
        f"rank {rank} waits while job {state.turns.job_on(job.slots[rank])} computes on "
        f"{job.slots[rank].node}:{job.slots[rank].index}"
        for rank, requests in sorted(job.computations.items())
        if not next(iter(requests.values()))
    ]
    return "".join(f"; {one}" for one in waits)


class FreeSlots:
    """How many slots there are and are free; jobs that need the same memory are looked at once.

    `now_ns` is the present time, if it is later than that of the latest event.
    """

    def __init__(self, state: CoreState, now_ns: int = 0) -> None:
        self._state, self._now_ns = state, max(now_ns, state.now_ns)
        # By memory: all slots that have as much, and those that are free.
        self._counts: dict[int, tuple[int, int]] = {}
        draining = [node.name for node in state.arrays.nodes.values() if node.draining]
        self._uncounted = ""
        if draining:
            self._uncounted = f" (not counting draining nodes: {', '.join(draining)})"

    @cached_property
    def _ahead(self) -> list[tuple[LiveJob, int]]:
        """Queued jobs that others wait behind, in order, with the memory that they need.

        Only those that could use smaller slots than all before them.
        """
        arrays, found, least_bytes = self._state.arrays, [], NOT_RESERVED
        state = self._state
        urgent = [job for job in state.urgent.values() if job.number not in state.pausing]
        for job in sorted(urgent, key=lambda job: job.order):
            memory_bytes = arrays.memory_bytes(job)
            if memory_bytes < least_bytes and arrays.could_hold(job):
                found.append((job, memory_bytes))
                least_bytes = memory_bytes
        return found

    def why_queued(self, job: LiveJob) -> str:
        """Say what a queued job needs and how much of it is free, or when it starts again."""
        if job.number in self._state.pausing:
            left_s = max(1, -(-(job.ready_ns - self._now_ns) // SECOND_NS))
            return f"last attempt failed ({job.reason}); starts again in {left_s:,} s."
        rules, wanted = self._state.rules, job.spec.gpus
        kind = "to itself" if job.exclusive else f"with {_mb(job.spec.memory_bytes)}"
        needs = f"needs {wanted:,} slot{'s' * (wanted > 1)} {kind}"
        if job.reason:
            needs = f"last attempt failed ({job.reason}); {needs}"
        total, free = self._count(job)
        if total < wanted:
            return f"{needs}; the cluster has {total:,} of that size."
        if free >= wanted and (ahead := self._waits_behind(job)) is not None:
            return (
                f"{needs}; {_are(free)} free, but it waits behind job {ahead.job_id}, which has a "
                "higher priority."
            )
        if free >= wanted:
            failure = f" ({rules.failure})" if rules.failure else ""
            return (
                f"{needs}; {_are(free)} free, but placement policy {rules.placement_name} "
                f"keeps it queued{failure}."
            )
        return f"{needs}; {_are(free)} free{self._uncounted}."

    def _waits_behind(self, job: LiveJob) -> LiveJob | None:
        """Return the first queued job that keeps so many slots from a job that it cannot start."""
        arrays = self._state.arrays
        for ahead, memory_bytes in self._ahead:
            if ahead.spec.priority <= job.spec.priority:
                break
            arrays.reserve(memory_bytes)
            left = len(arrays.candidates(job))
            arrays.reserve(NOT_RESERVED)
            if left < job.spec.gpus:
                return ahead
        return None

    def _count(self, job: LiveJob) -> tuple[int, int]:
        memory_bytes, arrays = job.spec.memory_bytes, self._state.arrays
        if memory_bytes not in self._counts:
            nodes = arrays.nodes.values()
            total = sum(node.gpus for node in nodes if node.memory_bytes >= memory_bytes)
            self._counts[memory_bytes] = total, len(arrays.candidates(job))
        return self._counts[memory_bytes]


class InFlight:
    """The messages in flight at present on some nodes."""

    def __init__(self, state: CoreState, nodes: Collection[str]) -> None:
        self._state = state
        self._on_node: dict[str, list[str]] = {name: [] for name in nodes}
        for job in state.arrays.placed.values() if nodes else ():
            shared = [] if job.granted is None else self._on_node.keys() & job.node_names
            if shared:
                text = f"job {job.job_id}, about {_mb(state.arrays.bytes_left(job))} left"
                for name in shared:
                    self._on_node[name].append(text)

    def why_not_admitted(self, job: LiveJob) -> str:
        """Name the messages in the way of a job's next message; its nodes are among these."""
        contention = []
        for name in job.node_names:
            if others := self._on_node[name]:
                count = f"{len(others)} message{'s' * (len(others) > 1)}"
                contention.append(f"{count} on {name} ({'; '.join(others)})")
        beside = ", ".join(contention) or "no message on its nodes"
        until = ""
        if job.wake_ns <= HORIZON_NS:
            until = f" before {job.wake_ns / 1e9:,.3f} s on the scheduler's clock"
        return (
            f"its all-reduce of {_mb(job.first_request.message_bytes)} waits: {beside}; "
            f"{self._state.rules.admission_name} does not admit it{until}."
        )


def _are(count: int) -> str:
    return f"{count:,} is" if count == 1 else f"{count:,} are"


def _mb(size_bytes: float) -> str:
    if size_bytes < 1000 * _MEGABYTE:
        return f"{size_bytes / _MEGABYTE:,.4g} MB"
    return f"{size_bytes / _MEGABYTE:,.0f} MB"
