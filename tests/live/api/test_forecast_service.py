"""Asking the forecasting process, in the test's own process: whatever that process does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headway.domain.errors import InputError
from headway.live import operator_log
from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.forecasts import pacing, process, service
from headway.live.api.forecasts.service import ForecastService
from headway.live.api.views import state_view
from headway.live.core.core import Core
from headway.live.core.events import JobSpec, JobSubmitted, NodeUp
from headway.live.core.forecast import Change, Forecast
from headway.live.core.present_state import PresentState
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.errors import ConflictError, UnavailableError
from headway.network.contention import NetworkModel
from live.daemon.in_process import FakeExecutor, make_spec, running_daemon

ANSWERS = "import sys\nfor line in sys.stdin: print(%r, flush=True)"
FORECAST = '{"made_ns": 5, "policy": "paper", "average_left_s": 1, "last_left_s": 2, "jobs": []}'


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings in the operator log."""
    found: list[str] = []

    def warning(event: str, **values: Any) -> None:
        found.append(f"{event}: {values['problem']}")

    monkeypatch.setattr(operator_log, "warning", warning)
    return found


def run_with(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    work: Callable[[ForecastService, Daemon], Awaitable[None]],
    jobs: int = 1,
) -> None:
    """Run some work with forecasts that a script answers, and a job in the queue."""
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", script))

    async def main() -> None:
        async with running_daemon(folder, FakeExecutor(slots=0)) as daemon:
            for _ in range(jobs):
                await daemon.submit(make_spec(iterations=5))
            one = ForecastService(daemon, DaemonCalls(), enabled=True)
            running = asyncio.create_task(one.run())
            try:
                await work(one, daemon)
            finally:
                running.cancel()
                await asyncio.wait([running])

    asyncio.run(main())


async def problem_of(asked: Awaitable[object]) -> str:
    with pytest.raises(UnavailableError) as caught:
        await asked
    return str(caught.value)


