"""A real scheduler on a real Slurm: batch jobs, and an allocation that it is given."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

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


def test_batch_jobs_are_placed_cancelled_retried_and_found_again(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    go, never, later = tmp_path / "go", tmp_path / "never", tmp_path / "later"
    state = tmp_path / "served"
    one = SchedulerProcess(state, settings('mode = "batch"\npartition = "batch"\n'))
    try:
        assert sorted(node["node"] for node in one.client.nodes()) == ["node2", "node3", "node4"]
        job = submit(one, UNTIL_TOLD, go, gpus=2)
        slots = wait_until_started(one, job, go, 2)["slots"]
        other = submit(one, UNTIL_TOLD, never, gpus=1, directives=["--time=5"])
        wait_until_started(one, other, never, 1)
        assert len(slurm.run("squeue", "--noheader", "--partition=batch").splitlines()) == 2
        one.kill()
        one.start()
        one.client.cancel(other)
        one.wait_for(other, "cancelled")
        assert processes_with(str(never)) == []
        assert one.client.job(job)["state"] == "running"
        go.touch()
        assert one.wait_for(job, "done", "failed")["state"] == "done"
        assert (starts(go), starts(never)) == (2, 1)
        for rank, slot in enumerate(slots):
            assert words(one, job, rank)[0] == slot["node"]
        retried = submit(one, UNTIL_TOLD, later, gpus=4, retries=1)
        wait_until_started(one, retried, later, 4)
        os.kill(slurm.step_daemons(processes_with(str(later)))[0], signal.SIGKILL)
        eventually(lambda: starts(later) == 8)
        later.touch()
        found = one.wait_for(retried, "done", "failed")
        assert (found["state"], found["attempts"]) == ("done", 2)
    finally:
        one.finish()
    eventually(lambda: slurm.run("squeue", "--noheader", "--partition=batch") == "")


STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + UNTIL_TOLD


def test_a_job_starts_again_only_when_nothing_of_its_old_allocation_runs(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    one = SchedulerProcess(tmp_path / "served", settings("nodes = 2\n"))
    try:
        eventually(lambda: len(one.client.nodes()) == 2)
        job = submit(one, STUBBORN, go, gpus=4, retries=1)
        wait_until_started(one, job, go, 4)
        before = set(processes_with(str(go)))
        slurm.run("scancel", *slurm.jobs())
        eventually(lambda: starts(go) > 4)
        assert not before & set(processes_with(str(go)))
        eventually(lambda: starts(go) == 8)
        go.touch()
        assert one.wait_for(job, "done", "failed")["state"] == "done"
        [ended] = one.wait_for_entries(1, event="attempt ended", attempt=1)
        assert ended["reason"] == "the allocation ended"
    finally:
        one.finish()
    eventually(lambda: slurm.jobs() == [])


def test_jobs_start_again_elsewhere_once_when_their_allocation_ends(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("one", "two", "queued", "later")]
    one = SchedulerProcess(tmp_path / "served", settings("nodes = 2\n"))
    try:
        eventually(lambda: len(one.client.nodes()) == 2)
        jobs = [submit(one, UNTIL_TOLD, go, gpus=2, retries=1) for go in paths[:2]]
        for job, go in zip(jobs, paths[:2], strict=True):
            wait_until_started(one, job, go, 2)
        jobs += [submit(one, UNTIL_TOLD, go, gpus=2) for go in paths[2:]]
        slurm.run("scancel", *slurm.jobs())
        eventually(lambda: [starts(go) for go in paths[:2]] == [4, 4])
        for go in paths:
            go.touch()
        for job in jobs:
            assert one.wait_for(job, "done", "failed")["state"] == "done"
        assert [starts(go) for go in paths] == [4, 4, 2, 2]
    finally:
        one.finish()
    eventually(lambda: slurm.jobs() == [])


def test_a_lost_node_is_asked_for_again_and_the_others_keep_their_jobs(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    lost, kept, wide = tmp_path / "lost", tmp_path / "kept", tmp_path / "wide"
    one = SchedulerProcess(tmp_path / "served", settings("nodes = 4\n"))

    def nodes() -> list[str]:
        return sorted(node["node"] for node in one.client.nodes())

    try:
        eventually(lambda: nodes() == slurm.names)
        first = submit(one, UNTIL_TOLD, lost, gpus=2, retries=1)
        assert wait_until_started(one, first, lost, 2)["slots"][0]["node"] == "node1"
        second = submit(one, UNTIL_TOLD, kept, gpus=6)
        wait_until_started(one, second, kept, 6)
        running = processes_with(str(kept))
        slurm.kill("node1")  # An allocation with a batch script would end with it.
        slurm.run("scontrol", "update", "nodename=node1", "state=down", "reason=broken fan")
        eventually(lambda: nodes() == slurm.names[1:])
        eventually(lambda: one.client.job(first)["state"] == "queued")
        assert processes_with(str(kept)) == running
        slurm.start_daemon("node1")
        eventually(lambda: starts(lost) == 4)
        assert processes_with(str(kept)) == running
        for job, go in ((first, lost), (second, kept)):
            go.touch()
            assert one.wait_for(job, "done", "failed")["state"] == "done"
        # A job can run in both allocations, and is found there by the next scheduler.
        assert len(slurm.jobs()) == 2
        job = submit(one, UNTIL_TOLD, wide, gpus=8, name="wide")
        wait_until_started(one, job, wide, 8)
        one.kill()
        one.start()
        assert one.client.job(job)["state"] == "running"
        lines = slurm.run("squeue", "--steps", "--noheader", "--format=%j").splitlines()
        assert len([line for line in lines if line.startswith("wide:headway-")]) == 2
        one.client.cancel(job)
        one.wait_for(job, "cancelled")
        assert (processes_with(str(wide)), starts(wide)) == ([], 8)
    finally:
        one.finish()
    eventually(lambda: slurm.jobs() == [])
    slurm.wait_until_idle()


def test_jobs_survive_a_restart_of_slurmctld_and_of_the_scheduler(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    go, later = tmp_path / "go", tmp_path / "later"
    one = SchedulerProcess(tmp_path / "served", settings("nodes = 2\n"))
    try:
        eventually(lambda: len(one.client.nodes()) == 2)
        job = submit(one, UNTIL_TOLD, go, gpus=4)
        wait_until_started(one, job, go, 4)
        running = processes_with(str(go))
        slurm.wait_until_saved()
        one.kill()
        slurm.kill("slurmctld")
        slurm.start_daemon("slurmctld")
        eventually(slurm.states)  # Its nodes are unknown until they register.
        one.start()
        assert one.client.job(job)["state"] == "running"
        after = submit(one, UNTIL_TOLD, later, gpus=4)
        assert processes_with(str(go)) == running
        for name, path in ((job, go), (after, later)):
            path.touch()
            assert one.wait_for(name, "done", "failed")["state"] == "done"
        assert (starts(go), starts(later)) == (4, 4)
    finally:
        one.finish()
    eventually(lambda: slurm.jobs() == [])
    slurm.wait_until_idle()


def test_an_allocation_that_waits_is_neither_lost_nor_requested_twice(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    def salloc() -> list[int]:
        identity = (tmp_path / "served" / "attempts" / "identity").read_text()
        return processes_with(f"--job-name=headway-{identity}")

    holder = slurm.run(
        *("sbatch", "--parsable", "--nodelist=node2", "--exclusive", "--output=/dev/null"),
        "--wrap=exec sleep infinity",
    ).strip()
    one = SchedulerProcess(tmp_path / "served", settings("nodes = 4\n"))
    try:
        [asked] = set(slurm.jobs()) - {holder}
        one.kill()
        one.start()
        assert set(slurm.jobs()) == {holder, asked}
        # Slurm would end an allocation that it grants to a `salloc` that is gone.
        [waits] = salloc()
        os.kill(waits, signal.SIGKILL)
        again = eventually(lambda: set(slurm.jobs()) - {holder, asked})
        slurm.run("scancel", holder)
        eventually(lambda: len(one.client.nodes()) == 4)
        assert set(slurm.jobs()) - {holder, asked} == again
    finally:
        slurm.run("scancel", "--quiet", holder)
        one.finish()
    eventually(lambda: slurm.jobs() == [])
    assert salloc() == []


def test_a_scheduler_killed_while_it_asks_for_an_allocation_leaves_none_behind(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    one = SchedulerProcess(tmp_path / "served", settings("nodes = 2\n"))
    eventually(lambda: len(one.client.nodes()) == 2)
    asked = slurm.jobs()
    one.kill()
    (tmp_path / "served" / "attempts" / "allocation").unlink()
    one.start()
    assert slurm.jobs() == asked
    one.finish()
    eventually(lambda: slurm.jobs() == [])


def test_a_job_in_slurms_queue_says_so_and_is_not_failed_by_the_loss_of_its_node(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    holder = slurm.run(
        *("sbatch", "--parsable", "--nodelist=node2", "--exclusive", "--output=/dev/null"),
        *("--job-name=a\nb|\u2028c", "--wrap=exec sleep infinity"),
    ).strip()
    eventually(lambda: slurm.run("squeue", "--noheader", "--format=%t") == "R\n")
    one = SchedulerProcess(tmp_path / "served", settings('mode = "batch"\npartition = "batch"\n'))
    try:
        job = submit(one, UNTIL_TOLD, go, gpus=1)
        # Slurm gives its reason a little later.
        waits = "waiting in Slurm's queue (Resources)."
        eventually(lambda: one.client.job(job)["why"] == waits)
        slurm.kill("node2")
        slurm.run("scontrol", "update", "nodename=node2", "state=down", "reason=broken fan")
        wait_until_started(one, job, go, 1)
        assert one.client.job(job)["slots"][0]["node"] != "node2"
        eventually(lambda: one.client.job(job)["why"].startswith("running on node"))
        go.touch()
        assert one.wait_for(job, "done", "failed")["state"] == "done"
        assert starts(go) == 1
        bad = submit(one, UNTIL_TOLD, go, gpus=1, directives=["--licenses=nothing"])
        found = one.wait_for(bad, "done", "failed")
        assert (found["state"], found["reason"]) == (
            "failed",
            "could not start: sbatch: Batch job submission failed: Invalid license specification.",
        )
    finally:
        slurm.run("scancel", holder)
        one.finish()
        slurm.start_daemon("node2")
    slurm.wait_until_idle()


def test_batch_jobs_survive_slurmctld_and_lose_a_node_whose_slurmd_is_gone(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    go, later = tmp_path / "go", tmp_path / "later"
    one = SchedulerProcess(tmp_path / "served", settings('mode = "batch"\npartition = "batch"\n'))
    try:
        job = submit(one, UNTIL_TOLD, go, gpus=4, retries=1)
        name = wait_until_started(one, job, go, 4)["slots"][2]["node"]
        before = set(processes_with(str(go)))
        slurm.wait_until_saved()
        slurm.kill("slurmctld")
        waits = submit(one, UNTIL_TOLD, later, gpus=1)
        eventually(lambda: one.client.job(waits)["attempts"] >= 1)
        slurm.start_daemon("slurmctld")
        later.touch()
        assert one.wait_for(waits, "done", "failed")["state"] == "done"
        assert (starts(later), starts(go)) == (1, 4)
        assert one.client.job(job)["state"] == "running"
        slurm.kill(name)  # It is lost after SlurmdTimeout.
        eventually(lambda: starts(go) == 8)
        slurm.start_daemon(name)
        eventually(lambda: not before & set(processes_with(str(go))))
        go.touch()
        found = one.wait_for(job, "done", "failed")
        assert (found["state"], found["attempts"]) == ("done", 2)
        assert starts(go) == 8
    finally:
        one.finish()
    slurm.wait_until_idle()


def copied(state: Path, target: Path) -> bool:
    """Copy slurmctld's state; False if that changed its files at the same time."""
    shutil.rmtree(target, ignore_errors=True)
    with contextlib.suppress(shutil.Error):
        shutil.copytree(state, target)
        return (target / "job_state").exists()
    return False


