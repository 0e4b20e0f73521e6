"""What a core observes of its jobs: how long iterations and messages take."""

from __future__ import annotations

from typing import Any

import pytest

from headway.live.core.core import Core
from headway.live.core.events import (
    IterationDone,
    JobExited,
    JobSpec,
    JobStarted,
    JobSubmitted,
    MessageDone,
    MessageReady,
    NodeUp,
    PolicyChanged,
)
from headway.live.core.observations import (
    MARKS,
    MAX_FACTOR,
    MIN_ITERATIONS,
    WARMUP_ITERATIONS,
    Observations,
)
from headway.network.contention import NetworkModel

MS = 1_000_000
SECOND = 10**9


def test_the_first_iterations_are_not_observed() -> None:
    one = Observations()
    one.iterated(5 * SECOND, 1)
    assert not one.trains
    found = []
    for done in range(WARMUP_ITERATIONS, WARMUP_ITERATIONS + MIN_ITERATIONS + 1):
        one.iterated((10 + done) * SECOND, done)
        found.append(one.iteration_ns)
    assert found == [None] * MIN_ITERATIONS + [SECOND]


def test_recent_iterations_count_and_old_ones_do_not() -> None:
    one, now_ns = Observations(), 0
    for done in range(2, 1_000):
        now_ns += 100 * MS
        one.iterated(now_ns, done)
    assert one.iteration_ns == 100 * MS
    for done in range(1_000, 1_000 + 5 * (MARKS + 2)):
        now_ns += 200 * MS
        one.iterated(now_ns, done)
    found = [one.iteration_ns]
    one.restart()
    assert [*found, one.iteration_ns] == [200 * MS, None]
    assert one.trains


def test_a_report_of_several_iterations_counts_them_all() -> None:
    one = Observations()
    for number in range(10):
        one.iterated(number * SECOND, 3 + 10 * number)
    assert one.iteration_ns == 100 * MS


def test_messages_are_compared_with_the_model_and_the_factor_is_bounded() -> None:
    one = Observations()
    assert one.message_factor is None
    for _ in range(5):
        one.message_ended(40.0, 10)
    assert one.message_factor == pytest.approx(4.0)
    for _ in range(200):
        one.message_ended(20.0, 10)
    assert one.message_factor == pytest.approx(2.0, rel=0.01)
    one.message_ended(1e18, 0)
    assert one.message_factor == MAX_FACTOR


def core_with_jobs(*gpus: int) -> Core:
    """Return a core with two nodes of two slots, and jobs that run there."""
    core = Core("ff+srsf:1", NetworkModel(a_ns=0, b_ns_per_byte=1.0))
    for node in ("n0", "n1"):
        core.handle(NodeUp(at_ns=0, node=node, gpus=2, memory_bytes=10))
    for number, count in enumerate(gpus):
        spec = JobSpec(command=("x",), gpus=count, memory_bytes=1, iterations=1_000)
        core.handle(JobSubmitted(at_ns=number, job_id=str(number), spec=spec))
        core.handle(JobStarted(at_ns=number, job_id=str(number), attempt=1))
    return core


def iterate(core: Core, job_id: str, first: int, last: int, each_ns: int = SECOND) -> None:
    for done in range(first, last + 1):
        identity: dict[str, Any] = {"at_ns": done * each_ns, "job_id": job_id, "attempt": 1}
        core.handle(IterationDone(**identity, iterations=done))


def observed(core: Core, job_id: str) -> int | None:
    job = core.job(job_id)
    assert job is not None
    return job.observations.iteration_ns


def test_iterations_are_observed_anew_when_a_neighbour_begins_or_ends() -> None:
    core = core_with_jobs(2, 1, 1)  # ff: the first on n0, the others beside it
    iterate(core, "0", 1, 10)
    assert observed(core, "0") == SECOND
    core.handle(IterationDone(at_ns=11 * SECOND, job_id="1", attempt=1, iterations=1))
    assert observed(core, "0") == SECOND  # It has only begun.
    core.handle(IterationDone(at_ns=11 * SECOND, job_id="1", attempt=1, iterations=2))
    assert observed(core, "0") is None
    iterate(core, "0", 12, 20)
    assert observed(core, "0") == SECOND
    core.handle(JobExited(at_ns=21 * SECOND, job_id="1", attempt=1, code=0))
    assert observed(core, "0") is None
    iterate(core, "0", 22, 30)
    # One that never did an iteration was no competition.
    core.handle(JobExited(at_ns=31 * SECOND, job_id="2", attempt=1, code=0))
    assert observed(core, "0") == SECOND
    core.handle(PolicyChanged(at_ns=32 * SECOND, policy="ff+srsf:2"))
    assert observed(core, "0") is None


def test_messages_are_timed_from_grant_to_end_beside_what_the_model_says() -> None:
    core = core_with_jobs(3, 3)
    sizes: dict[str, Any] = {"message_bytes": 10 * MS, "unsent_bytes": 10 * MS}
    first: dict[str, Any] = {"job_id": "0", "attempt": 1, "request": 1}
    second: dict[str, Any] = {"job_id": "1", "attempt": 1, "request": 1}
    core.handle(MessageReady(at_ns=SECOND, **first, **sizes))
    core.handle(MessageReady(at_ns=SECOND, **second, **sizes))  # waits for the first
    core.handle(MessageDone(at_ns=SECOND + 30 * MS, **first))
    core.handle(MessageDone(at_ns=SECOND + 50 * MS, **second))
    factors = [job.observations.message_factor for job in core.state.jobs.values()]
    assert factors == [pytest.approx(3.0), pytest.approx(2.0)]


def test_what_others_send_meanwhile_is_no_delay_of_the_network() -> None:
    """A long message is as fast as the model says, beside a short one for a while."""
    core = Core("ff+srsf:2", NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.5))
    for node in ("n0", "n1"):
        core.handle(NodeUp(at_ns=0, node=node, gpus=2, memory_bytes=10))
    for job_id in ("0", "1"):
        spec = JobSpec(command=("x",), gpus=3, memory_bytes=1, iterations=1_000)
        core.handle(JobSubmitted(at_ns=1, job_id=job_id, spec=spec))
        core.handle(JobStarted(at_ns=1, job_id=job_id, attempt=1))
    long: dict[str, Any] = {"job_id": "0", "attempt": 1, "request": 1}
    short: dict[str, Any] = {"job_id": "1", "attempt": 1, "request": 1}
    size = 60 * MS
    core.handle(MessageReady(at_ns=SECOND, **long, message_bytes=size, unsent_bytes=size))
    size = 20 * MS
    at_ns = SECOND + 10 * MS
    core.handle(MessageReady(at_ns=at_ns, **short, message_bytes=size, unsent_bytes=size))
    # Both at 2.5 ns a byte for 50 ms: 20 MB each; then the long one has 30 MB left.
    core.handle(MessageDone(at_ns=SECOND + 60 * MS, **short))
    core.handle(MessageDone(at_ns=SECOND + 90 * MS, **long))
    factors = [job.observations.message_factor for job in core.state.jobs.values()]
    assert factors == [pytest.approx(1.0), pytest.approx(1.0)]


def test_an_attempt_that_is_retried_is_observed_from_the_beginning() -> None:
    core = core_with_jobs()
    spec = JobSpec(command=("x",), retries=1, iterations=100)
    core.handle(JobSubmitted(at_ns=0, job_id="0", spec=spec))
    iterate(core, "0", 1, 10)
    assert observed(core, "0") == SECOND
    core.handle(JobExited(at_ns=11 * SECOND, job_id="0", attempt=1, code=1))
    assert observed(core, "0") is None
