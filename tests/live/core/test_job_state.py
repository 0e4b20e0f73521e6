"""The table of transitions, and that a job follows it."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from headway.live.core.core import HANDLERS, Core
from headway.live.core.events import (
    AnyEvent,
    JobCancelled,
    JobRestored,
    JobSpec,
    NodeUp,
    Slot,
    Tick,
)
from headway.live.core.job_state import ACTIVE, FINISHED, TRANSITIONS, JobState, Trigger
from headway.live.core.jobs import LiveJob
from headway.network.contention import NetworkModel

SPEC = JobSpec(command=("train",))


def job_in(state: JobState) -> LiveJob:
    """Return a job that reached a state by the shortest way."""
    found: dict[JobState, tuple[Trigger, ...]] = {JobState.QUEUED: ()}
    while state not in found:
        for (before, trigger), after in TRANSITIONS.items():
            if before in found:
                found.setdefault(after, (*found[before], trigger))
    job = LiveJob("a", SPEC, 0, 0)
    for trigger in found[state]:
        job.apply(trigger)
    return job


@pytest.mark.parametrize("state", JobState)
def test_every_state_can_be_reached(state: JobState) -> None:
    assert job_in(state).state is state


def test_finished_jobs_stay_finished_and_all_others_can_finish() -> None:
    assert {before for before, _ in TRANSITIONS} == set(JobState) - FINISHED
    for state in ACTIVE:
        after = {after for (before, _), after in TRANSITIONS.items() if before is state}
        assert after & FINISHED


@pytest.mark.parametrize(("state", "trigger"), list(product(JobState, Trigger)))
def test_a_job_makes_the_transitions_of_the_table_and_refuses_all_others(
    state: JobState, trigger: Trigger
) -> None:
    job = job_in(state)
    assert job.accepts(trigger) == ((state, trigger) in TRANSITIONS)
    if job.accepts(trigger):
        job.apply(trigger)
        assert job.state is TRANSITIONS[state, trigger]
    else:
        with pytest.raises(AssertionError, match=f"job a is {state}: cannot {trigger}"):
            job.apply(trigger)
        assert job.state is state


def test_nothing_but_a_transition_changes_a_state() -> None:
    with pytest.raises(AttributeError):
        job_in(JobState.QUEUED).state = JobState.DONE  # type: ignore[misc]


def test_every_event_has_a_handler() -> None:
    assert set(HANDLERS) == set(get_args(AnyEvent))


@pytest.mark.parametrize("slots", [(), (Slot("n0", 0),)])
def test_a_job_that_is_cancelled_while_others_are_restored_is_never_placed(
    slots: tuple[Slot, ...],
) -> None:
    core = Core("ff+srsf:1", NetworkModel())
    core.handle(NodeUp(at_ns=0, node="n0", gpus=1, memory_bytes=1))
    restored = JobRestored(
        at_ns=1, job_id="a", spec=SPEC, submitted_ns=0, attempts=1, slots=slots, hold=True
    )
    core.handle(restored)
    core.handle(JobCancelled(at_ns=2, job_id="a"))
    core.validate()
    assert core.handle(Tick(at_ns=3)) == []
    core.validate()
    assert core.why("a") == ("stopping: cancelled." if slots else "cancelled.")
