"""A real scheduler with real processes: the life of a job, and every kind of restart."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.live.daemon.errors import ConflictError, NotFoundError
from live.scheduler_process import (
    APPENDS,
    PRINTS,
    SLEEPS,
    SchedulerProcess,
    fill,
    python,
    running_scheduler,
)
from waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    """Return a scheduler shared by the tests that neither stop nor kill it."""
    with running_scheduler(tmp_path_factory.mktemp("shared") / "state") as one:
        yield one


def test_a_job_runs_on_its_slots_and_its_output_is_kept(shared: SchedulerProcess) -> None:
    job = shared.submit(python(PRINTS, "a b", "$HOME"), gpus=2)
    found = shared.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"], found["reason"]) == ("done", 1, "")
    assert b"".join(shared.client.logs(job)) == b"rank 0 a b $HOME\n"
    assert b"".join(shared.client.logs(job, rank=1)) == b"rank 1 a b $HOME\n"


def test_a_failing_job_is_retried_as_often_as_allowed(
    shared: SchedulerProcess, tmp_path: Path
) -> None:
    script = "import os; open(os.environ['FILE'], 'a').write('x'); raise SystemExit(3)"
    job = shared.submit(python(script), retries=2, environment={"FILE": str(tmp_path / "starts")})
    found = shared.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("failed", 3)
    assert "3" in found["reason"]
    assert (tmp_path / "starts").read_text() == "xxx"


def test_a_missing_program_fails_the_job_with_a_reason(shared: SchedulerProcess) -> None:
    found = shared.wait_for(shared.submit(["/no/such/program"]), "done", "failed")
    assert found["state"] == "failed"
    assert found["reason"]


def test_a_waiting_job_says_why_and_starts_when_slots_are_free(shared: SchedulerProcess) -> None:
    first = shared.submit(python(SLEEPS), gpus=4)
    shared.wait_for(first, "running")
    second = shared.submit(python(PRINTS), gpus=1)
    waits = shared.client.job(second)
    assert waits["state"] == "queued"
    assert waits["why"].startswith("needs 1 slot to itself; 0 are free")
    shared.client.cancel(first)
    assert shared.wait_for(first, "cancelled")["reason"].startswith("cancelled")
    assert shared.wait_for(second, "done")["why"] == ""


def test_a_queued_job_is_cancelled_immediately_and_only_once(shared: SchedulerProcess) -> None:
    job = shared.submit(python(SLEEPS), gpus=1000)
    assert shared.client.cancel(job)["state"] == "cancelled"
    with pytest.raises(ConflictError, match=f"job {job} is already cancelled"):
        shared.client.cancel(job)


def test_a_drained_node_gets_no_jobs_until_undrained(shared: SchedulerProcess) -> None:
    (node,) = shared.client.nodes()
    shared.client.drain(node["node"])
    job = shared.submit(python(PRINTS))
    assert shared.client.nodes()[0]["draining"] is True
    assert node["node"] in shared.client.job(job)["why"]
    shared.client.drain(node["node"], draining=False)
    shared.wait_for(job, "done")
    with pytest.raises(NotFoundError, match="there is no node elsewhere"):
        shared.client.drain("elsewhere")


def test_the_policy_can_be_changed(shared: SchedulerProcess) -> None:
    assert shared.client.set_policy("paper") == "paper"
    assert shared.client.policy() == "paper"
    with pytest.raises(InputError, match="unknown policy 'papr'"):
        shared.client.set_policy("papr")
    shared.client.set_policy("ff+srsf:1")


def test_logs_are_followed_until_the_job_has_ended(shared: SchedulerProcess) -> None:
    script = "import time\nfor n in range(3): print(n, flush=True); time.sleep(0.1)"
    job = shared.submit(python(script))
    assert b"".join(shared.client.logs(job, follow=True)) == b"0\n1\n2\n"


def test_the_event_log_has_every_event_of_a_job(shared: SchedulerProcess) -> None:
    job = shared.submit(python(PRINTS))
    shared.wait_for(job, "done")

    def logged() -> set[str]:
        # The last line may not be whole yet.
        lines = (shared.folder / "events.jsonl").read_text().split("\n")[1:-1]
        events = [json.loads(line) for line in lines if job in line]
        return {event["event"]["type"] for event in events if event["event"].get("job_id") == job}

    eventually(lambda: logged() == {"JobSubmitted", "JobStarted", "JobExited"})


def test_a_second_scheduler_on_the_same_folder_is_refused(shared: SchedulerProcess) -> None:
    done = subprocess.run(shared.command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"headway: error: {shared.folder}: another scheduler is using this folder"
    )
    assert done.stderr.count("\n") == 1
    assert shared.client.status()["nodes"] == 1


def test_a_token_or_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    one = SchedulerProcess(folder)
    one.finish()
    (folder / "token").chmod(0o644)
    done = subprocess.run(one.command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "chmod 600" in done.stderr
    folder.chmod(0o750)
    done = subprocess.run(one.command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "chmod 700" in done.stderr


def test_jobs_survive_a_killed_scheduler_and_none_is_lost_or_started_twice(tmp_path: Path) -> None:
    one = SchedulerProcess(tmp_path / "state", slots=3)
    marks = [tmp_path / f"job{number}" for number in range(6)]

    def count(number: int, seconds: float) -> str:
        script = APPENDS.format(seconds=seconds)
        return one.submit(python(script), environment={"FILE": str(marks[number])})

    try:
        long = count(0, 600)
        one.wait_for(long, "running")
        short = count(1, 0.5)
        one.wait_for(short, "running", "done")
        submitted = [long, short]
        # These are being launched or still queued when the scheduler is killed.
        submitted += [count(number, 0.5) for number in range(2, 6)]
        one.kill()
        # The short one ends while no scheduler is running.
        eventually((one.folder / "attempts" / f"{short}.1" / "ended.json").exists)
        one.start()
        assert one.client.job(long)["state"] == "running"
        for job in submitted[1:]:
            assert one.wait_for(job, "done", "failed")["state"] == "done"
        eventually(marks[0].exists)
        one.client.cancel(long)
        one.wait_for(long, "cancelled")
        assert [mark.read_text() for mark in marks] == ["x"] * 6
        assert one.submit(python(PRINTS)) == "7"
    finally:
        one.finish()


def test_an_acknowledged_submission_survives_a_kill_and_others_exist_once_or_not_at_all(
    tmp_path: Path,
) -> None:
    one = SchedulerProcess(tmp_path / "state", slots=1)
    acknowledged: list[str] = []

    def submit_repeatedly() -> None:
        client = one.client
        try:
            while True:
                spec = {"command": python(SLEEPS), "folder": "/", "gpus": 2, "name": "n"}
                acknowledged.append(client.submit(spec)["job_id"])
        except InputError:
            return

    threads = [threading.Thread(target=submit_repeatedly) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        eventually(lambda: len(acknowledged) > 20)
        one.kill()
        for thread in threads:
            thread.join()
        one.start()
        there = [job["job_id"] for job in one.client.jobs()]
        assert set(acknowledged) <= set(there)
        assert len(there) == len(set(there)) <= len(acknowledged) + len(threads)
        assert {job["state"] for job in one.client.jobs()} == {"queued"}
    finally:
        one.finish()


def test_a_stopped_scheduler_leaves_jobs_running_unless_told_to_stop_them(tmp_path: Path) -> None:
    one = SchedulerProcess(tmp_path / "state", slots=1)
    try:
        job = one.submit(python("import os, time; print(os.getpid(), flush=True); time.sleep(600)"))
        pid = int(eventually(lambda: b"".join(one.client.logs(job))))
        waits = one.submit(python(PRINTS))
        assert one.stop() == 0
        assert not (one.folder / "gate.sock").exists()
        os.kill(pid, 0)
        one.options = ("--stop-jobs",)
        one.start()
        assert one.client.job(job)["state"] == "running"
        assert one.stop() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        one.start()
        assert one.client.job(job)["state"] == "cancelled"
        one.wait_for(waits, "done")
    finally:
        one.finish()


def test_drained_nodes_the_policy_and_the_clock_survive_a_restart(tmp_path: Path) -> None:
    one = SchedulerProcess(tmp_path / "state")
    try:
        node = one.client.nodes()[0]["node"]
        one.client.drain(node)
        one.client.set_policy("ff+ada-srsf")
        before_s = one.client.status()["clock_s"]
        one.stop()
        config = one.config.read_text()
        one.config.write_text(config.replace('policy = "ff+srsf:1"\n', ""))
        one.start()
        assert one.client.nodes()[0]["draining"] is True
        assert one.client.policy() == "ff+ada-srsf"
        assert one.client.status()["clock_s"] >= before_s
    finally:
        one.finish()


def submit_large(one: SchedulerProcess) -> None:
    """Submit until a job is refused: the database may have reserved some room."""
    while True:
        one.submit(python(PRINTS), environment={"A": "x" * 50_000})


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with room for four megabytes."""
    folder = tmp_path / "small"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def change_until_refused(one: SchedulerProcess, change: Callable[[bool], object]) -> bool:
    """Change a setting on a full disk until that is refused; return the last value that was not.

    A small write may fit into what the database has reserved.
    """
    stored = False
    for _ in range(1000):
        fill(one.folder / "more")
        try:
            change(not stored)
        except InputError as error:
            if "the state cannot be written" not in str(error):
                raise
            return stored
        stored = not stored
    raise AssertionError("never refused")


