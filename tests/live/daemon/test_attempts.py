"""Attempts that cannot be started, stopped or found: every job comes to a clear end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headway.live import operator_log
from headway.live.core.events import NEVER_STARTED
from headway.live.daemon import attempts
from headway.live.daemon.daemon import Daemon
from headway.live.executors import Attempt, ExecutorNode, shim
from headway.live.replay import replay
from live.daemon.inside import Obedient, make_spec, scheduling, until

A = Attempt("1", 1)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.01)


def use(
    folder: Path, executor: Obedient, work: Callable[[Daemon], Coroutine[Any, Any, None]]
) -> None:
    """Schedule while some work is done."""

    async def main() -> None:
        async with scheduling(folder, executor) as daemon:
            await work(daemon)

    asyncio.run(main())


def fails(*_: object) -> None:
    raise RuntimeError("no such luck")


def test_the_shim_and_the_core_mean_the_same_by_never_started() -> None:
    assert shim.OUT_OF_RESOURCES == NEVER_STARTED


def test_an_executor_that_cannot_launch_fails_the_job_with_its_error(tmp_path: Path) -> None:
    executor = Obedient()
    executor.at_launch = fails

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec(retries=1))
        found = await until(lambda: (one := daemon.record("1")).finished and one)
        assert (found.state, found.attempts) == ("failed", 2)
        assert "no such luck" in found.reason
        assert len(daemon.attempts) == 0

    use(tmp_path, executor, work)
    assert executor.stopped == executor.launched == [A, Attempt("1", 2)]


def test_an_executor_that_cannot_stop_is_asked_again(tmp_path: Path) -> None:
    executor = Obedient()

    def stop(attempt: Attempt) -> None:
        if len(executor.stopped) < 3:
            fails()
        executor.ends(attempt, 143)

    executor.at_stop = stop

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await until(lambda: daemon.record("1").state == "running")
        daemon.cancel("1")
        await until(lambda: daemon.record("1").state == "cancelled")

    use(tmp_path, executor, work)
    assert executor.stopped == [A] * 3


def test_attempts_that_never_start_count_for_no_retry_now_or_later(tmp_path: Path) -> None:
    executor = Obedient()

    def launch(attempt: Attempt) -> None:
        if attempt.number < 4:
            executor.ends(attempt, NEVER_STARTED, "No space left on device")
        elif attempt.number < 6:
            executor.ends(attempt, 7, "its own fault")

    executor.at_launch = launch

    async def first(daemon: Daemon) -> None:
        await daemon.submit(make_spec(retries=2))
        await until(lambda: daemon.record("1").state == "running")
        found = daemon.record("1")
        assert (found.attempts, found.unstarted) == (6, 3)

    use(tmp_path, executor, first)
    later = Obedient(running=[Attempt("1", 6)])
    later.at_launch = lambda _: None

    async def second(daemon: Daemon) -> None:
        later.ends(Attempt("1", 6), 7, "its own fault")
        found = daemon.record("1")
        assert (found.state, found.attempts, found.reason) == ("failed", 6, "its own fault")

    use(tmp_path, later, second)


def test_what_could_not_start_says_so_waits_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(attempts, "LONGEST_PAUSE_S", 3600.0)
    executor = Obedient()
    executor.at_launch = lambda attempt: executor.ends(attempt, NEVER_STARTED, "no \udcff room")

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await until(lambda: daemon.attempts.obstacle(A))
        assert daemon.attempts.obstacle(A) == "no ? room"
        assert daemon.record("1").state == "starting"
        daemon.cancel("1")
        assert daemon.record("1").state == "cancelled"
        assert len(daemon.attempts) == 0

    use(tmp_path, executor, work)
    assert executor.launched == [A]


def test_the_pause_before_a_job_is_tried_again_grows_to_its_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "LONGEST_PAUSE_S", 0.05)
    told: list[Any] = []
    monkeypatch.setattr(
        operator_log, "warning", lambda _, **values: told.append(values["again_in_s"])
    )
    executor = Obedient()
    executor.at_launch = lambda attempt: executor.ends(attempt, NEVER_STARTED)

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await until(lambda: len(told) >= 6)
        daemon.cancel("1")

    use(tmp_path, executor, work)
    assert told[:6] == [0.01, 0.02, 0.04, 0.05, 0.05, 0.05]


def test_a_launch_that_the_end_of_the_scheduler_prevents_is_not_waited_for(tmp_path: Path) -> None:
    executor = Obedient()

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await daemon.submit(make_spec(gpus=1))
        daemon.attempts.closing = True
        await until(lambda: len(daemon.attempts) == 0)

    use(tmp_path, executor, work)
    assert executor.launched == []

    async def again(daemon: Daemon) -> None:
        executor.ends(A, NEVER_STARTED)
        await until(lambda: executor.launched)

    executor.at_recovery = lambda: executor.ends(A, NEVER_STARTED)
    use(tmp_path, executor, again)
    assert executor.launched[0] == Attempt("1", 2)


def test_a_job_that_ends_while_others_are_still_looked_for_has_ended(tmp_path: Path) -> None:
    async def start(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await until(lambda: daemon.record("1").state == "running")

    use(tmp_path, Obedient(), start)
    executor = Obedient(running=[A])
    executor.at_recovery = lambda: executor.ends(A, 0)

    async def restarted(daemon: Daemon) -> None:
        assert daemon.record("1").state == "done"

    use(tmp_path, executor, restarted)


def test_a_restart_places_jobs_by_their_priority_and_not_by_their_number(tmp_path: Path) -> None:
    async def submit(daemon: Daemon) -> None:
        daemon.drain("n1", True)
        for priority in (0, 0, 5, 1):
            await daemon.submit(make_spec(priority=priority))

    use(tmp_path, Obedient(), submit)
    executor = Obedient()
    executor.nodes = [ExecutorNode("n2", "127.0.0.1", 1, 2**30)]

    async def restarted(daemon: Daemon) -> None:
        await until(lambda: executor.launched)

    use(tmp_path, executor, restarted)
    assert executor.launched == [Attempt("3", 1)]
    again = replay(tmp_path / "events.jsonl")
    assert (again.difference, again.decisions) == (None, 1)


def test_a_job_that_cannot_be_taken_over_has_failed(tmp_path: Path) -> None:
    async def submit(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await until(lambda: daemon.record("1").state == "running")
        daemon.book.update("1", spec=make_spec(gpus=0))

    use(tmp_path, Obedient(), submit)
    executor = Obedient(running=[A])

    async def restarted(daemon: Daemon) -> None:
        assert daemon.record("1").state == "failed"
        assert "could not be taken over" in daemon.record("1").reason
        await until(lambda: executor.stopped == [A])

    use(tmp_path, executor, restarted)
