"""Least delay puts a job where it is delayed, and delays others, least."""

from __future__ import annotations

import pytest

from builders import MB, make_job, make_workload
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.gpus import GpuType
from headway.domain.job import Job
from headway.engine.run import simulate
from headway.results.schema import Result

SECOND = 10**9


def run(*jobs: Job, cluster: str | Cluster = "4x2") -> Result:
    return simulate(make_workload(*jobs), cluster, policy="headway")


def servers(result: Result, job: int) -> set[int]:
    return set(result.settings.cluster.servers_of(result.gpus[job]))


def test_a_job_that_fits_a_server_gets_one() -> None:
    result = run(make_job(gpus=1, iterations=9), make_job(gpus=2), make_job(gpus=2))
    assert [len(servers(result, job)) for job in range(3)] == [1, 1, 1]
    assert not set(result.gpus[1]) & set(result.gpus[2])


@pytest.mark.parametrize("gpus", [3, 4, 5, 7, 8, 9])
def test_a_larger_job_gets_a_block_of_servers(gpus: int) -> None:
    """On five servers of two GPUs; the last block may overlap the one before it."""
    result = run(*[make_job(gpus=gpus, iterations=5) for _ in range(4)], cluster="5x2")
    size = -(-gpus // 2)
    blocks = [set(range(s, s + size)) for s in {*range(0, 6 - size, size), 5 - size}]
    assert all(servers(result, job) in blocks for job in range(4))


def test_jobs_that_send_go_to_different_blocks() -> None:
    result = run(*[make_job(gpus=4, iterations=5) for _ in range(2)])
    assert not servers(result, 0) & servers(result, 1)


def test_a_job_had_rather_wait_a_little_than_delay_another_a_lot() -> None:
    """Behind 15 ms of a short job it waits 15 ms; before a long one it would cost that 30 ms."""
    short, long = make_job(iterations=5), make_job(iterations=500)
    new = make_job(iterations=10, arrival_ns=1)
    result = simulate(make_workload(short, long, new), "2x1", policy="headway")
    assert result.gpus[2] == result.gpus[0]


def test_a_gang_that_already_waits_on_one_gpu_is_where_small_jobs_go() -> None:
    """A second small job on another GPU of the same wide job delays that job no further."""
    wide = [make_job(gpus=2, iterations=400) for _ in range(2)]
    small = [make_job(gpus=1, iterations=50, arrival_ns=1) for _ in range(2)]
    result = simulate(make_workload(*wide, *small), "2x2", policy="headway")
    assert servers(result, 2) == servers(result, 3)
    assert result.gpus[2] != result.gpus[3]


def test_a_job_that_must_send_waits_rather_than_queue_behind_more_than_itself() -> None:
    long = [make_job(gpus=4, iterations=100) for _ in range(2)]
    longer = make_job(gpus=4, iterations=150)
    result = simulate(make_workload(*long, longer), "2x2", policy="headway")
    assert result.start_ns.tolist()[0] == 0
    assert result.start_ns[2] > 0
    short = make_job(gpus=4, iterations=10)
    result = simulate(make_workload(*long, short), "2x2", policy="headway")
    assert result.start_ns[2] == 0


def test_every_job_finishes_even_when_all_are_as_large_as_the_cluster() -> None:
    jobs = [make_job(gpus=6, iterations=3, gradient_bytes=900 * MB) for _ in range(5)]
    result = run(*jobs, cluster="3x2")
    assert (result.finish_ns > 0).all()


def test_a_block_is_as_small_as_the_largest_servers_allow() -> None:
    """Four GPUs are on one server, if it is one of the large ones; six are on two of these."""
    cluster = Cluster.of([ServerGroup(2, 1), ServerGroup(2, 4)])
    result = run(*[make_job(gpus=4)] * 2, make_job(gpus=6), cluster=cluster)
    assert {*map(frozenset, (servers(result, 0), servers(result, 1)))} == {
        frozenset({2}),
        frozenset({3}),
    }
    assert servers(result, 2) == {2, 3}


def test_only_gpus_with_enough_memory_make_a_block() -> None:
    """Also while others hold their memory: then a job that fits a server waits for one."""
    small, large = (
        GpuType(name, gb * 1024 * MB, 15.7, 40, 300) for name, gb in (("s", 8), ("l", 32))
    )
    cluster = Cluster.of([ServerGroup(1, 4, small), ServerGroup(3, 2, large)])
    whole = [make_job(gpus=1, memory_bytes=large.memory_bytes, iterations=9) for _ in range(3)]
    result = run(
        *whole,
        make_job(gpus=2, memory_bytes=20 * 1024 * MB, arrival_ns=1),
        make_job(gpus=3, memory_bytes=20 * 1024 * MB, arrival_ns=2),
        cluster=cluster,
    )
    assert len(servers(result, 3)) == 1
    assert len(servers(result, 4)) == 2
    assert not (servers(result, 3) | servers(result, 4)) & {0}