@pytest.mark.root
def test_a_scheduler_starts_on_a_full_disk_and_says_so(small: Path) -> None:
    with running_scheduler(small, slots=1) as one:
        runs = one.submit(python(SLEEPS))
        one.wait_for(runs, "running")
        waits = one.submit(python(PRINTS))
        for end in (one.stop, one.kill):
            end()
            fill(small / "large")
            one.start()
            assert eventually(lambda: one.client.status()["storage_problem"])
            assert one.client.job(runs)["state"] == "running"
            assert one.client.job(waits)["state"] == "queued"
            (small / "large").unlink()
            eventually(lambda: not one.client.status()["storage_problem"])
        one.client.cancel(runs)
        assert one.wait_for(waits, "done", "failed")["state"] == "done"


@pytest.mark.root
def test_a_full_disk_refuses_new_jobs_and_stops_no_running_job(small: Path) -> None:
    with running_scheduler(small, slots=1) as one:
        runs = one.submit(python(SLEEPS))
        one.wait_for(runs, "running")
        waits = one.submit(python(PRINTS))
        fill(small / "large")

        def refuses_and_says_so() -> object:
            """A small write may still fit, which clears the problem until the next large one."""
            with pytest.raises(InputError, match="the state cannot be written: "):
                submit_large(one)
            return one.client.status()["storage_problem"]

        assert eventually(refuses_and_says_so)
        assert one.client.job(runs)["state"] == "running"
        # Nothing is acknowledged, or has happened, that is not stored.
        drained = change_until_refused(one, lambda value: one.client.drain("localhost", value))
        assert one.client.nodes()[0]["draining"] is drained
        policies = ("ff+srsf:1", "ff+fifo+srsf:1")
        chosen = change_until_refused(one, lambda value: one.client.set_policy(policies[value]))
        assert one.client.policy() == policies[chosen]
        # A running job can be cancelled even so.
        fill(small / "rest")  # What the event log could not keep may have made room.
        with pytest.raises(InputError, match=f"job {runs} is cancelled, but that is not stored"):
            one.client.cancel(runs)
        one.wait_for(runs, "cancelled")
        for name in ("large", "more", "rest"):
            (small / name).unlink()
        eventually(lambda: not one.client.status()["storage_problem"])
        one.client.drain("localhost", False)
        assert one.wait_for(waits, "done", "failed")["state"] == "done"
        one.wait_for(one.submit(python(PRINTS)), "done")
        for event in ("state cannot be written", "state can be written again"):
            one.wait_for_entries(1, event=event)


