"""A real scheduler on a real Slurm of four nodes on this machine."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live.executors.helpers import processes_with
from live.scheduler_process import SchedulerProcess
from live.slurm_cluster import SlurmOnThisMachine
from live.slurm_jobs import (
    UNTIL_TOLD,
    settings,
    starts,
    submit,
    wait_until_started,
    words,
)
from waiting import eventually

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

FAILS_ONCE = """
import os, sys, time
open(sys.argv[1] + ".starts", "a").write("x")
if os.environ["HEADWAY_ATTEMPT"] == "1":
    # Not before all have started.
    while os.environ["RANK"] != "2" or len(open(sys.argv[1] + ".starts").read()) < 3:
        time.sleep(0.02)
    sys.exit("no luck")
"""
ASKS = """
import os, sys, time
from headway.gate.environment import WorkerEnvironment
from headway.worker.client import GateClient
if os.environ["RANK"] != "0":
    sys.exit()
gate = GateClient(WorkerEnvironment.from_variables(os.environ))
gate.wait_for_first_try(60)
for _ in range(10):
    request = gate.message_ready(25 * 2**20, 25 * 2**20)
    granted = gate.wait_for_grant(request)
    began = time.monotonic_ns()
    time.sleep(0.01)
    # In one piece: a warning of another thread may come between pieces.
    sys.stdout.write(f"{int(granted)} {began} {time.monotonic_ns()}\\n")
    gate.message_done(request)
