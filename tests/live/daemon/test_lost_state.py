"""A state.db that is lost, truncated or garbled: nothing is killed silently, nothing crashes."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.live.daemon.state_store import StateStore
from live.daemon.test_state_store import make_record, use
from live.scheduler_process import (
    APPENDS,
    PRINTS,
    SLEEPS,
    SchedulerProcess,
    python,
    running_scheduler,
)
from waiting import eventually


def lose(one: SchedulerProcess) -> None:
    """Kill the scheduler and delete its database."""
    one.kill()
    for path in one.folder.glob("state.db*"):
        path.unlink()


def refused(one: SchedulerProcess) -> str:
    """Start the scheduler, which must refuse; return its one line of error."""
    done = subprocess.run(one.command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert not any("Traceback" in line for line in lines)
    return " ".join(" ".join(lines).split())


@pytest.mark.slow
def test_running_attempts_without_a_record_are_refused_and_then_adopted(tmp_path: Path) -> None:
    with running_scheduler(tmp_path / "state", slots=2) as one:
        starts = tmp_path / "starts"
        appends = python(APPENDS.format(seconds=600))
        runs = one.submit(appends, gpus=2, name="kept", environment={"FILE": str(starts)})
        waits = one.submit(python(PRINTS), gpus=2, retries=3, name="waits")
        one.wait_for(runs, "running")
        eventually(lambda: starts.exists() and starts.read_text() == "xx")
        # It is in the database, which is deleted; the log is written a little later.
        eventually(lambda: '"name":"waits"' in (one.folder / "events.jsonl").read_text())
        lose(one)
        problem = refused(one)
        assert f"does not know the attempts {runs}.1, which are running" in problem
        assert "--adopt" in problem
        assert "--forget" in problem
        one.options = ("--adopt",)
        one.start()
        assert one.client.job(runs)["state"] == "running"
        assert one.client.job(runs)["spec"]["name"] == "kept"
        assert one.client.job(waits)["state"] == "queued"
        assert one.client.job(waits)["spec"]["retries"] == 3
        one.client.cancel(runs)
        assert one.wait_for(waits, "done", "failed")["state"] == "done"
        assert starts.read_text() == "xx"
        assert int(one.submit(python(PRINTS))) == int(waits) + 1


@pytest.mark.slow
def test_running_attempts_without_a_record_or_a_log_are_adopted_from_their_shims(
    tmp_path: Path,
) -> None:
    with running_scheduler(tmp_path / "state") as one:
        runs = one.submit(python(SLEEPS), gpus=2, name="kept")
        one.wait_for(runs, "running")
        lose(one)
        for path in one.folder.glob("events*"):
            path.unlink()
        one.options = ("--adopt",)
        one.start()
        found = one.client.job(runs)
        assert (found["state"], found["attempts"], len(found["slots"])) == ("running", 1, 2)
        assert found["spec"]["name"] == "kept"


@pytest.mark.slow
def test_running_attempts_without_a_record_are_ended_on_request(tmp_path: Path) -> None:
    with running_scheduler(tmp_path / "state") as one:
        runs = one.submit(python(SLEEPS))
        one.wait_for(runs, "running")
        lose(one)
        (one.folder / "state.db").write_bytes(b"x" * 5000)
        assert "is damaged: file is not a database" in refused(one)
        one.options = ("--forget",)
        one.start()
        assert one.client.jobs() == []
        assert (one.folder / "attempts" / f"{runs}.1" / "ended.json").exists()
        assert (one.folder / "state.db.damaged-1").read_bytes() == b"x" * 5000


def open_and_close(path: Path) -> str:
    """Return why a database is refused, or an empty string."""
    try:
        store = StateStore(path)
    except InputError as error:
        return str(error)
    asyncio.run(store.close())
    return ""


def test_random_bytes_in_the_database_are_one_clear_error(tmp_path: Path) -> None:
    good = tmp_path / "good.db"

    async def work(store: StateStore) -> None:
        for number in range(1, 60):
            await store.insert(make_record(str(number)))
        await store.put("drained", '["n1"]')

    use(good, work)
    dice = random.Random(3)
    damaged = 0
    for number in range(150):
        data = bytearray(good.read_bytes())
        kind = number % 3
        if kind == 0:  # A page is garbled.
            start = dice.randrange(0, len(data) - 4096, 512)
            data[start : start + 512] = dice.randbytes(512)
        elif kind == 1:  # Some bytes are.
            for _ in range(20):
                data[dice.randrange(len(data))] = dice.randrange(256)
        else:
            del data[dice.randrange(1, len(data)) :]
        path = tmp_path / "state.db"
        path.write_bytes(data)
        problem = open_and_close(path)
        if problem:
            damaged += 1
            assert problem.startswith(str(path))
            assert len(problem.splitlines()) == 1
        for left in tmp_path.glob("state.db*"):
            left.unlink()
    assert damaged > 90


def test_a_database_that_is_deleted_while_it_is_used_acknowledges_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def work(store: StateStore) -> None:
        await store.insert(make_record("1"))
        path.unlink()
        with pytest.raises(Exception, match="was deleted or replaced"):
            await store.insert(make_record("2"))
        with pytest.raises(Exception, match="was deleted or replaced"):
            await store.flush()

    assert use(path, work)[0].endswith("s.db was deleted or replaced")
