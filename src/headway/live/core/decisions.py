"""The policy's decisions: which jobs to place, which messages to admit, when to ask again."""

from __future__ import annotations

from headway.live.core import lifecycle, messages
from headway.live.core.events import AnyInstruction, WakeAt
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.state import CoreState
from headway.policies.registry import admits


def place(state: CoreState, instructions: list[AnyInstruction]) -> None:
    """Try queued jobs once each, in order; one that does not fit does not block the next.

    A steady policy is asked about new jobs only, unless room may have been made for the others.
    """
    lifecycle.end_pauses(state)
    retry_all = state.room_made or not state.rules.placement_steady
    state.room_made = False
    if not (state.fresh or (state.queue and retry_all)):
        return
    queued = (state.queue if retry_all else state.fresh).values()
    jobs = sorted((job for job in queued if job.number not in state.pausing), key=_order)
    state.fresh.clear()
    arrays, rules = state.arrays, state.rules
    loads_current = False
    full: set[tuple[int, int]] = set()  # (memory, GPUs) for which there is no room
    for job in jobs:
        size = (job.spec.memory_bytes, job.spec.gpus)
        if size in full:
            continue
        candidates = arrays.candidates(job)
        if len(candidates) < job.spec.gpus:
            full.add(size)
            continue
        if not loads_current:
            arrays.add_up_loads()
            loads_current = True
        if not rules.place(arrays.cluster, job.row, candidates):
            continue
        slots = arrays.assign(job, candidates)
        if slots is None:
            rules.invalid_candidates()
            continue
        lifecycle.launch(state, job, slots, instructions)
        arrays.add_load(job)


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
