"""Alibaba's GPU trace of 2023, the list of pods `openb_pod_list_*.csv` (Weng et al., ATC'23)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.workload.traces.records import (
    WHOLE_GPU,
    Reason,
    RowLog,
    TraceJob,
    UnusableError,
    converted,
    ran_for,
    some_gpus,
)
from headway.workload.traces.tables import Row, headed_rows

COLUMNS = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the pods with GPUs; each needs its share of a GPU's memory."""
    return converted(headed_rows(files, log, COLUMNS), _pod, log)


def _pod(row: Row) -> TraceJob:
    gpus = some_gpus(row.gpus("num_gpu"), "num_gpu")
    milli = row.whole("gpu_milli")
    if not 1 <= milli <= WHOLE_GPU:
        raise UnusableError(Reason.UNREADABLE, f"must be from 1 to 1000, not {milli}.", "gpu_milli")
    if row.missing("scheduled_time"):
        raise UnusableError(Reason.NEVER_STARTED, "must be a time.", "scheduled_time")
    if row.missing("deletion_time"):
        raise UnusableError(Reason.NO_END, "must be a time.", "deletion_time")
    return TraceJob(
        job_id=row.label("name"),
        arrival_ns=row.time_ns("creation_time"),
        duration_ns=ran_for(
            row.time_ns("scheduled_time"), row.time_ns("deletion_time"), "deletion_time"
        ),
        gpus=gpus,
        gpu_milli=milli,
    )
