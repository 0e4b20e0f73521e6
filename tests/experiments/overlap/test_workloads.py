"""The paper's jobs with other iterations compute and send the same, and obey the bounds."""

from __future__ import annotations

import pytest

from headway import generate_workload, simulate
from headway.domain.job import Job
from headway.domain.models import MODELS
from headway.domain.workload import Workload
from headway.experiments.overlap.bounds import iteration_alone
from headway.experiments.overlap.cases import UNAWARE
from headway.experiments.overlap.workloads import (
    BUCKETS,
    CUT,
    NO_COMPUTING,
    NO_MESSAGES,
    ONE_BUCKET,
    OVERLAPPED,
    changes,
)
from headway.network.contention import NETWORKS

NETWORK = NETWORKS["10gbe"]
CHANGES = changes()
PLAIN = generate_workload("paper", seed=3, jobs=24, iterations=(5, 30), span_s=8)


def jobs_of(name: str) -> list[tuple[Job, Job]]:
    """Return the plain jobs of several GPUs, each with the changed one."""
    pairs = zip(PLAIN, CHANGES[name](PLAIN), strict=True)
    return [(plain, changed) for plain, changed in pairs if plain.gpus > 1]


@pytest.mark.parametrize("name", [*sorted(set(BUCKETS.values()) & set(CHANGES)), CUT])
def test_a_changed_job_computes_and_sends_the_same_in_all(name: str) -> None:
    for plain, changed in jobs_of(name):
        assert changed.graph is not None
        tasks = changed.graph.tasks
        assert tasks[0].duration_ns == plain.forward_ns
        assert sum(task.duration_ns for task in tasks[1:]) == plain.backward_ns
        sent = sum(message.buffer_bytes for message in changed.graph.messages)
        assert sent == plain.gradient_bytes
        for field in ("job_id", "model", "arrival_ns", "gpus", "iterations", "memory_bytes"):
            assert getattr(changed, field) == getattr(plain, field)


@pytest.mark.parametrize("name", sorted(set(CHANGES) - {NO_COMPUTING}))
def test_a_job_of_one_gpu_stays_as_it_is(name: str) -> None:
    single = [job for job in PLAIN if job.gpus == 1]
    assert [job for job in CHANGES[name](PLAIN) if job.gpus == 1] == single


def test_a_part_can_be_left_out() -> None:
    for plain, changed in jobs_of(NO_MESSAGES):
        assert changed.message_count == 0
        assert changed.compute_ns == plain.compute_ns
    for plain, changed in jobs_of(NO_COMPUTING):
        assert changed.compute_ns == 2
        assert changed.gradient_bytes == plain.gradient_bytes


def test_a_cut_job_has_the_tasks_of_the_overlapped_one_and_sends_after_the_last() -> None:
    cut = CHANGES[CUT](PLAIN)
    for job, overlapped in zip(cut, CHANGES[OVERLAPPED](PLAIN), strict=True):
        if job.graph is not None and overlapped.graph is not None:
            assert job.graph.tasks == overlapped.graph.tasks
            (message,) = job.graph.messages
            assert message.after == (job.graph.tasks[-1].name,)


@pytest.mark.parametrize("policies", UNAWARE)
def test_one_bucket_after_the_backward_pass_is_the_papers_chain(policies: str) -> None:
    policy = UNAWARE[policies].policy
    one, two = (
        simulate(workload, "4x4", policy=policy, seed=3)
        for workload in (_on_sixteen(PLAIN), CHANGES[ONE_BUCKET](_on_sixteen(PLAIN)))
    )
    assert one.start_ns.tolist() == two.start_ns.tolist()
    assert one.finish_ns.tolist() == two.finish_ns.tolist()
    assert one.gpus == two.gpus
    overlapped = simulate(CHANGES[OVERLAPPED](_on_sixteen(PLAIN)), "4x4", policy=policy, seed=3)
    assert overlapped.finish_ns.tolist() != one.finish_ns.tolist()


def _on_sixteen(workload: Workload) -> Workload:
    return Workload([job for job in workload if job.gpus <= 16])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", sorted(set(BUCKETS.values()) & set(CHANGES)))
def test_an_iteration_alone_is_within_its_bounds(model: str, name: str) -> None:
    one = iteration_alone(model, NETWORK, CHANGES[name])
    latencies_ns = (one.messages - 1) * (NETWORK.a_ns + 1)
    assert one.least_ns <= one.length_ns <= one.plain_ns + latencies_ns
    assert (one.length_ns == one.plain_ns) == (name == ONE_BUCKET)
