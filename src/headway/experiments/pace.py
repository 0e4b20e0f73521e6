"""How much slower or faster than simulated a live cluster's jobs have been lately.

What the simulator does not know makes their iterations longer: waiting for a processor, loading
data, messages within a node; or shorter: jobs that share a GPU without taking turns. It all shows
in how many iterations a job does in a while, beside the same others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headway.domain.cluster import Cluster
from headway.domain.job import Job
from headway.domain.limits import HORIZON_NS
from headway.domain.moment import Moment, StartedJob
from headway.domain.workload import Workload
from headway.engine.run import iterations_after
from headway.network.contention import NetworkModel

ITERATIONS = 50
"""Iterations of the slowest job that are simulated, unless others would do too many then."""
MAX_ITERATIONS = 5_000
"""Iterations of the fastest job, at most."""
ROUNDS, FULL_ROUNDS = 8, 3
"""Simulations, at most: jobs that share GPUs or links change each other's times.

After each of the first ones all of what is missing is corrected, later only half.
"""
MAX_SPEEDUP = 1.5
"""How much faster one makes a job, at most: one that waits for another is not slow itself."""
TOLERANCE = 0.02
"""Jobs this close to their observed times are not corrected further."""
MAX_FACTOR = 100.0
"""How much slower or faster than simulated a job is taken to be, at most."""


def pace_factors(
    running: Sequence[StartedJob],
    job: Callable[[int, float], Job],
    observed_ns: Mapping[int, int],
    cluster: Cluster,
    network: NetworkModel,
    policy: str,
) -> dict[int, float]:
    """Return by how much to multiply the times of jobs so that they take what was observed.

    Args:
        running: The jobs that do iterations, whether or not these have been observed.
        job: Returns the job with an index, all its times multiplied by a factor.
        observed_ns: The observed time of an iteration, by the index of a job.
        cluster: The nodes.
        network: The network between them.
        policy: The policy.

    Raises:
        InputError: The policy is unknown.
        PolicyError: The policy does not compile or leaves jobs waiting for ever.
    """
    if not observed_ns:
        return {}
    # No iteration is shorter than its computing.
    factors = {
        index: _bounded(min(1.0, one_ns / job(index, 1.0).compute_ns))
        for index, one_ns in observed_ns.items()
    }
    least_ns = min(
        ITERATIONS * max(observed_ns.values()), MAX_ITERATIONS * min(observed_ns.values())
    )
    moment = Moment(
        0, tuple(_at_beginning(one, place) for place, one in enumerate(running)), settled=False
    )
    best, least_off = factors, math.inf
    for number in range(ROUNDS):
        jobs = [job(one.job, factors.get(one.job, 1.0)) for one in running]
        passed_ns, done = iterations_after(
            Workload(_lengthened(jobs, running, observed_ns, least_ns)),
            cluster,
            network=network,
            policy=policy,
            initial=moment,
            least_ns=least_ns,
        )
        # On average the last iteration is half done.
        ratios = {
            one.job: wanted_ns * (iterations - one.iterations_done + 0.5) / passed_ns
            for one, iterations in zip(running, done, strict=True)
            if (wanted_ns := observed_ns.get(one.job)) is not None
        }
        off = max(abs(math.log(ratio)) for ratio in ratios.values())
        if off < least_off:
            best, least_off = factors, off
        if off <= TOLERANCE:
            break
        # A policy may change its mind at some factor: steps that become smaller come close to it.
        power = 1.0 if number < FULL_ROUNDS else 0.5
        factors = {
            index: _bounded(factors[index] * max(1 / MAX_SPEEDUP, ratio) ** power)
            for index, ratio in ratios.items()
        }
    return best


def _bounded(factor: float) -> float:
    return min(MAX_FACTOR, max(1 / MAX_FACTOR, factor))


def _lengthened(
    jobs: Sequence[Job],
    running: Sequence[StartedJob],
    observed_ns: Mapping[int, int],
    least_ns: int,
) -> list[Job]:
    """Return jobs with so many more iterations that none ends within a time.

    All have the same multiple of what they have left, so that they stay in the same order.
    """
    left = [
        one.iterations - started.iterations_done for one, started in zip(jobs, running, strict=True)
    ]
    multiple = 1
    for count, started in zip(left, running, strict=True):
        if (iteration_ns := observed_ns.get(started.job)) is not None:
            # It may be much faster in the simulation.
            multiple = max(multiple, math.ceil(4 * least_ns / iteration_ns / count))
    return [
        replace(
            one,
            arrival_ns=0,
            iterations=min(
                started.iterations_done + multiple * count, HORIZON_NS // 2 // one.compute_ns
            ),
        )
        for one, started, count in zip(jobs, running, left, strict=True)
    ]


def _at_beginning(started: StartedJob, place: int) -> StartedJob:
    """Return a job, by its place among others, at the beginning of its iteration."""
    ranks = len(started.gpus)
    return StartedJob(
        job=place,
        gpus=started.gpus,
        start_ns=0,
        iterations_done=started.iterations_done,
        tasks_done=(0,) * ranks,
        task_start_ns=(None,) * ranks,
    )
