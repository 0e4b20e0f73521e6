"""What forecasts say of each unfinished job, and how good they were once it is done."""

from __future__ import annotations

import asyncio
import statistics
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from headway.live.core.forecast import Forecast, JobForecast
from headway.live.core.job_state import JobState
from headway.live.daemon.job_record import JobRecord, Prediction
from headway.live.daemon.metrics import Metrics

KEPT_ERRORS = 1000
"""Finished jobs over which the accuracy is taken: the latest."""
KEPT_PREDICTIONS = 32
"""Predictions kept of a job; when there are more, every other one is dropped."""
NOT_YET = (
    "There is no forecast yet: the first comes once a job has run for some seconds, and later if "
    "the simulator must be compiled first."
)
NEWER = "It is newer than the latest forecast."
_JOBS_PER_SLICE = 50
"""Jobs updated before other tasks of the event loop get to run."""


class Accuracy(msgspec.Struct, frozen=True):
    """How far off the first predictions of finished jobs were: the median, None without jobs."""

    jobs: int
    median_share: float | None


class ForecastView(msgspec.Struct, frozen=True):
    """The latest forecast, without its jobs, if there is one, and how good forecasts were."""

    made_ns: int | None
    policy: str
    error: Accuracy


class Predicted(NamedTuple):
    """When a job starts and ends; the note says why that is not known, or only a guess."""

    start_ns: int | None = None
    finish_ns: int | None = None
    note: str = ""


class PredictionHistory:
    """The predictions of a job's end, evenly spread over its life so far."""

    def __init__(self) -> None:
        self._kept: list[Prediction] = []
        self._gap_ns = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, prediction: Prediction) -> None:
        """Keep a prediction, unless the last one is too recent."""
        kept = self._kept
        if kept and prediction.made_ns - kept[-1].made_ns < self._gap_ns:
            return
        kept.append(prediction)
        if len(kept) > KEPT_PREDICTIONS:
            del kept[1::2]
            self._gap_ns = (kept[-1].made_ns - kept[0].made_ns) // (len(kept) - 1)

    def closest(self, at_ns: int) -> Prediction | None:
        """Return the prediction that was made closest to a time."""
        return min(self._kept, key=lambda one: abs(one.made_ns - at_ns), default=None)


class Predictions:
    """The latest forecast, and what was predicted of each unfinished job.

    It belongs to the scheduler's loop. Earlier predictions of running jobs are lost when the
    scheduler stops, but for the first, which is part of a job's record.
    """

    def __init__(self, records: Iterable[JobRecord], metrics: Metrics) -> None:
        self._metrics = metrics
        self.problem = NOT_YET  # why there is no forecast, if there is none
        self._latest: Forecast | None = None
        self._by_job: dict[str, JobForecast] = {}
        self._histories: dict[str, PredictionHistory] = {}
        self._errors: deque[float] = deque(maxlen=KEPT_ERRORS)
        self._accuracy: Accuracy | None = None  # until it is asked for
        for record in records:
            self._count_error(record)

    def of(self, record: JobRecord) -> Predicted:
        """Return when a job starts and ends by the latest forecast; nothing once it has ended."""
        if record.finished:
            return Predicted()
        if (found := self._by_job.get(record.job_id)) is None:
            return Predicted(note=self.problem if self._latest is None else NEWER)
        return Predicted(found.start_ns, found.finish_ns, found.note)

    @property
    def view(self) -> ForecastView | None:
        """The latest forecast in short; None if there is none, nor any that can be judged."""
        latest = self._latest
        if latest is None:
            return ForecastView(None, "", self.accuracy) if self._errors else None
        return ForecastView(latest.made_ns, latest.policy, self.accuracy)

    @property
    def accuracy(self) -> Accuracy:
        """How good the first predictions of the latest finished jobs were."""
        if self._accuracy is None:
            median = statistics.median(self._errors) if self._errors else None
            self._accuracy = Accuracy(len(self._errors), median)
        return self._accuracy

    async def take(
        self,
        forecast: Forecast,
        unfinished: Callable[[str], JobRecord | None],
        predicted_first: Callable[[str, Prediction], None],
    ) -> None:
        """Take over a forecast, in slices.

        `unfinished` returns a job's record, or None if it has ended; `predicted_first` is called
        with the first prediction of a job. Guesses do not count.
        """
        by_job: dict[str, JobForecast] = {}
        for index, job in enumerate(forecast.jobs, start=1):
            record = unfinished(job.job_id)
            if record is not None:
                by_job[job.job_id] = job
                if job.finish_ns is not None and not job.note:
                    prediction = Prediction(forecast.made_ns, job.finish_ns)
                    self._histories.setdefault(job.job_id, PredictionHistory()).add(prediction)
                    if record.first_prediction is None:
                        predicted_first(job.job_id, prediction)
            if index % _JOBS_PER_SLICE == 0:
                await asyncio.sleep(0)
        self._latest, self._by_job = forecast, by_job

    def clear(self, problem: str) -> None:
        """Forget the latest forecast: there is none of the present, and the problem says why."""
        self.problem = problem
        self._latest = None
        self._by_job = {}

    def ended(self, record: JobRecord) -> JobRecord:
        """Return the record of a job that has ended with what was predicted of it."""
        self._by_job.pop(record.job_id, None)
        history = self._histories.pop(record.job_id, None)
        if history is not None and record.ended_ns is not None:
            half_ns = (record.submitted_ns + record.ended_ns) // 2
            half = history.closest(half_ns)
            record = msgspec.structs.replace(record, half_prediction=half)
        first, at_half = self._count_error(record), _error_share(record, record.half_prediction)
        for made, error in (("first", first), ("half", at_half)):
            if error is not None:
                self._metrics.forecast_error.labels(made).observe(error)
        return record

    def _count_error(self, record: JobRecord) -> float | None:
        error = _error_share(record, record.first_prediction)
        if error is not None:
            self._errors.append(error)
            self._accuracy = None
        return error


def _error_share(record: JobRecord, prediction: Prediction | None) -> float | None:
    """Return the error of a prediction; None unless the job has ended by itself, and well."""
    if record.state is not JobState.DONE or record.ended_ns is None or prediction is None:
        return None
    return prediction.error_share(record.ended_ns)
