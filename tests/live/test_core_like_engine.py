"""The live core decides as the engine does, to the nanosecond."""

from __future__ import annotations

import random

import pytest

from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.gpus import V100, GpuType
from headway.domain.job import Job
from headway.domain.records import MESSAGE
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.engine.timeline import Timeline
from headway.network.contention import NetworkModel
from live.driver import Driver, TieError

POLICIES = [
    "lwf:1+ada-srsf",
    "ff+srsf:1",
    "lwf:2+srsf:2",
    "least-delay+srtf+ada-dual",
    "ff+fifo+srsf:1",
    "ls+las+ada-dual",
    "rand+smallest+srsf:3",
    "consolidate+2d-las:0.004+k-way",
    "tiresias+gpu-intensity+ada-dual",
    "spread+srsf+interleave",
    "apart+srsf+ada-dual",
]
NETWORKS = [
    NetworkModel(),
    NetworkModel(a_ns=7_013, b_ns_per_byte=1.37, eta_ns_per_byte=0.53, servers=3),
    NetworkModel(contends=False),
    NetworkModel(sharing="max-min", servers=2),
]
ROUNDS = 6


def make_cluster(dice: random.Random) -> Cluster:
    """Return equal servers, or servers of unequal numbers of slots and memory."""
    if dice.random() < 0.5:
        return Cluster(
            servers=dice.randint(2, 5), gpus_per_server=dice.randint(1, 3), gpu_memory_bytes=10
        )
    groups = [
        ServerGroup(
            dice.randint(1, 2),
            dice.randint(1, 4),
            GpuType(V100.name, dice.choice([10, 11]), V100.performance, 10.0, 100.0),
        )
        for _ in range(3)
    ]
    return Cluster.of(groups)


def make_workload(dice: random.Random, gpus: int) -> Workload:
    """Return jobs that never share a GPU, in order of arrival, with times that hardly ever meet."""
    count = dice.randint(4, 14)
    arrivals = sorted(dice.randint(0, 30_000_000) for _ in range(count))
    return Workload(
        [
            Job(
                job_id=f"j{index}",
                arrival_ns=arrival_ns,
                gpus=dice.randint(1, min(6, gpus)),
                iterations=dice.randint(1, 7),
                forward_ns=dice.randint(1, 2_000_000),
                backward_ns=dice.randint(1, 3_000_000),
                gradient_bytes=dice.choice([0, dice.randint(1, 5_000_000)]),
                memory_bytes=dice.randint(6, 10),
            )
            for index, arrival_ns in enumerate(arrivals)
        ]
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_starts_finishes_and_messages_are_those_of_the_engine(policy: str) -> None:
    dice = random.Random(policy)
    compared = sent = 0
    while compared < ROUNDS:
        cluster = make_cluster(dice)
        workload = make_workload(dice, cluster.gpus)
        network, seed = dice.choice(NETWORKS), dice.randint(0, 5)
        bucket_bytes = dice.choice([None, None, 1_500_000])
        name = policy if bucket_bytes is None else f"{policy}@{bucket_bytes / 2**20}"
        driver = Driver(name, workload, cluster, network, seed, bucket_bytes)
        try:
            driver.run()
        except TieError:
            continue
        timeline = Timeline()
        result = simulate(
            workload,
            cluster,
            network=network,
            policy=name,
            seed=seed,
            acceleration="none",
            timeline=timeline,
        )
        tasks = timeline.tasks()
        for index, found in enumerate(driver.progress.values()):
            assert found.start_ns == result.start_ns[index]
            assert found.finish_ns == result.finish_ns[index]
            gpus = [driver.first_gpu[seat.node] + seat.slot for seat in found.seats]
            assert gpus == list(result.gpus[index])
            own = tasks[(tasks.kind == MESSAGE) & (tasks.job == index)]
            messages = list(zip(own.start_ns.tolist(), own.end_ns.tolist(), strict=True))
            assert found.messages == messages
            sent += len(messages)
        assert not driver.core.view.placed
        compared += 1
    assert sent > 50
