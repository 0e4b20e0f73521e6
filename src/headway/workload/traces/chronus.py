"""Chronus's traces: Philly's and Helios's jobs with deadlines (Gao et al., SoCC'21)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.workload.traces.records import RowLog, TraceJob, converted, some_gpus, some_time
from headway.workload.traces.tables import Row, headed_rows

COLUMNS = ("job_id", "num_gpu", "submit_time", "duration")
MINUTE_NS = 60 * 10**9
"""The unit of its times: submissions span 14 days of minutes, the longest job has three."""


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the jobs; the trace's models and iterations were drawn at random and are not used."""
    return converted(headed_rows(files, log, COLUMNS), _job, log)


def _job(row: Row) -> TraceJob:
    return TraceJob(
        job_id=row.label("job_id"),
        gpus=some_gpus(row.gpus("num_gpu"), "num_gpu"),
        arrival_ns=row.time_ns("submit_time", MINUTE_NS),
        duration_ns=some_time(row.time_ns("duration", MINUTE_NS), "duration"),
    )
