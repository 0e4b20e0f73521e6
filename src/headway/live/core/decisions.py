"""The decisions of the live scheduler: whom to place, whom to admit, when to ask again."""

from __future__ import annotations

from headway.live.core.events import AnyInstruction, Launch, Slot, WakeAt
from headway.live.core.job_state import JobState
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.state import Ledger
from headway.policies.registry import admits


def place(ledger: Ledger, instructions: list[AnyInstruction]) -> None:
    """Try queued jobs once each, in order; one that is refused does not block the next.

    A steady policy is asked about those that it has not been asked about, and about all when
    something has left, or come, that could make room.
    """
    view, rules = ledger.view, ledger.rules
    all_of_them = ledger.room or not rules.placement_steady
    tried = sorted(
        (ledger.queue if all_of_them else ledger.fresh).values(), key=lambda job: job.order
    )
    ledger.fresh.clear()
    loads_known = False
    full: set[tuple[int, int]] = set()  # sizes for which there is no room
    for job in tried:
        size = (job.spec.memory_bytes, job.spec.gpus)
        if size in full:
            continue
        candidates = view.candidates(job)
        if len(candidates) < job.spec.gpus:
            full.add(size)
            continue
        if not loads_known:
            view.add_up_loads()
            loads_known = True
        if not rules.place(view.cluster, job.row, candidates):
            continue
        slots = view.assign(job, candidates)
        if slots is None:
            rules.invalid_candidates()
            continue
        _launch(ledger, job, slots, instructions)
        view.add_load(job)


def _launch(
    ledger: Ledger, job: LiveJob, slots: tuple[Slot, ...], instructions: list[AnyInstruction]
) -> None:
    """Start an attempt at a job on these slots."""
    del ledger.queue[job.number]
    job.attempts += 1
    job.state = JobState.STARTING
    job.started_ns = ledger.now_ns
    ledger.view.place(job, slots, ledger.now_ns)
    ledger.set_key(job)
    ledger.counts.launches += 1
    instructions.append(Launch(job_id=job.job_id, attempt=job.attempts, slots=slots))


def admit(ledger: Ledger, instructions: list[AnyInstruction]) -> None:
    """Ask about waiting messages once each, in order; each sees those admitted before it.

    A steady policy is not asked again until a message has ended on one of the job's nodes, or until
    the time that it named.
    """
    now_ns, view, rules, waiting = ledger.now_ns, ledger.view, ledger.rules, ledger.waiting
    asked = waiting
    if rules.admission_steady:
        asked = ledger.asking
        if len(asked) < len(waiting):
            concerned = [job for job in waiting.values() if job.wake_ns <= now_ns]
            asked.update({job.number: job for job in concerned + view.waiting_again()})
    in_order = list(asked.values())
    ledger.asking.clear()
    if len(in_order) > 1:
        in_order.sort(key=lambda job: job.order)
    for job in in_order:
        answer = rules.admit(view.cluster, job.row)
        if admits(answer, now_ns):
            del waiting[job.number]
            job.granted = next(iter(job.requests))
            view.send(job)
            ledger.rated = False
            ledger.grant(job, job.granted, instructions)
        else:
            job.wake_ns = answer if answer > now_ns else NEVER_NS


def ask_to_wake(ledger: Ledger, instructions: list[AnyInstruction]) -> None:
    """Ask for a Tick at the earliest time that a policy named, unless one comes by then."""
    if ledger.wake_ns <= ledger.now_ns:
        ledger.wake_ns = NEVER_NS
    wake_ns = min(job.wake_ns for job in ledger.waiting.values())
    if wake_ns < ledger.wake_ns:
        ledger.wake_ns = wake_ns
        instructions.append(WakeAt(at_ns=wake_ns))
