"""Attempts that cannot be started, stopped or found: every job still ends as it should."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from headway.live import operator_log
from headway.live.api.page_view import PageView
from headway.live.api.views import job_view, status_view
from headway.live.core.events import NEVER_STARTED
from headway.live.daemon import attempts
from headway.live.daemon.daemon import ATTACH_TIMEOUT_S, Daemon
from headway.live.executors import Attempt, ExecutorNode, shim
from headway.live.replay import replay
from live.daemon.in_process import FakeExecutor, make_spec, running_daemon
from waiting import eventually_async

A = Attempt("1", 1)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.01)


def use(
    folder: Path, executor: FakeExecutor, work: Callable[[Daemon], Coroutine[Any, Any, None]]
) -> None:
    """Run some work with a daemon."""

    async def main() -> None:
        async with running_daemon(folder, executor) as daemon:
            await work(daemon)

    asyncio.run(main())


def fails(*_: object) -> None:
    raise RuntimeError("no such luck")


def test_the_shim_and_the_core_use_the_same_code_for_never_started() -> None:
    assert shim.OUT_OF_RESOURCES == NEVER_STARTED


def test_a_failed_launch_fails_the_job_with_the_executors_error(tmp_path: Path) -> None:
    executor = FakeExecutor()
    executor.on_launch = fails

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec(retries=1))
        await eventually_async(lambda: daemon.registry["1"].finished)
        found = daemon.registry["1"]
        assert (found.state, found.attempts) == ("failed", 2)
        assert "no such luck" in found.reason
        assert len(daemon.attempts) == 0

    use(tmp_path, executor, work)
    assert executor.stopped == executor.launched == [A, Attempt("1", 2)]


def test_a_job_on_several_nodes_that_does_not_ask_the_gate_says_so(tmp_path: Path) -> None:
    executor = FakeExecutor()
    executor.nodes.append(ExecutorNode("n2", "127.0.0.1", 3, 2**30))

    async def work(daemon: Daemon) -> None:
        for gpus in (2, 1, 1):
            await daemon.submit(make_spec(gpus=gpus))
        await eventually_async(lambda: daemon.registry.counts()["running"] == 3)
        page = PageView(daemon)
        await page.first()
        assert daemon.ungated() == []
        daemon.clock.advance_to(daemon.clock.now_ns() + round(ATTACH_TIMEOUT_S * 1e9))
        assert status_view(daemon, {})["ungated"] == ["1"]
        seen = job_view(daemon, "1")
        assert seen["ungated"]
        assert seen["why"] == (
            "running on n1, n2; does not ask the gate (add headway.torch.attach)."
        )
        assert not job_view(daemon, "2")["ungated"]
        assert [(job.record.job_id, job.why) for job in (await page.changes()).jobs] == [
            ("1", seen["why"])
        ]
        metrics = generate_latest(daemon.metrics.registry).decode()
        for line in ("jobs_ungated 1.0", "slots 4.0", "slots_free 0.0"):
            assert f"headway_{line}\n" in metrics
        daemon.gate_events.worker_attached("1", 1, 1)
        assert not job_view(daemon, "1")["ungated"]
        assert [job.why for job in (await page.changes()).jobs] == ["running on n1, n2."]

    use(tmp_path, executor, work)


def test_a_failed_stop_is_retried(tmp_path: Path) -> None:
    executor = FakeExecutor()

    def stop(attempt: Attempt) -> None:
        if len(executor.stopped) < 3:
            fails()
        executor.end(attempt, 143)

    executor.on_stop = stop

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await eventually_async(lambda: daemon.registry["1"].state == "running")
        await daemon.cancel("1")
        await eventually_async(lambda: daemon.registry["1"].state == "cancelled")

    use(tmp_path, executor, work)
    assert executor.stopped == [A] * 3


def test_attempts_that_never_start_use_up_no_retry_even_after_a_restart(tmp_path: Path) -> None:
    executor = FakeExecutor()

    def launch(attempt: Attempt) -> None:
        if attempt.number < 4:
            executor.end(attempt, NEVER_STARTED, "No space left on device")
        elif attempt.number < 6:
            executor.end(attempt, 7, "job error")

    executor.on_launch = launch

    async def first(daemon: Daemon) -> None:
        await daemon.submit(make_spec(retries=2))
        await eventually_async(lambda: daemon.registry["1"].state == "running")
        found = daemon.registry["1"]
        assert (found.attempts, found.unstarted) == (6, 3)

    use(tmp_path, executor, first)
    later = FakeExecutor(running=[Attempt("1", 6)])
    later.on_launch = lambda _: None

    async def second(daemon: Daemon) -> None:
        later.end(Attempt("1", 6), 7, "job error")
        found = daemon.registry["1"]
        assert (found.state, found.attempts, found.reason) == ("failed", 6, "job error")

    use(tmp_path, later, second)


def test_a_node_lost_before_its_job_was_launched_uses_up_no_retry(tmp_path: Path) -> None:
    executor = FakeExecutor()

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        daemon.node_lost("n1")  # The launch waits for the disk.
        assert daemon.registry["1"].state == "stopping"
        daemon.node_up(executor.nodes[0])
        await eventually_async(lambda: daemon.registry["1"].state == "running")
        found = daemon.registry["1"]
        assert (found.attempts, found.unstarted) == (2, 1)

    use(tmp_path, executor, work)
    assert executor.launched == [Attempt("1", 2)]


def test_an_attempt_that_could_not_start_says_why_while_it_pauses_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(attempts, "MAX_PAUSE_S", 3600.0)
    executor = FakeExecutor()
    executor.on_launch = lambda attempt: executor.end(attempt, NEVER_STARTED, "no \udcff room")

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await eventually_async(lambda: daemon.attempts.start_problem(A))
        assert daemon.attempts.start_problem(A) == "no ? room"
        assert daemon.registry["1"].state == "starting"
        await daemon.cancel("1")
        assert daemon.registry["1"].state == "cancelled"
        assert len(daemon.attempts) == 0

    use(tmp_path, executor, work)
    assert executor.launched == [A]


def test_the_pause_before_a_retry_doubles_up_to_its_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "MAX_PAUSE_S", 0.05)
    pauses_s: list[Any] = []
    monkeypatch.setattr(
        operator_log, "warning", lambda _, **values: pauses_s.append(values["retry_in_s"])
    )
    executor = FakeExecutor()
    executor.on_launch = lambda attempt: executor.end(attempt, NEVER_STARTED)

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await eventually_async(lambda: len(pauses_s) >= 6)
        await daemon.cancel("1")

    use(tmp_path, executor, work)
    assert pauses_s[:6] == [0.01, 0.02, 0.04, 0.05, 0.05, 0.05]


def test_a_launch_prevented_by_shutdown_is_not_waited_for(tmp_path: Path) -> None:
    executor = FakeExecutor()

    async def work(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await daemon.submit(make_spec(gpus=1))
        daemon.attempts.closing = True
        await eventually_async(lambda: len(daemon.attempts) == 0)

    use(tmp_path, executor, work)
    assert executor.launched == []

    async def again(daemon: Daemon) -> None:
        executor.end(A, NEVER_STARTED)
        await eventually_async(lambda: executor.launched)

    executor.on_recovery = lambda: executor.end(A, NEVER_STARTED)
    use(tmp_path, executor, again)
    assert executor.launched[0] == Attempt("1", 2)


@pytest.mark.parametrize(
    ("seen", "then", "unstarted"), [("starting", "running", 1), ("running", "failed", 0)]
)
def test_an_attempt_without_a_trace_runs_again_only_if_it_was_never_seen_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: str, then: str, unstarted: int
) -> None:
    class Slow(FakeExecutor):
        async def launch(self, *_: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(attempts, "CLOSE_TIMEOUT_S", 0.01)

    async def start(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await eventually_async(lambda: daemon.registry["1"].state == seen)

    use(tmp_path, Slow() if seen == "starting" else FakeExecutor(), start)
    executor = FakeExecutor()

    async def restarted(daemon: Daemon) -> None:
        await eventually_async(lambda: daemon.registry["1"].state == then)
        found = daemon.registry["1"]
        assert (found.attempts, found.unstarted) == (1 + unstarted, unstarted)
        assert ("no processes and no folder" in found.reason) == (then == "failed")

    use(tmp_path, executor, restarted)


def test_a_job_that_ends_during_recovery_is_done(tmp_path: Path) -> None:
    async def start(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await eventually_async(lambda: daemon.registry["1"].state == "running")

    use(tmp_path, FakeExecutor(), start)
    executor = FakeExecutor(running=[A])
    executor.on_recovery = lambda: executor.end(A, 0)

    async def restarted(daemon: Daemon) -> None:
        assert daemon.registry["1"].state == "done"

    use(tmp_path, executor, restarted)


def test_a_restart_places_jobs_by_priority_and_not_by_id(tmp_path: Path) -> None:
    async def submit(daemon: Daemon) -> None:
        await daemon.drain("n1", True)
        for priority in (0, 0, 5, 1):
            await daemon.submit(make_spec(priority=priority))

    use(tmp_path, FakeExecutor(), submit)
    executor = FakeExecutor()
    executor.nodes = [ExecutorNode("n2", "127.0.0.1", 1, 2**30)]

    async def restarted(daemon: Daemon) -> None:
        await eventually_async(lambda: executor.launched)

    use(tmp_path, executor, restarted)
    assert executor.launched == [Attempt("3", 1)]
    again = replay(tmp_path / "events.jsonl")
    assert (again.difference, again.decisions) == (None, 1)


def test_a_job_that_cannot_be_restored_has_failed(tmp_path: Path) -> None:
    async def submit(daemon: Daemon) -> None:
        await daemon.submit(make_spec())
        await eventually_async(lambda: daemon.registry["1"].state == "running")
        daemon.registry.update("1", spec=make_spec(gpus=0))

    use(tmp_path, FakeExecutor(), submit)
    executor = FakeExecutor(running=[A])

    async def restarted(daemon: Daemon) -> None:
        assert daemon.registry["1"].state == "failed"
        assert "could not be restored" in daemon.registry["1"].reason
        await eventually_async(lambda: executor.stopped == [A])

    use(tmp_path, executor, restarted)
