"""The Philly trace as Pollux's simulator keeps it (Qiao et al., OSDI'21)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.workload.traces.records import RowLog, TraceJob, converted, some_gpus, some_time
from headway.workload.traces.tables import Row, headed_rows

COLUMNS = ("timestamp", "duration", "num_gpus")


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the jobs; they have no ids, so each gets its row number, from 0 below the header."""
    return converted(headed_rows(files, log, COLUMNS), _job, log)


def _job(row: Row) -> TraceJob:
    return TraceJob(
        job_id=str(row.number - 2),
        arrival_ns=row.date_ns("timestamp"),
        duration_ns=some_time(row.time_ns("duration"), "duration"),
        gpus=some_gpus(row.gpus("num_gpus"), "num_gpus"),
    )
