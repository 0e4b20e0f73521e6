"""The benchmark's jobs, the policies it compares, and their simulation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.models import MEBIBYTE
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.network.contention import NetworkModel

HOSTS = 4
JOBS = 10
MEMORY_BYTES = 2**30
"""Per job: all jobs together fit on one GPU."""

POLICIES = {
    "free-for-all": f"lwf:1+srsf:{2 * JOBS}",
    "SRSF(1)": "lwf:1+srsf:1",
    "Ada-SRSF": "lwf:1+ada-srsf",
    "headway": "headway",
}
"""Free-for-all admits every message immediately."""

_NS_PER_BYTE = {2: 43, 3: 57, 4: 64}
"""Approximate cost of a byte by number of hosts at 200 Mbit/s; only used to draw job sizes."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A job of the benchmark."""

    gpus: int
    gradient_bytes: int
    forward_ms: int
    backward_ms: int
    iterations: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Times and gradient size of a job, measured when it ran alone."""

    forward_ns: int
    backward_ns: int
    gradient_bytes: int


@dataclass(frozen=True, slots=True)
class Exported:
    """The graph of a job's iteration, as exported from a run."""

    forward_ns: int
    backward_ns: int
    gradient_bytes: int
    optimizer_ns: int


def draw(seed: int) -> list[Drawn]:
    """Draw jobs on two to four hosts, with gradients of 2 to 24 MB, that take 5 to 25 s alone."""
    rng, jobs = random.Random(seed), []
    for _ in range(JOBS):
        gpus = rng.choice((2, 2, 3, 4))
        gradient_bytes = rng.choice((2, 4, 6, 8, 12, 16, 24)) * MEBIBYTE
        sending_ms = _NS_PER_BYTE[gpus] * gradient_bytes / 1e6
        computing_ms = round(sending_ms * rng.choice((0.2, 0.4, 0.6))) + 20
        alone_ms = 1000 * rng.choice((5, 7, 10, 15, 20, 25))
        jobs.append(
            Drawn(
                gpus,
                gradient_bytes,
                computing_ms // 3,
                computing_ms - computing_ms // 3,
                max(5, round(alone_ms / (sending_ms + computing_ms))),
            )
        )
    return jobs


def simulated_jct_s(
    jobs: Sequence[Drawn],
    measured: Sequence[Profile | Graph],
    network: NetworkModel,
    policy: str,
) -> list[float]:
    """Simulate measured jobs, all submitted at the start; return each job's completion time.

    They arrive a nanosecond apart, because the live scheduler too places each when it is submitted.
    """
    workload = Workload(
        [
            Job(
                job_id=str(number),
                arrival_ns=number,
                gpus=job.gpus,
                iterations=job.iterations,
                memory_bytes=MEMORY_BYTES,
                **({"graph": one} if isinstance(one, Graph) else asdict(one)),
            )
            for number, (job, one) in enumerate(zip(jobs, measured, strict=True))
        ]
    )
    result = simulate(workload, f"{HOSTS}x1", network=network, policy=policy)
    return [float(jct) for jct in result.jct_s]
