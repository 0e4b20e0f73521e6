"""The policy's decisions: which jobs to place, which messages to admit, when to ask again."""

from __future__ import annotations

from headway.live.core import lifecycle, messages
from headway.live.core.events import AnyInstruction, WakeAt
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.state import CoreState
from headway.policies.registry import ADMIT, WAIT


def place(state: CoreState, instructions: list[AnyInstruction]) -> None:
    """Try queued jobs once each, in order; one that does not fit does not block the next.

    A steady policy is asked about new jobs only, unless room may have been made for the others.
    """
    retry_all = state.room_made or not state.rules.placement_steady
    state.room_made = False
    if not (state.unplaced or (state.queue and retry_all)):
        return
    jobs = sorted((state.queue if retry_all else state.unplaced).values(), key=_order)
    state.unplaced.clear()
    view, rules = state.view, state.rules
    loads_current = False
    full: set[tuple[int, int]] = set()  # (memory, GPUs) for which there is no room
    for job in jobs:
        size = (job.spec.memory_bytes, job.spec.gpus)
        if size in full:
            continue
        candidates = view.candidates(job)
        if len(candidates) < job.spec.gpus:
            full.add(size)
            continue
        if not loads_current:
            view.add_up_loads()
        gpus = rules.place(view.cluster, job.row, candidates, job.spec.gpus)
        loads_current = gpus is None
        if gpus is not None:
            slots = tuple(view.slots[gpu] for gpu in gpus.tolist())
            lifecycle.launch(state, job, slots, instructions)


def admit(state: CoreState, instructions: list[AnyInstruction]) -> None:
    """Ask about waiting messages once each, in order; each sees those admitted before it.

    A steady policy is asked again only when a message has left one of the job's nodes, or at the
    time that it named.
    """
    now_ns, view, rules, waiting = state.now_ns, state.view, state.rules, state.waiting
    if not waiting:
        state.released_ports.clear()
        return
    jobs = waiting
    if rules.admission_steady:
        jobs = state.unasked
        if len(jobs) < len(waiting):
            for number, job in waiting.items():
                if job.wake_ns <= now_ns or not state.released_ports.isdisjoint(job.ports):
                    jobs[number] = job
    in_order = list(jobs.values())
    state.unasked.clear()
    state.released_ports.clear()
    if len(in_order) > 1:
        in_order.sort(key=_order)
    for job in in_order:
        answer = rules.admit(view.cluster, job.row)
        if answer == ADMIT or WAIT < answer <= now_ns:
            del waiting[job.number]
            job.granted = next(iter(job.requests))
            view.send(job, now_ns)
            state.rates_current = False
            messages.grant(state, job, job.granted, instructions)
        else:
            job.wake_ns = answer if answer > now_ns else NEVER_NS


def rate(state: CoreState) -> None:
    """Update the cost of messages in flight if one has started or ended."""
    if not state.rates_current:
        state.view.rate()
        state.rates_current = True


def ask_to_wake(state: CoreState, instructions: list[AnyInstruction]) -> None:
    """Ask for a Tick at the earliest time that a policy named, unless an earlier one is due."""
    if not state.waiting:
        return
    if state.wake_ns <= state.now_ns:
        state.wake_ns = NEVER_NS
    wake_ns = min(job.wake_ns for job in state.waiting.values())
    if wake_ns < state.wake_ns:
        state.wake_ns = wake_ns
        instructions.append(WakeAt(at_ns=wake_ns))


def _order(job: LiveJob) -> tuple[int, int, int]:
    return job.order
