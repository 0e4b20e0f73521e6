"""The decisions of the live scheduler: whom to place, whom to admit, when to ask again."""

from __future__ import annotations

from headway.live.core.events import AnyInstruction, Launch, WakeAt
from headway.live.core.job_state import JobState
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.state import Ledger
from headway.policies.registry import ADMIT, WAIT


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
        taken = rules.place(view.cluster, job.row, candidates, job.spec.gpus)
        loads_known = taken is None
        if taken is not None:
            _launch(ledger, job, taken.tolist(), instructions)


def _launch(
    ledger: Ledger, job: LiveJob, gpus: list[int], instructions: list[AnyInstruction]
) -> None:
    """Make an attempt at a job on these GPUs."""
    del ledger.queue[job.number]
    slots = tuple(ledger.view.slots[gpu] for gpu in gpus)
    job.attempts += 1
    job.state = JobState.STARTING
    job.started_ns = ledger.now_ns
    ledger.view.place(job, slots, ledger.now_ns)
    ledger.set_key(job)
    ledger.counts.launches += 1
    instructions.append(Launch(job_id=job.job_id, attempt=job.attempts, slots=slots))


def admit(ledger: Ledger, instructions: list[AnyInstruction]) -> None:
    """Ask about waiting messages once each, in order; each sees those admitted before it.

    A steady policy is not asked again until a message has ended on one of the job's nodes, or the
    time has come that it named.
    """
    now_ns, view, rules, waiting = ledger.now_ns, ledger.view, ledger.rules, ledger.waiting
    asked = waiting
    if rules.admission_steady:
        asked = ledger.asking
        if len(asked) < len(waiting):
            for number, job in waiting.items():
                if job.wake_ns <= now_ns or not ledger.touched.isdisjoint(job.ports):
                    asked[number] = job
    in_order = list(asked.values())
    ledger.asking.clear()
    if len(in_order) > 1:
        in_order.sort(key=lambda job: job.order)
    for job in in_order:
        answer = rules.admit(view.cluster, job.row)
        if answer == ADMIT or WAIT < answer <= now_ns:
            del waiting[job.number]
            job.granted = next(iter(job.requests))
            view.send(job, now_ns)
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
