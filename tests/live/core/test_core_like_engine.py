"""The live core decides as the engine does, to the nanosecond."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.gpus import V100, GpuType
from headway.domain.job import Job
from headway.domain.records import COMMUNICATION
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.network.contention import NetworkModel
from headway.results.timeline.sinks import Timeline
from live.core.driver import Driver, Progress, TieError

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
    NetworkModel(a_ns=7_013, b_ns_per_byte=1.37, eta_ns_per_byte=0.53, ring_size=3),
    NetworkModel(law="no-contention"),
    NetworkModel(law="max-min", ring_size=2),
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


def make_workload(dice: random.Random, gpus: int, least_memory: int = 6) -> Workload:
    """Return jobs in order of arrival, with times that hardly ever meet.

    They never share a GPU unless they need less memory than 6.
    """
    count = dice.randint(4, 14)
    arrivals = sorted(dice.randint(0, 30_000_000) for _ in range(count))
    others = random.Random(str(arrivals))
    priorities = others.choice([[0], [0, 1], [-1, 0, 0, 2, 3]])
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
                memory_bytes=dice.randint(least_memory, least_memory + 4),
                priority=others.choice(priorities),
            )
            for index, arrival_ns in enumerate(arrivals)
        ]
    )


class Run:
    """A random cluster and workload, and what the core and the engine make of it."""

    def __init__(self, policy: str, dice: random.Random, turns: bool) -> None:
        cluster = make_cluster(dice)
        self.workload = make_workload(dice, cluster.gpus, least_memory=2 if turns else 6)
        network, seed = dice.choice(NETWORKS), dice.randint(0, 5)
        bucket_bytes = dice.choice([None, None, 1_500_000])
        name = policy if bucket_bytes is None else f"{policy}@{bucket_bytes / 2**20}"
        self.driver = Driver(name, self.workload, cluster, network, seed, bucket_bytes, turns)
        self.driver.run()
        timeline = Timeline()
        self.result = simulate(
            self.workload,
            cluster,
            network=network,
            policy=name,
            seed=seed,
            acceleration="none",
            timeline=timeline,
        )
        self.tasks = timeline.tasks()

    def gpus(self, found: Progress) -> list[int]:
        """Return the numbers of a job's GPUs."""
        return [self.driver.first_gpu[slot.node] + slot.index for slot in found.slots]

    def spans(self, chosen: Any) -> list[tuple[int, int]]:
        """Return when some of the engine's tasks started and ended."""
        own = self.tasks[chosen]
        return list(zip(own.start_ns.tolist(), own.end_ns.tolist(), strict=True))

    def compare(self) -> int:
        """Check that the core decided as the engine; return how many messages there were."""
        sent = 0
        for index, found in enumerate(self.driver.progress.values()):
            assert found.start_ns == self.result.start_ns[index]
            assert found.finish_ns == self.result.finish_ns[index]
            assert self.gpus(found) == list(self.result.gpus[index])
            messages = self.spans((self.tasks.kind == COMMUNICATION) & (self.tasks.job == index))
            assert found.messages == messages
            sent += len(messages)
        assert not self.driver.core.state.arrays.placed
        return sent

    def compare_tasks(self) -> int:
        """Check every forward and backward pass; return how often one waited for another job."""
        waited = 0
        for index, found in enumerate(self.driver.progress.values()):
            for rank, gpu in enumerate(self.gpus(found)):
                own = (self.tasks.job == index) & (self.tasks.gpu == gpu)
                assert found.tasks[rank] == self.spans(own & (self.tasks.kind != COMMUNICATION))
                passes = found.tasks[rank]
                waited += sum(
                    backward > forward_end
                    for (_, forward_end), (backward, _) in zip(
                        passes[::2], passes[1::2], strict=True
                    )
                )
        return waited


def runs(policy: str, turns: bool) -> Iterator[Run]:
    """Make runs in which no two jobs do something at one instant."""
    dice = random.Random(policy)
    made = 0
    while made < ROUNDS:
        try:
            run = Run(policy, dice, turns)
        except TieError:
            continue
        made += 1
        yield run


@pytest.mark.parametrize("policy", POLICIES)
def test_starts_finishes_and_messages_are_those_of_the_engine(policy: str) -> None:
    assert sum(run.compare() for run in runs(policy, turns=False)) > 50


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_on_shared_gpus_every_pass_starts_and_ends_as_in_the_engine(policy: str) -> None:
    waited = 0
    for run in runs(policy, turns=True):
        run.compare()
        waited += run.compare_tasks()
    assert waited > 10
