"""Rows of the Slurm logs in the Helios and Acme traces: submission, start and end as dates."""

from __future__ import annotations

from headway.workload.traces.records import Reason, TraceJob, UnusableError, ran_for, some_gpus
from headway.workload.traces.tables import Row

COLUMNS = ("job_id", "gpu_num", "submit_time", "start_time", "end_time")


def logged_job(row: Row) -> TraceJob:
    """Return the job of a row; it runs from its start to its end."""
    gpus = some_gpus(row.gpus("gpu_num"), "gpu_num")
    if row.missing("start_time"):
        raise UnusableError(Reason.NEVER_STARTED, "must be a time.", "start_time")
    if row.missing("end_time"):
        raise UnusableError(Reason.NO_END, "must be a time.", "end_time")
    return TraceJob(
        job_id=row.label("job_id"),
        arrival_ns=row.date_ns("submit_time"),
        duration_ns=ran_for(row.date_ns("start_time"), row.date_ns("end_time"), "end_time"),
        gpus=gpus,
    )
