"""Forecasts of a real scheduler, made by its own process: what they say, and what they cost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from headway.domain.errors import HeadwayError, InputError
from headway.experiments.forecaster import NICENESS
from headway.live.api.forecasts import pacing
from headway.live.api.forecasts.pacing import CORE_SHARE, MIN_INTERVAL_S, REFRESH_S, Pacing
from headway.live.daemon.predictions import NEWER
from headway.live.daemon.state_folder import StateFolder, read_address
from headway.testbed.processes import Process
from live.scheduler_process import SLEEPS, SchedulerProcess, python, running_scheduler
from waiting import eventually

TIMES = {"forward_ns": 10_000_000, "backward_ns": 20_000_000, "gradient_bytes": 0}


def forecaster_of(scheduler: SchedulerProcess) -> int | None:
    """Return the process id of a scheduler's forecasting process, if it runs."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            words = (path / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            continue
        if parent == scheduler.process.pid and b"headway.experiments.forecaster" in words:
            return int(path.name)
    return None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    """Return a scheduler with a job that runs and one that waits."""
    with running_scheduler(tmp_path_factory.mktemp("forecasts") / "state") as one:
        first = one.submit(python(SLEEPS), gpus=4, iterations=10**6, **TIMES)
        one.submit(python(SLEEPS), gpus=2, iterations=10**5, **TIMES)
        one.wait_for(first, "running")
        assert forecaster_of(one) is None  # until somebody asks, or a job has run for a while
        yield one


BUSY = ("the forecasting process ", "the forecast is not ready ", "another what-if request ")
"""Answers of a busy machine, or of a process that is started again."""


