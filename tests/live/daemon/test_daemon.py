"""A real scheduler with real processes: jobs from submission to end, and every kind of restart."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from live.serving import COUNTS, PRINTS, SLEEPS, Served, fill, python, served, until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a scheduler that the module's gentle tests share."""
    with served(tmp_path_factory.mktemp("shared") / "state") as one:
        yield one


def test_a_job_runs_on_its_seats_and_its_output_is_kept(shared: Served) -> None:
    job = shared.submit(python(PRINTS, "a b", "$HOME"), gpus=2)
    found = shared.reaches(job, "done", "failed")
    assert (found["state"], found["attempts"], found["reason"]) == ("done", 1, "")
    assert b"".join(shared.client.logs(job)) == b"rank 0 a b $HOME\n"
    assert b"".join(shared.client.logs(job, rank=1)) == b"rank 1 a b $HOME\n"


def test_a_job_that_fails_is_tried_again_as_often_as_it_may(shared: Served, tmp_path: Path) -> None:
    script = "import os; open(os.environ['FILE'], 'a').write('x'); raise SystemExit(3)"
    job = shared.submit(python(script), retries=2, environment={"FILE": str(tmp_path / "starts")})
    found = shared.reaches(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("failed", 3)
    assert "3" in found["reason"]
    assert (tmp_path / "starts").read_text() == "xxx"


def test_a_program_that_is_not_there_fails_with_the_reason(shared: Served) -> None:
    found = shared.reaches(shared.submit(["/no/such/program"]), "done", "failed")
    assert found["state"] == "failed"
    assert found["reason"]


def test_a_job_that_waits_says_why_and_starts_when_there_is_room(shared: Served) -> None:
    first = shared.submit(python(SLEEPS), gpus=4)
    shared.reaches(first, "running")
    second = shared.submit(python(PRINTS), gpus=1)
    waits = shared.client.job(second)
    assert waits["state"] == "queued"
    assert waits["why"].startswith("needs 1 slot to itself; 0 are free")
    shared.client.cancel(first)
    assert shared.reaches(first, "cancelled")["reason"].startswith("cancelled")
    assert shared.reaches(second, "done")["why"] == ""


def test_a_queued_job_is_cancelled_at_once_and_only_once(shared: Served) -> None:
    job = shared.submit(python(SLEEPS), gpus=1000)
    assert shared.client.cancel(job)["state"] == "cancelled"
    with pytest.raises(InputError, match=f"job {job} is cancelled already"):
        shared.client.cancel(job)


def test_a_drained_node_gets_no_jobs_until_that_is_undone(shared: Served) -> None:
    (node,) = shared.client.nodes()
    shared.client.drain(node["node"])
    job = shared.submit(python(PRINTS))
    assert shared.client.nodes()[0]["draining"] is True
    assert node["node"] in shared.client.job(job)["why"]
    shared.client.drain(node["node"], draining=False)
    shared.reaches(job, "done")
    with pytest.raises(InputError, match="there is no node elsewhere"):
        shared.client.drain("elsewhere")


def test_another_policy_decides_from_now_on(shared: Served) -> None:
    assert shared.client.choose_policy("paper") == "paper"
    assert shared.client.policy() == "paper"
    with pytest.raises(InputError, match="unknown policy 'papr'"):
        shared.client.choose_policy("papr")
    shared.client.choose_policy("ff+srsf:1")


def test_logs_are_followed_until_the_job_is_over(shared: Served) -> None:
    script = "import time\nfor n in range(3): print(n, flush=True); time.sleep(0.1)"
    job = shared.submit(python(script))
    assert b"".join(shared.client.logs(job, follow=True)) == b"0\n1\n2\n"


def test_the_event_log_has_every_decision(shared: Served) -> None:
    job = shared.submit(python(PRINTS))
    shared.reaches(job, "done")

    def logged() -> set[str]:
        lines = (shared.folder / "events.jsonl").read_text().splitlines()[1:]
        events = [json.loads(line) for line in lines if job in line]
        return {event["event"]["type"] for event in events if event["event"].get("job_id") == job}

    until(lambda: logged() == {"JobSubmitted", "JobStarted", "JobExited"})


def test_a_second_scheduler_on_the_same_folder_is_refused(shared: Served) -> None:
    done = subprocess.run(shared.command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"headway: error: {shared.folder}: another scheduler runs on this folder"
    )
    assert done.stderr.count("\n") == 1
    assert shared.client.status()["nodes"] == 1


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    one = Served(folder)
    one.finish()
    (folder / "token").chmod(0o644)
    done = subprocess.run(one.command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "chmod 600" in done.stderr
    folder.chmod(0o750)
    done = subprocess.run(one.command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "chmod 700" in done.stderr


def test_jobs_outlive_a_killed_scheduler_and_none_is_lost_or_started_twice(tmp_path: Path) -> None:
    one = Served(tmp_path / "state", slots=3)
    marks = [tmp_path / f"job{number}" for number in range(6)]

    def count(number: int, seconds: float) -> str:
        script = COUNTS.format(seconds=seconds)
        return one.submit(python(script), environment={"FILE": str(marks[number])})

    try:
        long = count(0, 60)
        one.reaches(long, "running")
        short = count(1, 0.5)
        one.reaches(short, "running", "done")
        submitted = [long, short]
        # These are being launched or still queued when the scheduler dies.
        submitted += [count(number, 0.5) for number in range(2, 6)]
        one.kill()
        time.sleep(0.7)  # The short one ends while nobody is there.
        one.start()
        assert one.client.job(long)["state"] == "running"
        for job in submitted[1:]:
            assert one.reaches(job, "done", "failed")["state"] == "done"
        one.client.cancel(long)
        one.reaches(long, "cancelled")
        assert [mark.read_text() for mark in marks] == ["x"] * 6
        assert one.submit(python(PRINTS)) == "7"
    finally:
        one.finish()


def test_a_submission_that_was_answered_survives_and_others_are_there_once_or_not_at_all(
    tmp_path: Path,
) -> None:
    one = Served(tmp_path / "state", slots=1)
    answered: list[str] = []

    def submit_on_and_on() -> None:
        client = one.client
        try:
            while True:
                spec = {"command": python(SLEEPS), "folder": "/", "gpus": 2, "name": "n"}
                answered.append(client.submit(spec)["job_id"])
        except InputError:
            return

    threads = [threading.Thread(target=submit_on_and_on) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        until(lambda: len(answered) > 20)
        one.kill()
        for thread in threads:
            thread.join()
        one.start()
        there = [job["job_id"] for job in one.client.jobs()]
        assert set(answered) <= set(there)
        assert len(there) == len(set(there)) <= len(answered) + len(threads)
        assert {job["state"] for job in one.client.jobs()} == {"queued"}
    finally:
        one.finish()


def test_a_scheduler_that_is_asked_to_end_leaves_jobs_running_unless_told(tmp_path: Path) -> None:
    one = Served(tmp_path / "state", slots=1)
    try:
        job = one.submit(python("import os, time; print(os.getpid(), flush=True); time.sleep(60)"))
        pid = int(until(lambda: b"".join(one.client.logs(job))))
        waits = one.submit(python(PRINTS))
        assert one.end() == 0
        assert not (one.folder / "gate.sock").exists()
        os.kill(pid, 0)
        one._options = ("--stop-jobs",)
        one.start()
        assert one.client.job(job)["state"] == "running"
        assert one.end() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        one.start()
        assert one.client.job(job)["state"] == "cancelled"
        one.reaches(waits, "done")
    finally:
        one.finish()


def test_drained_nodes_the_policy_and_the_clock_are_remembered(tmp_path: Path) -> None:
    one = Served(tmp_path / "state")
    try:
        node = one.client.nodes()[0]["node"]
        one.client.drain(node)
        one.client.choose_policy("ff+ada-srsf")
        before_s = one.client.status()["clock_s"]
        one.end()
        config = one._config.read_text()
        one._config.write_text(config.replace('policy = "ff+srsf:1"\n', ""))
        one.start()
        assert one.client.nodes()[0]["draining"] is True
        assert one.client.policy() == "ff+ada-srsf"
        assert one.client.status()["clock_s"] >= before_s
    finally:
        one.finish()


def submit_large(one: Served) -> None:
    """Submit until there is no room: what the database has reserved may hold some more."""
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


def test_a_full_disk_refuses_new_jobs_and_stops_no_other(small: Path) -> None:
    with served(small, slots=1) as one:
        runs = one.submit(python(SLEEPS))
        one.reaches(runs, "running")
        waits = one.submit(python(PRINTS))
        fill(small / "large")

        def refuses_and_says_so() -> object:
            """Small writes may still fit, and then the problem is over until the next large one."""
            with pytest.raises(InputError, match="nothing can be stored: "):
                submit_large(one)
            return one.client.status()["storage_problem"]

        assert until(refuses_and_says_so)
        assert one.client.job(runs)["state"] == "running"
        one.client.cancel(runs)
        one.reaches(runs, "cancelled")
        (small / "large").unlink()
        until(lambda: not one.client.status()["storage_problem"])
        assert one.reaches(waits, "done", "failed")["state"] == "done"
        one.reaches(one.submit(python(PRINTS)), "done")
        assert {"the state cannot be written", "the state is written again"} <= {
            line["event"] for line in one.told()
        }


@pytest.fixture
def folder_with_small_attempts(tmp_path: Path) -> Iterator[Path]:
    """Return a state folder in which only the folder of attempts has hardly any room."""
    folder = tmp_path / "state"
    (folder / "attempts").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    words = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", f"{folder}/attempts"]
    subprocess.run(words, check=True)
    yield folder
    subprocess.run(["umount", "-l", folder / "attempts"], check=True)


def test_a_job_for_which_the_machine_has_no_room_waits_and_loses_no_retry(
    folder_with_small_attempts: Path,
) -> None:
    large = folder_with_small_attempts / "attempts" / "large"
    fill(large)
    with served(folder_with_small_attempts) as one:
        job = one.submit(python(PRINTS))
        until(lambda: "No space left" in one.client.job(job)["why"])
        assert one.client.job(job)["state"] in ("starting", "queued")
        large.unlink()
        found = one.reaches(job, "done", "failed")
        assert (found["state"], found["attempts"] - found["unstarted"]) == ("done", 1)
        told = [line for line in one.told() if line["event"] == "attempt could not start"]
        assert (told[0]["level"], told[0]["job"]) == ("warning", job)
        assert "No space left" in told[0]["reason"]


def test_new_jobs_are_not_taken_for_old_ones_that_nobody_remembers(tmp_path: Path) -> None:
    one = Served(tmp_path / "state")
    try:
        one.reaches(one.submit(python(PRINTS, "old")), "done")
        node = one.client.nodes()[0]["node"]
        one.client.drain(node)
        again = one.submit(python(PRINTS, "again"))
        one.end()
        before = (one.folder / "state.db").read_bytes()
        one.start()
        one.client.drain(node, draining=False)
        one.reaches(again, "done")
        one.end()
        # The database of before: a job is queued of which an attempt has been made.
        (one.folder / "state.db").write_bytes(before)
        one.start()
        one.client.drain(node, draining=False)
        found = one.reaches(again, "done", "failed")
        assert (found["state"], found["attempts"], found["unstarted"]) == ("done", 2, 1)
        one.end()
        # No database at all.
        (one.folder / "state.db").unlink()
        one.start()
        new = one.submit(python(PRINTS, "new"))
        assert int(new) > int(again)
        assert one.reaches(new, "done", "failed")["state"] == "done"
        assert b"".join(one.client.logs(new)) == b"rank 0 new\n"
    finally:
        one.finish()


def test_jobs_have_the_limit_of_files_that_the_scheduler_was_given(tmp_path: Path) -> None:
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(usual, 700), most))
    try:
        with served(tmp_path / "state") as one:
            script = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
            job = one.submit(python(script))
            one.reaches(job, "done")
            assert b"".join(one.client.logs(job)).decode() == f"{(min(usual, 700), most)}\n"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))