"""


@pytest.fixture(scope="module")
def scheduler(
    slurm: SlurmOnThisMachine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SchedulerProcess]:
    folder = tmp_path_factory.mktemp("served")
    one = SchedulerProcess(folder / "state", settings("nodes = 4\n"))
    eventually(lambda: len(one.client.nodes()) == 4)
    yield one
    one.finish()
    # Nothing is left behind: no allocation, no step, no process.
    eventually(lambda: slurm.jobs() == [])
    eventually(lambda: slurm.processes() == [])


def attempt_end(one: SchedulerProcess, job: str) -> dict[str, Any]:
    """Return how the first attempt at a job ended."""
    [found] = one.wait_for_entries(1, event="attempt ended", job=job, attempt=1)
    return found


def test_ranks_run_on_the_nodes_and_gpus_that_the_policy_chose(
    slurm: SlurmOnThisMachine, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    go, other = tmp_path / "go", tmp_path / "other"
    first = submit(scheduler, UNTIL_TOLD, other, gpus=1)
    job = submit(scheduler, UNTIL_TOLD, go, gpus=4)
    found = wait_until_started(scheduler, job, go, 4)
    slots = [(slot["node"], slot["index"]) for slot in found["slots"]]
    assert slots[0] == ("node1", 1)  # Slot 0 is taken: Slurm must not hand it out twice.
    go.touch()
    other.touch()
    for one in (first, job):
        found = scheduler.wait_for(one, "done", "failed")
        assert (found["state"], found["attempts"]) == ("done", 1)
    assert starts(go) == 4
    for rank, (node, _) in enumerate(slots):
        devices = ",".join(str(index) for name, index in slots if name == node)
        before = [name for name, _ in slots[:rank]].count(node)
        assert words(scheduler, job, rank) == [node, devices, str(before), "4", node]


def test_two_jobs_that_share_nodes_are_gated(scheduler: SchedulerProcess, tmp_path: Path) -> None:
    jobs = [submit(scheduler, ASKS, tmp_path, gpus=3, memory_bytes=2**20) for _ in range(2)]
    for job in jobs:
        assert scheduler.wait_for(job, "done", "failed")["state"] == "done"
    spans: list[tuple[int, int]] = []
    for job in jobs:
        numbers = [int(word) for word in words(scheduler, job, 0)]
        assert numbers[::3] == [1] * 10  # All were granted.
        spans += zip(numbers[1::3], numbers[2::3], strict=True)
    spans.sort()
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))


def test_a_cancelled_job_ends_on_all_its_nodes(scheduler: SchedulerProcess, tmp_path: Path) -> None:
    go = tmp_path / "never"
    job = submit(scheduler, UNTIL_TOLD, go, gpus=3)
    wait_until_started(scheduler, job, go, 3)
    scheduler.client.cancel(job)
    assert scheduler.wait_for(job, "cancelled")["attempts"] == 1
    assert processes_with(str(go)) == []


def test_a_failed_rank_ends_the_others_and_the_job_is_retried(
    scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = submit(scheduler, FAILS_ONCE, go, gpus=3, retries=1)
    found = scheduler.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 2)
    assert starts(go) == 6
    ended = attempt_end(scheduler, job)
    assert (ended["code"], ended["reason"]) == (1, "rank 2 exited with 1: no luck")


def test_a_job_whose_step_is_killed_is_retried(
    slurm: SlurmOnThisMachine, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = submit(scheduler, UNTIL_TOLD, go, gpus=3, retries=1)
    wait_until_started(scheduler, job, go, 3)
    before = processes_with(str(go))
    os.kill(slurm.step_daemons(before)[0], signal.SIGKILL)
    eventually(lambda: starts(go) == 6)
    assert not set(before) & set(processes_with(str(go)))
    go.touch()
    found = scheduler.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 2)
    assert starts(go) == 6


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("whole", [True, False])
def test_a_job_whose_srun_is_killed_goes_on_or_is_retried(
    scheduler: SchedulerProcess, tmp_path: Path, whole: bool
) -> None:
    go = tmp_path / "go"
    job = submit(scheduler, UNTIL_TOLD, go, gpus=3, retries=1)
    wait_until_started(scheduler, job, go, 3)
    running = processes_with(str(go))
    folder = str(scheduler.folder / "attempts" / f"{job}.1")
    [srun] = [pid for pid in processes_with(folder) if parent_of(pid) == scheduler.process.pid]
    # Its child ends the step when it alone is killed.
    child = [pid for pid in processes_with(folder) if parent_of(pid) == srun]
    for pid in [*child, srun] if whole else [srun]:
        os.kill(pid, signal.SIGKILL)
    if not whole:
        eventually(lambda: starts(go) == 6)
        assert not set(running) & set(processes_with(str(go)))
    eventually(lambda: srun not in processes_with(folder))
    go.touch()
    found = scheduler.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 1 if whole else 2)
    assert starts(go) == (3 if whole else 6)


def test_jobs_go_on_while_slurmctld_is_down_and_new_ones_start_once_afterwards(
    slurm: SlurmOnThisMachine, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    go, later = tmp_path / "go", tmp_path / "later"
    job = submit(scheduler, UNTIL_TOLD, go, gpus=3)
    wait_until_started(scheduler, job, go, 3)
    slurm.kill("slurmctld")
    go.touch()
    assert scheduler.wait_for(job, "done", "failed")["state"] == "done"
    waits = submit(scheduler, UNTIL_TOLD, later, gpus=2)
    waiting = "waiting for Slurm to start it."
    eventually(lambda: scheduler.client.job(waits)["why"] == waiting)
    slurm.start_daemon("slurmctld")
    eventually(lambda: scheduler.client.job(waits)["why"].startswith("running on node"))
    later.touch()
    assert scheduler.wait_for(waits, "done", "failed")["state"] == "done"
    assert starts(later) == 2


def test_jobs_survive_a_killed_scheduler_and_end_once(
    slurm: SlurmOnThisMachine, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    long, short = tmp_path / "long", tmp_path / "short"
    jobs = [submit(scheduler, UNTIL_TOLD, go, gpus=3) for go in (long, short)]
    for job, go in zip(jobs, (long, short), strict=True):
        wait_until_started(scheduler, job, go, 3)
    running = processes_with(str(long))
    scheduler.kill()
    short.touch()
    eventually(lambda: processes_with(str(short)) == [])
    scheduler.start()
    assert scheduler.client.job(jobs[0])["state"] == "running"
    assert processes_with(str(long)) == running
    assert scheduler.wait_for(jobs[1], "done", "failed")["state"] == "done"
    long.touch()
    found = scheduler.wait_for(jobs[0], "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 1)
    assert (starts(long), starts(short)) == (3, 3)
    # It can still be cancelled, and is not started twice.
    job = submit(scheduler, UNTIL_TOLD, tmp_path / "never", gpus=2)
    scheduler.kill()
    scheduler.start()
    eventually(lambda: starts(tmp_path / "never") == 2)
    scheduler.client.cancel(job)
    scheduler.wait_for(job, "cancelled")
    assert processes_with(str(tmp_path / "never")) == []
    assert starts(tmp_path / "never") == 2


def test_jobs_of_a_lost_database_are_refused_and_then_adopted(
    scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = submit(scheduler, UNTIL_TOLD, go, gpus=3, name="kept")
    before = wait_until_started(scheduler, job, go, 3)
    running = processes_with(str(go))
    scheduler.kill()
    for path in scheduler.folder.glob("state.db*"):
        path.unlink()
    refused = subprocess.run(
        scheduler.command, capture_output=True, text=True, timeout=120, check=False
    )
    assert refused.returncode == 2
    assert f"does not know the attempts {job}.1, which are running" in refused.stderr
    assert processes_with(str(go)) == running
    scheduler.options = ("--adopt",)
    try:
        scheduler.start()
    finally:
        scheduler.options = ()
    found = scheduler.client.job(job)
    assert (found["state"], found["slots"]) == ("running", before["slots"])
    assert found["spec"]["name"] == "kept"
    go.touch()
    assert scheduler.wait_for(job, "done", "failed")["state"] == "done"
    assert starts(go) == 3


def test_a_drained_node_gets_no_new_jobs(
    slurm: SlurmOnThisMachine, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    def draining() -> list[str]:
        return [node["node"] for node in scheduler.client.nodes() if node["draining"]]

    slurm.run("scontrol", "update", "nodename=node1", "state=drain", "reason=broken fan")
    eventually(lambda: draining() == ["node1"])
    scheduler.client.drain("node1", draining=False)
    assert draining() == ["node1"]  # It is the administrators' to undo.
    go = tmp_path / "go"
    job = submit(scheduler, UNTIL_TOLD, go, gpus=1)
    assert wait_until_started(scheduler, job, go, 1)["slots"][0]["node"] == "node2"
    slurm.run("scontrol", "update", "nodename=node1", "state=resume")
    eventually(lambda: draining() == [])
    go.touch()
    assert scheduler.wait_for(job, "done", "failed")["state"] == "done"


def test_jobs_of_a_lost_node_start_elsewhere_once(
    slurm: SlurmOnThisMachine, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = submit(scheduler, UNTIL_TOLD, go, gpus=3, retries=1)
    found = wait_until_started(scheduler, job, go, 3)
    before = processes_with(str(go))
    name = found["slots"][2]["node"]
    slurm.kill(name)
    # Sooner than SlurmdTimeout.
    slurm.run("scontrol", "update", f"nodename={name}", "state=down", "reason=not responding")
    eventually(lambda: starts(go) == 6)
    assert name not in [node["node"] for node in scheduler.client.nodes()]
    slots = scheduler.client.job(job)["slots"]
    assert name not in [slot["node"] for slot in slots]
    assert attempt_end(scheduler, job)["reason"] == f"node {name} was lost"
    slurm.start_daemon(name)
    eventually(lambda: not set(before) & set(processes_with(str(go))))
    go.touch()
    found = scheduler.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 2)
    assert starts(go) == 6