@pytest.fixture
def folder_with_small_attempts(tmp_path: Path) -> Iterator[Path]:
    """Return a state folder in which only the attempts folder is nearly full."""
    folder = tmp_path / "state"
    (folder / "attempts").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    words = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", f"{folder}/attempts"]
    subprocess.run(words, check=True)
    yield folder
    subprocess.run(["umount", "-l", folder / "attempts"], check=True)


@pytest.mark.root
def test_a_job_that_the_machine_cannot_start_waits_and_uses_up_no_retry(
    folder_with_small_attempts: Path,
) -> None:
    large = folder_with_small_attempts / "attempts" / "large"
    fill(large)
    with running_scheduler(folder_with_small_attempts) as one:
        job = one.submit(python(PRINTS))
        eventually(lambda: "No space left" in one.client.job(job)["why"])
        assert one.client.job(job)["state"] in ("starting", "queued")
        large.unlink()
        found = one.wait_for(job, "done", "failed")
        assert (found["state"], found["attempts"] - found["unstarted"]) == ("done", 1)
        entries = one.wait_for_entries(1, event="attempt could not start")
        assert (entries[0]["level"], entries[0]["job"]) == ("warning", job)
        assert "No space left" in entries[0]["reason"]


def test_ids_of_forgotten_jobs_are_not_used_again(tmp_path: Path) -> None:
    one = SchedulerProcess(tmp_path / "state")
    try:
        one.wait_for(one.submit(python(PRINTS, "old")), "done")
        node = one.client.nodes()[0]["node"]
        one.client.drain(node)
        again = one.submit(python(PRINTS, "again"))
        one.stop()
        before = (one.folder / "state.db").read_bytes()
        one.start()
        one.client.drain(node, draining=False)
        one.wait_for(again, "done")
        one.stop()
        # With the earlier database: a job is queued although it has had an attempt.
        (one.folder / "state.db").write_bytes(before)
        one.start()
        one.client.drain(node, draining=False)
        found = one.wait_for(again, "done", "failed")
        assert (found["state"], found["attempts"], found["unstarted"]) == ("done", 2, 1)
        one.stop()
        # Without a database, and with a last job that has had no attempt.
        one.start()
        one.client.drain(node)
        last = one.submit(python(PRINTS, "last"))
        one.client.cancel(last)
        one.stop()
        (one.folder / "state.db").unlink()
        one.start()
        new = one.submit(python(PRINTS, "new"))
        assert int(new) == int(last) + 1
        assert one.wait_for(new, "done", "failed")["state"] == "done"
        assert b"".join(one.client.logs(new)) == b"rank 0 new\n"
    finally:
        one.finish()


