"""Muri's traces: Philly's jobs with models and iteration times (Zhao et al., SIGCOMM'22)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.workload.traces.records import (
    Reason,
    RowLog,
    TraceJob,
    UnusableError,
    converted,
    some_gpus,
    some_time,
)
from headway.workload.traces.tables import Row, headed_rows

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")
MILLISECOND_NS = 10**6


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the jobs with their own iterations, iteration times and models."""
    return converted(headed_rows(files, log, COLUMNS), _job, log)


def _job(row: Row) -> TraceJob:
    gpus = some_gpus(row.gpus("num_gpu"), "num_gpu")
    iterations = row.whole("iterations")
    if iterations < 1:
        raise UnusableError(Reason.NO_TIME, f"must be at least 1, not {iterations}.", "iterations")
    iteration_ns = some_time(row.time_ns("iteration_time", MILLISECOND_NS), "iteration_time")
    return TraceJob(
        job_id=row.label("job_id"),
        arrival_ns=row.time_ns("submit_time", MILLISECOND_NS),
        duration_ns=iterations * iteration_ns,
        gpus=gpus,
        iterations=iterations,
        model=row.label("model_name"),
    )
