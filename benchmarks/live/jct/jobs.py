"""The jobs of the benchmark, the policies that it compares, and what the simulator says of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from headway.domain.job import Job
from headway.domain.models import MEBIBYTE
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.network.contention import NetworkModel

HOSTS = 4
JOBS = 10
MEMORY_BYTES = 2**30
"""Of every job: all of them fit on one GPU."""

POLICIES = {
    "free-for-all": f"lwf:1+srsf:{2 * JOBS}",
    "SRSF(1)": "lwf:1+srsf:1",
    "Ada-SRSF": "lwf:1+ada-srsf",
    "headway": "headway",
}
"""Free-for-all never lets a message wait."""

_NS_PER_BYTE = {2: 43, 3: 57, 4: 64}
"""About what a byte costs among so many hosts at 200 Mbit/s; only sizes the draw."""


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
    """What a job was measured to need when it was alone."""

    forward_ns: int
    backward_ns: int
    gradient_bytes: int


def draw(seed: int) -> list[Drawn]:
    """Draw jobs of two to four hosts, gradients of 2 to 24 MB, and 5 to 25 s alone."""
    lots, jobs = random.Random(seed), []
    for _ in range(JOBS):
        gpus = lots.choice((2, 2, 3, 4))
        gradient_bytes = lots.choice((2, 4, 6, 8, 12, 16, 24)) * MEBIBYTE
        sending_ms = _NS_PER_BYTE[gpus] * gradient_bytes / 1e6
        computing_ms = round(sending_ms * lots.choice((0.2, 0.4, 0.6))) + 20
        alone_ms = 1000 * lots.choice((5, 7, 10, 15, 20, 25))
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
    jobs: Sequence[Drawn], profiles: Sequence[Profile], network: NetworkModel, policy: str
) -> list[float]:
    """Simulate the jobs as they were profiled, all there at once; return when each has trained.

    They arrive a nanosecond apart: live, too, each is placed when it is submitted.
    """
    workload = Workload(
        [
            Job(
                job_id=str(number),
                arrival_ns=number,
                gpus=job.gpus,
                iterations=job.iterations,
                forward_ns=profile.forward_ns,
                backward_ns=profile.backward_ns,
                gradient_bytes=profile.gradient_bytes,
                memory_bytes=MEMORY_BYTES,
            )
            for number, (job, profile) in enumerate(zip(jobs, profiles, strict=True))
        ]
    )
    result = simulate(workload, f"{HOSTS}x1", network=network, policy=policy)
    return [float(jct) for jct in result.jct_s]
