"""What forecasts say of jobs, and how good they were."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from headway.live.core.forecast import Forecast, JobForecast
from headway.live.core.job_state import JobState
from headway.live.daemon.job_record import JobRecord, Prediction
from headway.live.daemon.metrics import Metrics
from headway.live.daemon.predictions import (
    KEPT_PREDICTIONS,
    NEWER,
    NOT_YET,
    ForecastView,
    Predicted,
    PredictionHistory,
    Predictions,
)
from headway.live.executors import Attempt
from live.daemon.in_process import FakeExecutor, make_spec, running_daemon
from waiting import eventually_async

SECOND = 10**9


def forecast(made_ns: int, **finish_ns: int | None) -> Forecast:
    """Return a forecast of jobs that start at once; job ids are given as j1, j2, …"""
    jobs = tuple(
        JobForecast(name.removeprefix("j"), "running", made_ns, one)
        for name, one in finish_ns.items()
    )
    return Forecast.of(made_ns, "paper", jobs)


def test_an_error_is_a_share_of_the_time_that_was_left() -> None:
    assert Prediction(100, 280).error_share(300) == pytest.approx(0.1)
    assert Prediction(100, 500).error_share(300) == pytest.approx(1.0)
    assert Prediction(0, 300).error_share(300) == 0.0


def test_averages_are_over_the_jobs_that_can_run() -> None:
    found = forecast(SECOND, j1=3 * SECOND, j2=None, j3=5 * SECOND)
    assert (found.average_left_s, found.last_left_s) == (3.0, 4.0)
    nothing = forecast(SECOND, j1=None)
    assert (nothing.average_left_s, nothing.last_left_s) == (0.0, 0.0)


@pytest.mark.parametrize("count", [1, 5, 33, 400, 5_000])
def test_the_prediction_closest_to_the_half_is_kept_of_any_number(count: int) -> None:
    history = PredictionHistory()
    for number in range(count):
        history.add(Prediction(number * SECOND, number))
    assert len(history) <= KEPT_PREDICTIONS
    half_ns = (count - 1) * SECOND // 2
    found = history.closest(half_ns)
    assert found is not None
    assert abs(found.made_ns - half_ns) <= max(SECOND // 2, 2 * count * SECOND // KEPT_PREDICTIONS)


def test_without_predictions_there_is_none_for_the_half() -> None:
    assert PredictionHistory().closest(5) is None


def sampled(metrics: Metrics, made: str) -> tuple[float, float]:
    """Return the number and the sum of the errors in the metrics."""
    name, label = "headway_forecast_error_ratio", {"made": made}
    count, total = (
        metrics.registry.get_sample_value(f"{name}_{part}", label) for part in ("count", "sum")
    )
    assert count is not None
    assert total is not None
    return count, total


def test_first_and_half_predictions_of_a_job_are_kept_until_it_ends(tmp_path: Path) -> None:
    async def main() -> None:
        executor = FakeExecutor(slots=1)
        async with running_daemon(tmp_path, executor) as one:
            await one.submit(make_spec(iterations=10))
            await one.submit(make_spec(iterations=10))
            await eventually_async(lambda: one.registry["1"].state == "running")
            nothing = one.predictions.view
            assert nothing is None
            assert one.predictions.of(one.registry["1"]) == Predicted(note=NOT_YET)
            now_ns = one.clock.now_ns()
            await one.take_forecast(forecast(now_ns, j1=None, j2=None))
            assert one.registry["1"].first_prediction is None
            made_ns = one.registry["1"].submitted_ns
            await one.take_forecast(forecast(made_ns, j1=now_ns + 50, j2=now_ns + 70))
            await one.take_forecast(forecast(now_ns, j1=now_ns + 60, j2=now_ns + 80, j9=5))
            assert one.predictions.of(one.registry["2"]) == Predicted(now_ns, now_ns + 80)
            while one.clock.now_ns() < made_ns + 4 * (now_ns - made_ns):
                await asyncio.sleep(0.01)  # The second was made closer to the half.
            executor.end(Attempt("1", 1), 0)
            record = one.registry["1"]
            assert record.state == "done"
            assert record.first_prediction == Prediction(made_ns, now_ns + 50)
            assert record.half_prediction == Prediction(now_ns, now_ns + 60)
            assert one.predictions.of(record) == Predicted()
            assert record.ended_ns is not None
            expected = record.first_prediction.error_share(record.ended_ns)
            count, total = sampled(one.metrics, "first")
            assert count == 1
            assert total == pytest.approx(expected)
            view = one.predictions.view
            assert view is not None
            assert view.error.jobs == 1
            assert view.error.median_share == pytest.approx(expected)
            # Only jobs that end by themselves tell how good a prediction was.
            await eventually_async(lambda: one.registry["2"].state == "running")
            await one.cancel("2")
            await eventually_async(lambda: one.registry["2"].state == "cancelled")
            assert sampled(one.metrics, "first")[0] == 1
            third = await one.submit(make_spec())
            await one.take_forecast(None, "There is no forecast: x.")
            # How good predictions were is known without a forecast, and after a restart.
            assert one.predictions.view == ForecastView(None, "", view.error)
            assert one.predictions.of(third).note == "There is no forecast: x."
        async with running_daemon(tmp_path, FakeExecutor()) as later:
            assert later.registry["1"] == record
            assert later.predictions.view == ForecastView(None, "", view.error)

    asyncio.run(main())


def test_a_guess_is_shown_and_not_scored(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_daemon(tmp_path, FakeExecutor(slots=1)) as one:
            record = await one.submit(make_spec(iterations=10))
            now_ns = one.clock.now_ns()
            guess = JobForecast(record.job_id, "queued", now_ns, now_ns + 50, "a guess")
            await one.take_forecast(Forecast.of(now_ns, "paper", (guess,)))
            assert one.predictions.of(record) == Predicted(now_ns, now_ns + 50, "a guess")
            assert one.registry[record.job_id].first_prediction is None
            known = msgspec.structs.replace(guess, note="", finish_ns=now_ns + 60)
            await one.take_forecast(Forecast.of(now_ns, "paper", (known,)))
            first = one.registry[record.job_id].first_prediction
            assert first == Prediction(now_ns, now_ns + 60)

    asyncio.run(main())


def test_a_job_that_ends_while_a_forecast_is_taken_over_leaves_nothing_behind() -> None:
    record = JobRecord(
        job_id="1",
        spec=make_spec(),
        state=JobState.RUNNING,
        submitted_ns=0,
        submitted_at=0.0,
    )
    predictions = Predictions([], Metrics())
    first: list[Prediction] = []

    async def main() -> None:
        await predictions.take(
            forecast(10, j1=20, j2=30),
            lambda job_id: record if job_id == "1" else None,
            lambda _, prediction: first.append(prediction),
        )

    asyncio.run(main())
    assert first == [Prediction(10, 20)]
    other = msgspec.structs.replace(record, job_id="2")
    assert predictions.of(other) == Predicted(note=NEWER)
    assert predictions.of(record) == Predicted(10, 20)
    done = msgspec.structs.replace(
        record, state=JobState.DONE, ended_ns=20, first_prediction=first[0]
    )
    assert predictions.ended(done).half_prediction == Prediction(10, 20)
    # What is said of a job that has ended comes from its record alone.
    assert predictions.ended(done).half_prediction is None