def ask(scheduler: SchedulerProcess, change: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a what-if request, for which a busy machine may need a while."""
    answers: list[dict[str, Any]] = []
    eventually(lambda: answers or tried(scheduler, change, answers))
    return answers[0]


def tried(
    scheduler: SchedulerProcess, change: dict[str, Any], answers: list[dict[str, Any]]
) -> bool:
    try:
        answers.append(scheduler.client.what_if(change))
    except HeadwayError as error:
        if not str(error).startswith(BUSY):
            raise
    return bool(answers)


def by_id(forecast: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {job["id"]: job for job in forecast["jobs"]}


def test_a_what_if_request_is_answered_by_a_process_of_its_own(shared: SchedulerProcess) -> None:
    submit = {"gpus": 1, "iterations": 1000, **TIMES}
    change = {"policy": "paper", "add_nodes": 1, "network": "100gbe", "submit": submit}
    found = ask(shared, change)
    now, then = found["now"], found["if"]
    assert (now["policy"], then["policy"]) == ("ff+srsf:1", "paper")
    assert set(by_id(now)) == {"1", "2"}
    assert set(by_id(then)) == {"1", "2", "(new)"}
    left_s = (by_id(now)["1"]["finish_ns"] - now["made_ns"]) / 1e9
    assert left_s == pytest.approx(30_000, abs=1)
    assert by_id(now)["2"]["start_ns"] == by_id(now)["1"]["finish_ns"]
    assert by_id(then)["2"]["start_ns"] == then["made_ns"]
    new = by_id(then)["(new)"]
    assert new["finish_ns"] == then["made_ns"] + 30 * 10**9
    assert now["last_left_s"] == pytest.approx(33_000, abs=2)
    assert found["notes"] == []
    process = forecaster_of(shared)
    assert process is not None
    assert os.getpriority(os.PRIO_PROCESS, process) >= NICENESS
    assert ask(shared, {})["if"]["policy"] == "ff+srsf:1"


def test_jobs_show_what_is_predicted_of_them(shared: SchedulerProcess) -> None:
    ask(shared, {})  # A forecast of the present is part of every answer.
    found = shared.client.job("2")
    assert found["predicted_start_ns"] == pytest.approx(3e13, rel=0.01)
    assert found["predicted_finish_ns"] == pytest.approx(3.3e13, rel=0.01)
    assert found["predicted_finish_at"] == pytest.approx(time.time() + 33_000, abs=60)
    first = found["first_prediction"]
    assert first["finish_ns"] == pytest.approx(3.3e13, rel=0.01)
    process = forecaster_of(shared)
    assert process is not None
    os.kill(process, signal.SIGSTOP)  # The next forecast, which would know the job, comes later.
    try:
        third = shared.submit(python(SLEEPS), gpus=1)
        before = shared.client.job(third)
    finally:
        os.kill(process, signal.SIGCONT)
    assert before["predicted_start_ns"] is None
    assert before["prediction_note"] == NEWER
    notes = ask(shared, {})["notes"]
    view = shared.client.job(third)
    shared.client.cancel(third)
    assert view["predicted_start_ns"] is not None
    # Nobody knows when a job ends that says nothing of its iterations.
    assert view["predicted_finish_ns"] is None
    assert view["prediction_note"].startswith("Its end is unknown: it was submitted without a ")
    assert found["prediction_note"] == ""
    assert [note.split()[0] for note in notes] == ["Submitted", "Not"]


def test_what_the_process_uses_is_counted(shared: SchedulerProcess) -> None:
    ask(shared, {})
    before = metric(shared, "headway_forecasts_total")
    used_s = metric(shared, "headway_forecast_cpu_seconds_total")
    assert used_s > 0
    ask(shared, {})
    assert metric(shared, "headway_forecasts_total") > before
    assert metric(shared, "headway_forecast_cpu_seconds_total") > used_s


def metric(scheduler: SchedulerProcess, name: str) -> float:
    """Return a metric without labels."""
    url = read_address(StateFolder(scheduler.folder)).url
    token = (scheduler.folder / "token").read_text().strip()
    request = Request(f"{url}/metrics", headers={"authorization": f"Bearer {token}"})
    with urlopen(request, timeout=60) as response:
        text = response.read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown policy": ({"policy": "x"}, "unknown policy 'x'."),
    "a wrong type": ({"add_nodes": "2"}, "add_nodes: expected int"),
    "an unknown key": ({"nodes": 2}, "object contains unknown field nodes."),
    "no nodes": ({"add_nodes": 0}, "add_nodes: must be at least 1, not 0."),
    "a job without times": (
        {"submit": {"gpus": 1, "iterations": 1}},
        "submit: needs a model, or forward_ns and backward_ns.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_makes_no_sense_is_refused(shared: SchedulerProcess, name: str) -> None:
    change, problem = REFUSED[name]
    with pytest.raises(InputError) as caught:
        ask(shared, change)
    assert str(caught.value).startswith(problem)


def test_a_process_that_is_killed_comes_back_and_is_reported_once(
    shared: SchedulerProcess,
) -> None:
    ask(shared, {})
    process = forecaster_of(shared)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    ask(shared, {})
    assert forecaster_of(shared) not in (None, process)
    assert shared.client.job("2")["predicted_finish_ns"] is not None
    reported = [one for one in shared.log_entries() if "forecasting process" in one["event"]]
    assert [one["level"] for one in reported] == ["warning"]
    assert reported[0]["problem"] in ("ended with code -9", "failed: Connection lost")


def test_another_request_is_refused_while_one_is_computed(shared: SchedulerProcess) -> None:
    ask(shared, {})
    process = forecaster_of(shared)
    assert process is not None
    os.kill(process, signal.SIGSTOP)
    outcomes: list[str] = []
    asking = [threading.Thread(target=lambda: outcomes.append(outcome(shared))) for _ in range(2)]
    for one in asking:
        one.start()
    try:
        eventually(lambda: outcomes)
        assert outcomes[0].startswith("another what-if request is being computed")
    finally:
        os.kill(process, signal.SIGCONT)
        for one in asking:
            one.join()
    assert outcomes[1] == "answered" or outcomes[1].startswith("the forecast is not ready")


def outcome(scheduler: SchedulerProcess) -> str:
    """Return why a request is refused, or that it is not."""
    try:
        scheduler.client.what_if({})
    except HeadwayError as error:
        return str(error)
    return "answered"


def test_the_process_ends_with_the_scheduler_even_if_that_is_killed(tmp_path: Path) -> None:
    with running_scheduler(tmp_path / "state") as one:
        ask(one, {})
        process = forecaster_of(one)
        assert process is not None
        one.kill()
        eventually(lambda: Process.of(process) is None)
        one.start()
        assert forecaster_of(one) is None
        one.stop()
        one.options = ("--no-forecasts",)
        one.start()
        with pytest.raises(InputError, match="this scheduler makes no forecasts"):
            one.client.what_if({})
        assert forecaster_of(one) is None


def test_forecasts_use_their_share_of_a_core_at_most() -> None:
    """Whatever each costs and however often something changes."""
    costs_s = [30.0, 0.5, 0.02, 0.001, 3.0, 0.3, 12.0, *[0.05] * 200]
    one, now_s, used_s = Pacing(), 1_000.0, 0.0
    began_s = now_s
    for cost_s in costs_s:
        while not one.is_due(now_s, changed=True):
            now_s += 0.25
        assert used_s <= CORE_SHARE * (now_s - began_s) + 1e-9
        one.began(now_s)
        now_s += 2 * cost_s
        one.used(cost_s)
        used_s += cost_s
    assert not one.is_due(now_s, changed=True)


def test_cheap_forecasts_are_made_when_something_changes_and_now_and_then() -> None:
    one = Pacing()
    assert one.is_due(50.0, changed=False)
    one.began(50.0)
    one.used(0.01)
    assert not one.is_due(50.0 + 0.9 * MIN_INTERVAL_S, changed=True)
    assert one.is_due(50.0 + MIN_INTERVAL_S, changed=True)
    assert not one.is_due(50.0 + 0.9 * REFRESH_S, changed=False)
    assert one.is_due(50.0 + REFRESH_S, changed=False)


def test_a_process_that_fails_again_and_again_rests_longer_each_time() -> None:
    one, now_s, pauses_s = Pacing(), 0.0, []
    for _ in range(15):
        one.failed(now_s)
        assert one.failing
        assert not one.is_due(now_s, changed=True)
        pauses_s.append(one.rest_s(now_s))
        now_s += pauses_s[-1]
        assert one.rest_s(now_s) == 0.0
    assert pauses_s[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses_s[-1] == pacing.LONGEST_PAUSE_S
    one.succeeded()
    assert not one.failing
    one.failed(now_s)
    assert one.rest_s(now_s) == 1.0
