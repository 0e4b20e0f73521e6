"""Real DDP jobs whose ranks hang: nobody waits for them for long, and they are retried."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from live.daemon.test_daemon_gated import assert_replays
from live.scheduler_process import SchedulerProcess, python, running_scheduler
from waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.torch]

NODES = '[executor]\nkind = "local"\nnodes = 2\nslots = 1\nmemory_mb = 1024\n'
"""Each job has a rank on each node, and shares both slots."""

TRAINS = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import headway.torch
torch.set_num_threads(1)
dist.init_process_group("gloo")
print(os.getpid(), flush=True)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
headway.torch.attach(model, compute={compute})
while True:
    model(torch.randn(8, 64)).sum().backward()
"""


def train(one: SchedulerProcess, compute: bool) -> str:
    """Submit a job that trains until it is cancelled."""
    return one.submit(
        python(TRAINS.format(compute=compute)),
        gpus=2,
        memory_bytes=2**20,
        retries=1,
        environment={"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def iterations(one: SchedulerProcess, job: str) -> int:
    return int(one.client.job(job)["iterations"])


def goes_on(one: SchedulerProcess, job: str, count: int = 5) -> None:
    """Wait until a job has done more iterations."""
    before = iterations(one, job)
    eventually(lambda: iterations(one, job) >= before + count)


def process_of(one: SchedulerProcess, job: str, rank: int) -> int:
    """Return the process of a rank of a job's first attempt, which prints its id first."""
    output = one.folder / "attempts" / f"{job}.1" / f"rank-{rank}.log"
    return int(eventually(lambda: output.read_text().split())[0])


@pytest.mark.parametrize(("rank", "compute"), [(0, True), (1, False)])
def test_a_stopped_rank_holds_up_no_other_job_and_its_own_job_is_retried(
    tmp_path: Path, rank: int, compute: bool
) -> None:
    # Far longer than ranks of a slow machine wait for each other.
    settings = "lease_s = 5\nend_stuck_after_s = 5\n" + NODES
    with running_scheduler(tmp_path / "state", settings) as one:
        jobs = [train(one, compute) for _ in range(2)]
        for job in jobs:
            goes_on(one, job)
        os.kill(process_of(one, jobs[0], rank), signal.SIGSTOP)
        found = eventually(lambda: (view := one.client.job(jobs[0]))["stuck"] and view)
        assert found["state"] == "running"
        assert found["why"].startswith(f"stuck on node1, node2: {found['stuck']}; no other job")
        goes_on(one, jobs[1])
        # After a while it is ended and started again.
        eventually(lambda: one.client.job(jobs[0])["attempts"] == 2)
        assert one.client.job(jobs[0])["reason"].startswith("stuck for too long: ")
        goes_on(one, jobs[0])
        goes_on(one, jobs[1])
        warnings = [line["event"] for line in one.log_entries() if line["level"] == "warning"]
        assert warnings == ["job is stuck"]


def test_a_job_that_goes_on_is_no_longer_stuck_and_the_run_can_be_replayed(
    tmp_path: Path,
) -> None:
    with running_scheduler(tmp_path / "state", "lease_s = 1\n" + NODES) as one:
        job = train(one, False)
        goes_on(one, job)
        rank = process_of(one, job, 1)
        os.kill(rank, signal.SIGSTOP)
        eventually(lambda: one.client.job(job)["stuck"])
        os.kill(rank, signal.SIGCONT)
        eventually(lambda: not one.client.job(job)["stuck"])
        goes_on(one, job)
        assert one.client.job(job)["attempts"] == 1
        one.client.cancel(job)
        one.wait_for(job, "cancelled")
        one.stop()
        assert_replays(one)