def test_a_job_that_slurmctld_has_forgotten_is_retried_when_its_processes_are_gone(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    go, old = tmp_path / "go", tmp_path / "old"
    eventually(lambda: copied(slurm.folder / "state", old))
    one = SchedulerProcess(tmp_path / "served", settings('mode = "batch"\npartition = "batch"\n'))
    try:
        job = submit(one, UNTIL_TOLD, go, gpus=2, retries=1)
        wait_until_started(one, job, go, 2)
        before = set(processes_with(str(go)))
        slurm.kill("slurmctld")
        shutil.rmtree(slurm.folder / "state")
        shutil.copytree(old, slurm.folder / "state")
        slurm.start_daemon("slurmctld")
        # Its next job gets the number of the forgotten one, whose processes Slurm ends.
        eventually(lambda: starts(go) > 2)
        assert not before & set(processes_with(str(go)))
        go.touch()
        found = one.wait_for(job, "done", "failed")
        assert (found["state"], found["attempts"], starts(go)) == ("done", 2, 4)
    finally:
        one.finish()
    slurm.wait_until_idle()


def test_a_slurmd_that_is_back_before_its_timeout_costs_nothing(
    slurm: SlurmOnThisMachine, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    one = SchedulerProcess(tmp_path / "served", settings("nodes = 2\n"))
    try:
        eventually(lambda: len(one.client.nodes()) == 2)
        job = submit(one, UNTIL_TOLD, go, gpus=4)
        name = wait_until_started(one, job, go, 4)["slots"][0]["node"]
        before = processes_with(str(go))
        slurm.kill(name)
        slurm.start_daemon(name)
        eventually(lambda: slurm.states().get(name) in ("alloc", "mix"))
        assert processes_with(str(go)) == before
        go.touch()
        found = one.wait_for(job, "done", "failed")
        assert (found["state"], found["attempts"], starts(go)) == ("done", 1, 4)
    finally:
        one.finish()
    eventually(lambda: slurm.jobs() == [])


def test_a_scheduler_inside_an_allocation_uses_it_and_leaves_it(
    slurm: SlurmOnThisMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocation = slurm.run(
        *("sbatch", "--parsable", "--nodelist=node1", "--exclusive", "--output=/dev/null"),
        "--wrap=exec sleep infinity",
    ).strip()
    eventually(lambda: slurm.run("squeue", "--noheader", "--format=%t") == "R\n")
    # What a job finds in its environment; srun would take these for its options.
    for name, value in {"JOB_ID": allocation, "NTASKS": "7", "MEM_PER_CPU": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    one = SchedulerProcess(tmp_path / "served", settings(""))
    try:
        assert [node["node"] for node in one.client.nodes()] == ["node1"]
        go = tmp_path / "go"
        job = submit(one, UNTIL_TOLD, go, gpus=2)
        go.touch()
        assert one.wait_for(job, "done", "failed")["state"] == "done"
        assert starts(go) == 2
    finally:
        one.finish()
    assert slurm.jobs() == [allocation]
    slurm.run("scancel", allocation)