FAILURES = {
    "ends at once": ("raise SystemExit(3)", "ended with code 3"),
    "answers nonsense": (ANSWERS % "nonsense", "failed: "),
    "answers something else": (ANSWERS % '{"answer": 1}', "failed: "),
    "hangs": ("import time; time.sleep(600)", "did not answer within 1 s"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_process_that_fails_is_reported_once_and_rests(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    script, problem = FAILURES[name]
    monkeypatch.setattr(process, "TIMEOUT_S", 1.0 if name == "hangs" else process.TIMEOUT_S)
    monkeypatch.setattr(pacing, "FIRST_PAUSE_S", 600.0)

    async def work(one: ForecastService, daemon: Daemon) -> None:
        assert problem in await problem_of(one.what_if(Change()))
        again = await problem_of(one.what_if(Change()))
        assert again.startswith("the forecasting process has failed; it is started again in ")
        assert daemon.predictions.view is None

    run_with(tmp_path, monkeypatch, script, work)
    (warning,) = warnings
    assert warning.startswith("forecasting process failed; ")
    assert problem in warning


@pytest.mark.parametrize(
    ("does", "pause_s"), [("time.sleep(600)", 1), ("exec('while True: pass')", 3)]
)
def test_no_old_forecast_is_shown_while_the_process_hangs_and_it_is_back_soon(
    does: str, pause_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(service, "LATE_S", 0.1)
    monkeypatch.setattr(process, "TIMEOUT_S", 2.0)
    if pause_s > 1:  # Any CPU time has to be paid for until the longest pause is over.
        monkeypatch.setattr(pacing, "CORE_SHARE", 1e-6)
        monkeypatch.setattr(pacing, "LONGEST_PAUSE_S", float(pause_s))

    async def work(one: ForecastService, daemon: Daemon) -> None:
        shown: list[str] = []
        take = daemon.take_forecast

        async def record(forecast: Forecast | None, problem: str = "") -> None:
            shown.append(problem)
            await take(forecast, problem)

        monkeypatch.setattr(daemon, "take_forecast", record)
        assert "did not answer within 2 s" in await problem_of(one.what_if(Change()))
        assert shown == [
            "There is no forecast: the forecasting process has not answered for 0.1 s.",
            "There is no forecast: the forecasting process did not answer within 2 s; it is "
            f"started again after {pause_s} s.",
        ]

    run_with(tmp_path, monkeypatch, f"import time; {does}", work)


def test_a_process_that_cannot_be_started_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    async def work(one: ForecastService, daemon: Daemon) -> None:
        monkeypatch.setattr(process, "COMMAND", ("/nowhere/python",))
        assert "cannot be started: No such file" in await problem_of(one.what_if(Change()))

    run_with(tmp_path, monkeypatch, "", work)
    assert len(warnings) == 1


def test_an_answer_is_taken_over_and_what_it_cost_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(one: ForecastService, daemon: Daemon) -> None:
        found = await one.what_if(Change())
        assert (found.now.policy, found.changed.policy, found.notes) == ("paper", "paper", ())
        view = daemon.predictions.view
        assert view is not None
        assert (view.made_ns, view.policy, view.error.median_share) == (5, "paper", None)
        await one.what_if(Change())
        registry = daemon.metrics.registry
        assert registry.get_sample_value("headway_forecasts_total") == 2
        # The process says what it has used in all, and that is the same after both.
        assert registry.get_sample_value("headway_forecast_cpu_seconds_total") == 100.0

    answer = f'{{"cpu_s": 100.0, "now": {FORECAST}}}'
    run_with(tmp_path, monkeypatch, ANSWERS % answer, work)


def test_one_request_at_a_time_is_computed_and_one_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "WHAT_IF_TIMEOUT_S", 0.05)

    async def work(one: ForecastService, daemon: Daemon) -> None:
        problem = await problem_of(one.what_if(Change()))
        assert problem == "the forecast was not ready within 0.05 s; try again later."
        with pytest.raises(ConflictError, match="another what-if request is being computed"):
            await one.what_if(Change())

    run_with(tmp_path, monkeypatch, "import time; time.sleep(600)", work)


def test_a_refused_change_and_a_present_without_forecast_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    async def refused(one: ForecastService, daemon: Daemon) -> None:
        with pytest.raises(InputError, match="no such policy"):
            await one.what_if(Change(policy="x"))

    async def nothing(one: ForecastService, daemon: Daemon) -> None:
        for _ in range(2):
            found = await problem_of(one.what_if(Change()))
            assert found == "there is no forecast: the scheduler has no nodes."

    for answer, work in (
        ('{"cpu_s": 1, "refused": "no such policy"}', refused),
        ('{"cpu_s": 1, "problem": "the scheduler has no nodes."}', nothing),
    ):
        folder = tmp_path / work.__name__
        folder.mkdir()
        run_with(folder, monkeypatch, ANSWERS % answer, work)
    assert warnings == ["no forecast: the scheduler has no nodes."]


def test_there_are_no_forecasts_of_too_many_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_JOBS", 2)

    async def work(one: ForecastService, daemon: Daemon) -> None:
        problem = await problem_of(one.what_if(Change()))
        assert problem == "there is no forecast: more than 2 jobs are unfinished."

    run_with(tmp_path, monkeypatch, "raise SystemExit", work, jobs=3)


def test_a_job_that_starts_while_the_state_is_described_is_described_again() -> None:
    core = Core("ff+fifo+srsf:1", NetworkModel())
    for number in range(25):
        spec = JobSpec(command=("x",), gpus=2)
        core.handle(JobSubmitted(at_ns=number, job_id=str(number), spec=spec))

    async def main() -> PresentState:
        viewing = asyncio.create_task(state_view(core, lambda: "p", lambda: 100))
        await asyncio.sleep(0)
        assert not viewing.done()
        core.handle(NodeUp(at_ns=50, node="n", gpus=4, memory_bytes=10))
        return await viewing

    state = asyncio.run(main())
    assert [node.slots for node in state.nodes] == [4]
    assert [job.job_id for job in state.jobs] == [str(number) for number in range(25)]
    assert [job.state for job in state.jobs[:3]] == ["starting", "starting", "queued"]
    assert [slot.index for job in state.jobs for slot in job.slots] == [0, 1, 2, 3]
