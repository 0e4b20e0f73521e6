"""The policy's decisions: which jobs to place, which messages to admit, when to ask again."""

from __future__ import annotations

from headway.domain.records import NOT_RESERVED
from headway.live.core import lifecycle, messages
from headway.live.core.cluster_arrays import ClusterArrays
from headway.live.core.events import AnyInstruction, WakeAt
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.state import CoreState
from headway.policies.registry import admits


def place(state: CoreState, instructions: list[AnyInstruction]) -> None:
    """Try queued jobs once each, in order; one that does not fit does not block the next.

    But those of a priority above 0 keep their slots from jobs of lower ones, unless they pause
    after a failure. A steady policy is asked about new jobs only, unless room may have been made
    for the others.
    """
    lifecycle.end_pauses(state)
    retry_all = state.room_made or not state.rules.placement_steady
    state.room_made = False
    if not (state.fresh or (state.queue and retry_all)):
        return
    fresh, state.fresh = state.fresh, {}
    asked = state.queue if retry_all else fresh
    ready = (asked if retry_all else fresh | state.urgent).values()
    jobs = sorted((job for job in ready if job.number not in state.pausing), key=_order)
    arrays, rules = state.arrays, state.rules
    loads_current = False
    full: set[tuple[int, int]] = set()  # (memory, GPUs) for which there is no room
    kept = _KeptSlots(arrays)
    for job in jobs:
        size = (job.spec.memory_bytes, job.spec.gpus)
        if job.number not in asked or size in full:
            kept.add(job)
            continue
        arrays.reserve(kept.from_bytes(job))
        candidates = arrays.candidates(job)
        if len(candidates) < job.spec.gpus:
            full.add(size)
            kept.add(job)
            continue
        if not loads_current:
            arrays.add_up_loads()
            loads_current = True
        if not rules.place(arrays.cluster, job.row, candidates):
            kept.add(job)
            continue
        slots = arrays.assign(job, candidates)
        if slots is None:
            rules.invalid_candidates()
            kept.add(job)
            continue
        lifecycle.launch(state, job, slots, instructions)
        arrays.add_load(job)
    arrays.reserve(NOT_RESERVED)
    # Those that were kept waiting for a job that is placed now came after it and have been tried.
    state.room_made = False


class _KeptSlots:
    """Slots that no job of a lower priority gets, by their memory; jobs come in order."""

    def __init__(self, arrays: ClusterArrays) -> None:
        self._arrays = arrays
        self._priority = 0
        self._least_bytes = NOT_RESERVED
        self._from_bytes = NOT_RESERVED  # for jobs of the present priority

    def from_bytes(self, job: LiveJob) -> int:
        """Return how much memory the slots have that are kept from a job, at least."""
        if job.spec.priority != self._priority:
            self._priority, self._from_bytes = job.spec.priority, self._least_bytes
        return self._from_bytes

    def add(self, job: LiveJob) -> None:
        """Keep the slots that a job could use, which stays queued: if its priority is above 0."""
        if job.spec.priority <= 0:
            return
        self.from_bytes(job)
        memory_bytes = self._arrays.memory_bytes(job)
        if memory_bytes < self._least_bytes and self._arrays.could_hold(job):
            self._least_bytes = memory_bytes


def admit(state: CoreState, instructions: list[AnyInstruction]) -> None:
    """Ask about waiting messages once each, in order; each sees those admitted before it.

    A steady policy is asked again only when a message has left one of the job's nodes, or at the
    time that it named.
    """
    now_ns, arrays, rules, waiting = state.now_ns, state.arrays, state.rules, state.waiting
    if not waiting:
        return
    jobs = waiting
    if rules.admission_steady:
        jobs = state.unasked
        if len(jobs) < len(waiting):
            due = [job for job in waiting.values() if job.wake_ns <= now_ns]
            jobs.update({job.number: job for job in due + arrays.waiting_again()})
    in_order = list(jobs.values())
    state.unasked.clear()
    if len(in_order) > 1:
        in_order.sort(key=_order)
    for job in in_order:
        answer = rules.admit(arrays.cluster, job.row, job.ports, arrays.message_bytes(job))
        if admits(answer, now_ns):
            del waiting[job.number]
            job.granted = next(iter(job.requests))
            arrays.send(job)
            messages.begin_lease(state, job)
            state.rates_current = False
            messages.grant(state, job, job.granted, instructions)
        else:
            job.wake_ns = answer if answer > now_ns else NEVER_NS


def rate(state: CoreState) -> None:
    """Update the cost of messages in flight if one has started or ended."""
    if not state.rates_current:
        state.arrays.rate()
        state.rates_current = True


def ask_to_wake(state: CoreState, instructions: list[AnyInstruction]) -> None:
    """Ask for a Tick when a policy wants to decide again, or a lease or a pause may be over.

    Most grants end long before their leases: one Tick serves all that begin before it.
    """
    if not state.waiting and not state.pausing and state.lease_check_ns == NEVER_NS:
        return
    if state.wake_ns <= state.now_ns:
        state.wake_ns = NEVER_NS
    wake_ns = min((job.wake_ns for job in state.waiting.values()), default=NEVER_NS)
    ready_ns = min((job.ready_ns for job in state.pausing.values()), default=NEVER_NS)
    wake_ns = min(wake_ns, ready_ns, state.lease_check_ns)
    if wake_ns < state.wake_ns:
        state.wake_ns = wake_ns
        instructions.append(WakeAt(at_ns=wake_ns))


def _order(job: LiveJob) -> tuple[int, int, int]:
    return job.order
