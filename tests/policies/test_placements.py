"""Placements decide which GPUs a job gets, and whether it waits."""

from __future__ import annotations

from typing import Any

import pytest

from builders import MB, built_in, make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.job import Job
from headway.engine.run import simulate
from headway.policies.registry import choose
from headway.results.schema import Result
from headway.workload.generate import Recipe, generate_workload

WHOLE = 16 * 1024 * MB
"""The memory of a GPU: a job that needs it has its GPUs for itself."""


def place(placement: str, cluster: str, *jobs: Job) -> Result:
    """Run jobs that all arrive at once; the order among them is that of the list."""
    return simulate(make_workload(*jobs), cluster, policy=f"{placement}+fifo+srsf:1")


def alone(gpus: int, **changes: Any) -> Job:
    """Return a job that shares none of its GPUs."""
    return make_job(gpus=gpus, memory_bytes=WHOLE, **changes)


def servers(result: Result, job: int) -> set[int]:
    return set(result.settings.cluster.servers_of(result.gpus[job]))


def test_consolidate_takes_the_server_that_fits_best() -> None:
    result = place("consolidate", "3x4", alone(1), alone(4), alone(2), alone(1))
    # One GPU is left in server 0 after the third job, and the last job takes just that.
    assert result.gpus == ((0,), (4, 5, 6, 7), (1, 2), (3,))


def test_consolidate_takes_as_few_servers_as_can_be() -> None:
    result = place("consolidate", "3x4", alone(1), alone(6), alone(3))
    # Three and four GPUs are left: the job of six takes the four and two of the three.
    assert result.gpus[1] == (1, 2, 4, 5, 6, 7)
    assert servers(result, 2) == {2}


def test_consolidate_ends_with_the_tightest_server() -> None:
    result = place("consolidate", "4x4", alone(2), alone(3), alone(6))
    # Servers 0 and 1 are left with two and one; four of server 2, and then the two of server 0.
    assert result.gpus[2] == (2, 3, 8, 9, 10, 11)


def test_consolidate_does_not_wait_for_a_better_place() -> None:
    short, long = alone(1), alone(1, iterations=99)
    late = alone(2, arrival_ns=4_000_000)
    result = place("consolidate", "2x2", short, long, short, long, late)
    # The short jobs have left a free GPU in each server.
    assert result.gpus == ((0,), (1,), (2,), (3,), (0, 2))
    assert result.start_ns[4] == 4_000_000


def test_consolidate_prefers_idle_gpus_within_a_server() -> None:
    result = place("consolidate", "2x2", make_job(iterations=5), make_job(), make_job())
    # All GPUs have room for all: the server is 0 each time, the GPU the one with the least load.
    assert result.gpus == ((0,), (1,), (1,))


@pytest.mark.parametrize(("gradient_mb", "spread_over"), [(10, 1), (1, 2)])
def test_tiresias_consolidates_what_sends_longer_than_it_computes(
    gradient_mb: int, spread_over: int
) -> None:
    """3 ms of computing; 10 MB take 9.6 ms on the network and 1 MB takes 1.6 ms."""
    whole, shared = alone(1), make_job(gpus=1)
    result = place(
        "tiresias", "2x3", whole, shared, make_job(gpus=2, gradient_bytes=gradient_mb * MB)
    )
    # GPU 0 is taken and GPU 1 has work; GPU 2 of the same server and all of the other are idle.
    assert len(servers(result, 2)) == spread_over


def test_apart_keeps_jobs_that_communicate_on_different_servers() -> None:
    result = place("apart", "4x2", make_job(gpus=3), make_job(gpus=3))
    assert (servers(result, 0), servers(result, 1)) == ({0, 1}, {2, 3})
    assert result.start_ns.tolist() == [0, 0]


def test_apart_lets_a_job_wait_that_would_meet_another_on_the_network() -> None:
    first, second = make_job(gpus=3), make_job(gpus=3)
    result = place("apart", "3x2", first, second)
    # There is memory for both, but only one server without a job that communicates.
    assert result.start_ns[1] == result.finish_ns[0]
    assert place("ff", "3x2", first, second).start_ns[1] == 0


def test_apart_puts_a_job_of_one_server_beside_one_that_communicates() -> None:
    result = place("apart", "2x2", make_job(gpus=4), make_job(gpus=2), make_job(gpus=1))
    assert result.start_ns.tolist() == [0, 0, 0]
    assert servers(result, 1) == {0}


def test_apart_places_the_largest_job_on_an_empty_cluster() -> None:
    result = place("apart", "3x2", *[make_job(gpus=6, iterations=2)] * 4)
    assert (result.start_ns[1:] == result.finish_ns[:-1]).all()


def test_apart_does_not_hold_back_jobs_behind_one_that_waits() -> None:
    jobs = make_job(gpus=4, iterations=9), make_job(gpus=4), make_job(gpus=2)
    result = place("apart", "3x2", *jobs)
    assert result.start_ns[1] == result.finish_ns[0]
    assert result.start_ns[2] == 0


STEADY = [text for text in built_in("placement") if choose("placement", text).policy.steady]


@pytest.mark.parametrize("placement", STEADY)
def test_steady_placements_keep_their_promise(placement: str) -> None:
    recipe = Recipe(60, 20, {1: 2, 2: 1, 3: 1, 8: 1}, (3, 9), ["vgg16", "resnet50"])
    workload = generate_workload(recipe, seed=5)
    cluster = Cluster(4, 2, gpu_memory_bytes=8 * 1024 * MB)
    policy = choose("placement", placement).policy
    assert policy.steady
    usual = simulate(workload, cluster, policy=f"{placement}+ada-srsf")
    object.__setattr__(policy, "steady", False)
    try:
        restless = simulate(workload, cluster, policy=f"{placement}+ada-srsf")
    finally:
        object.__setattr__(policy, "steady", True)
    assert restless.gpus == usual.gpus
    assert restless.finish_ns.tolist() == usual.finish_ns.tolist()
