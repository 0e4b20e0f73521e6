"""Rows of the Slurm logs in the Helios and Acme traces: submission, start and end as dates."""

from __future__ import annotations

from headway.workload.traces.records import TraceJob, check_ran, ran_for, some_gpus
from headway.workload.traces.tables import Row

COLUMNS = ("job_id", "gpu_num", "submit_time", "start_time", "end_time")


def logged_job(row: Row) -> TraceJob:
    """Return the job of a row; it runs from its start to its end."""
    gpus = some_gpus(row.gpus("gpu_num"), "gpu_num")
    started, ended = (not row.missing(name) for name in ("start_time", "end_time"))
    check_ran(started, ended, "start_time", "end_time")
    return TraceJob(
        job_id=row.label("job_id"),
        arrival_ns=row.date_ns("submit_time"),
        duration_ns=ran_for(row.date_ns("start_time"), row.date_ns("end_time"), "end_time"),
        gpus=gpus,
    )