def test_jobs_have_the_open_files_limit_with_which_the_scheduler_was_started(
    tmp_path: Path,
) -> None:
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(usual, 700), most))
    try:
        with running_scheduler(tmp_path / "state") as one:
            script = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
            job = one.submit(python(script))
            one.wait_for(job, "done")
            assert b"".join(one.client.logs(job)).decode() == f"{(min(usual, 700), most)}\n"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))


def test_a_deleted_log_is_reported_as_deleted(shared: SchedulerProcess) -> None:
    job = shared.submit(python(PRINTS))
    shared.wait_for(job, "done")
    shutil.rmtree(shared.folder / "attempts" / f"{job}.1")
    with pytest.raises(NotFoundError, match=f"the log of job {job} has been deleted"):
        list(shared.client.logs(job))


def test_a_failing_policy_is_logged_and_shown(shared: SchedulerProcess, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "def broken(cluster, job, candidates, parameter):\n"
        "    return cluster.jobs[len(cluster.jobs)].gpus > 0\n"
    )
    shared.client.set_policy(f"{file}:broken+fifo+srsf:1")
    job = shared.submit(python(PRINTS))
    problem = eventually(lambda: shared.client.status()["policy_problem"])
    assert problem.startswith("placement 'broken' failed (in broken, line ")
    assert problem in shared.client.job(job)["why"]
    shared.wait_for_entries(1, event="policy failed")
    shared.client.set_policy("ff+srsf:1")
    shared.wait_for(job, "done")
    assert shared.client.status()["policy_problem"] == ""


def test_the_operator_log_has_lines_of_json_with_time_and_level(shared: SchedulerProcess) -> None:
    job = shared.submit(python(PRINTS))
    shared.wait_for(job, "done")
    lines = shared.wait_for_entries(3, job=job)
    assert [line["event"] for line in lines] == [
        "job submitted",
        "attempt starting",
        "attempt ended",
    ]
    assert {line["level"] for line in lines} == {"info"}
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_ctrl_c_stops_it_and_leaves_no_socket_or_lock(tmp_path: Path) -> None:
    one = SchedulerProcess(tmp_path / "state")
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(60) == 0
    left = {path.name for path in one.folder.iterdir()}
    assert not {"gate.sock", "address.json"} & left
    assert not {name for name in left if name.endswith(("-wal", "-shm"))}
