"""Measures what one uncontended all-reduce costs the live core: request, grant and end.

python benchmarks/live/core.py [JOBS]
"""

from __future__ import annotations

import statistics
import sys
import time

from headway.live.core.core import Core
from headway.live.core.events import (
    IterationDone,
    JobSpec,
    JobSubmitted,
    MessageDone,
    MessageReady,
    NodeUp,
)
from headway.network.contention import NetworkModel

POLICIES = ("ff+srsf:1", "lwf:1+ada-srsf", "least-delay+srtf+ada-dual", "ff+srsf+k-way")
ROUNDS = 20_000


def measure(policy: str, jobs: int, busy: bool) -> str:
    """Return a line of figures; if `busy`, every other job has a message in flight."""
    core = Core(policy, NetworkModel())
    for node in range(2 * jobs):
        core.handle(NodeUp(at_ns=0, node=f"n{node}", gpus=1, memory_bytes=2**30))
    spec = JobSpec(command=("train",), gpus=2, iterations=10**6, forward_ns=10**7)
    for job in range(jobs):
        core.handle(JobSubmitted(at_ns=0, job_id=str(job), spec=spec))
    for job in range(1, jobs if busy else 0):
        ask(core, str(job), 0, 0)
    name, times_ns, iteration_ns = "0", [], []
    for request in range(ROUNDS):
        at_ns = 1_000_000 * request
        started = time.perf_counter_ns()
        ask(core, name, request, at_ns)
        core.handle(MessageDone(at_ns=at_ns + 1, job_id=name, attempt=1, request=request))
        times_ns.append(time.perf_counter_ns() - started)
        started = time.perf_counter_ns()
        core.handle(IterationDone(at_ns=at_ns + 2, job_id=name, attempt=1, iterations=request + 1))
        iteration_ns.append(time.perf_counter_ns() - started)
    figures = sorted(times_ns)
    return (
        f"{policy:28} {jobs:4} jobs{', all sending' if busy else '':14} request and end: median "
        f"{statistics.median(figures) / 1e3:5.1f} us, p99 {figures[ROUNDS * 99 // 100] / 1e3:5.1f} "
        f"us; iteration: median {statistics.median(iteration_ns) / 1e3:5.1f} us"
    )


def ask(core: Core, job: str, request: int, at_ns: int) -> None:
    """Request a message, which must be granted."""
    instructions = core.handle(
        MessageReady(
            at_ns=at_ns,
            job_id=job,
            attempt=1,
            request=request,
            message_bytes=2**20,
            unsent_bytes=2**20,
        )
    )
    assert len(instructions) == 1


if __name__ == "__main__":
    for policy in POLICIES:
        for busy in (False, True):
            print(measure(policy, int(sys.argv[1]) if len(sys.argv) > 1 else 100, busy))
