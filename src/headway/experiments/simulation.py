"""Simulate, as users call it: workloads and policies may be given by name, file or function.

import headway
print(headway.simulate("jobs.csv", "16x4", placement=my_placement))
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError, shown
from headway.domain.moment import Moment
from headway.domain.workload import Workload
from headway.engine import run
from headway.engine.progress import Progress
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicyLike, PolicySet
from headway.results.schema import Result
from headway.results.timeline.sinks import TimelineSink
from headway.workload.sources import workload_from

if TYPE_CHECKING:
    from headway.engine.setup import Acceleration


def simulate(
    workload: Workload | str | os.PathLike[str],
    cluster: Cluster | str = "16x4",
    *,
    network: NetworkModel | str = "10gbe",
    policy: PolicySet | str = "paper",
    placement: PolicyLike | None = None,
    priority: PolicyLike | None = None,
    admission: PolicyLike | None = None,
    seed: int = 0,
    acceleration: Acceleration = "full",
    accuracy: float | str | None = None,
    threads: int | None = None,
    initial: Moment | None = None,
    timeline: TimelineSink | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Simulate a workload on a cluster; the same arguments give the same bits everywhere.

    Args:
        workload: The jobs: a workload, the path of a file, the name of a packaged workload
            (`muri-1`), or `paper` for one drawn as in the paper with this `seed`.
        cluster: A cluster, a shape such as `16x4` with 16 GB a GPU, or the path of a TOML file.
        network: The network between servers, its name, or the path of a TOML file.
        policy: A set of policies, or its text: `paper` (`lwf:1+ada-srsf`), `headway`, or such as
            `ff+srsf:1@25`, as `PolicySet.parse` reads it.
        placement: A placement in place of the policy's: its text, or a function.
        priority: A priority in place of the policy's, likewise.
        admission: An admission in place of the policy's, likewise.
        seed: For policies that draw random numbers (`rand`), and for the workload `paper`.
        acceleration: `full`, or less, to measure what it is worth: `solo` does not skip sets of
            jobs that repeat, `fused` not even jobs that no other can delay, and `none` has an event
            for every stage of every iteration. The results are the same.
        accuracy: None is exact. Otherwise sets of jobs that share GPUs or ports and do not repeat
            are sampled, and their progress is measured this accurately: 0.01 or `1%`. The error of
            the average JCT may be larger; the margins of the result say how large. Simulated
            exactly all the same: fewer than 20 million compute tasks, which do not take long, and
            policies that do not promise to be steady and timeless.
        threads: Threads for a sampled simulation; by default as many as there are cores.
        initial: A moment of a run of this workload on this cluster, to go on from. The result is
            that of the whole run; only what follows counts as simulated.
        timeline: Receives every task with its start, end and GPU. With it every task is simulated.
        progress: Called now and then during a long run; from several threads, one at a time, if
            it is sampled.

    Raises:
        InputError: An argument is not what it must be, or a job can never run.
        PolicyError: A policy does not compile, or leaves jobs waiting for ever.
    """
    chosen = PolicySet.parse(policy) if isinstance(policy, str) else policy
    if not isinstance(chosen, PolicySet):
        raise InputError(f"must be a text or a PolicySet, not {shown(policy)}.", field="policy")
    return run.simulate(
        workload_from(workload, seed=seed),
        cluster,
        network=network,
        policy=chosen.override(placement, priority=priority, admission=admission),
        seed=seed,
        acceleration=acceleration,
        accuracy=accuracy,
        threads=threads,
        initial=initial,
        timeline=timeline,
        progress=progress,
    )