def test_a_log_that_was_removed_is_said_to_be_gone(shared: Served) -> None:
    job = shared.submit(python(PRINTS))
    shared.reaches(job, "done")
    shutil.rmtree(shared.folder / "attempts" / f"{job}.1")
    with pytest.raises(InputError, match=f"the log of job {job} is not there any more"):
        list(shared.client.logs(job))


def test_a_policy_that_fails_is_told_shown_and_counted(shared: Served, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "def broken(cluster, job, candidates, parameter):\n"
        "    return cluster.jobs[len(cluster.jobs)].gpus > 0\n"
    )
    shared.client.choose_policy(f"{file}:broken+fifo+srsf:1")
    job = shared.submit(python(PRINTS))
    problem = until(lambda: shared.client.status()["policy_problem"])
    assert problem.startswith("placement 'broken' failed: ")
    assert problem in shared.client.job(job)["why"]
    until(lambda: [one for one in shared.told() if one["event"] == "the policy fails"])
    shared.client.choose_policy("ff+srsf:1")
    shared.reaches(job, "done")
    assert shared.client.status()["policy_problem"] == ""


def test_notices_are_lines_of_json_with_time_and_level(shared: Served) -> None:
    job = shared.submit(python(PRINTS))
    shared.reaches(job, "done")
    lines = [line for line in shared.told() if line.get("job") == job]
    assert [line["event"] for line in lines] == ["job submitted", "attempt starts", "attempt ended"]
    assert {line["level"] for line in lines} == {"info"}
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_ctrl_c_ends_it_and_leaves_no_socket_or_lock(tmp_path: Path) -> None:
    one = Served(tmp_path / "state")
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(60) == 0
    left = {path.name for path in one.folder.iterdir()}
    assert not {"gate.sock", "address.json"} & left
    assert not {name for name in left if name.endswith(("-wal", "-shm"))}
