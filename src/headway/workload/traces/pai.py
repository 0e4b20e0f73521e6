"""Alibaba's PAI trace of 2020: its tables, or its simulator's flat file (Weng et al., NSDI'22)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headway.domain.errors import InputError
from headway.domain.limits import MAX_GPUS
from headway.files import STANDARD
from headway.workload.traces.reading import source_name
from headway.workload.traces.records import (
    WHOLE_GPU,
    FileLine,
    Reason,
    RowLog,
    TraceJob,
    UnusableError,
    converted,
    ran_for,
    some_gpus,
    some_time,
)
from headway.workload.traces.tables import Row, named_rows, raw_rows, under_header

_JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_TASK = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
_INSTANCE = (
    *("job_name", "task_name", "inst_name", "worker_name", "inst_id"),
    *("status", "start_time", "end_time", "machine"),
)
TABLES = {len(columns): columns for columns in (_JOB, _TASK, _INSTANCE)}
"""The tables by number of columns; the published files have no header."""

FLAT = ("job_id", "num_gpu", "submit_time", "duration")


@dataclass(slots=True)
class _Job:
    """A job collected from the tables: its GPU tasks, and when they ran, in ns."""

    where: FileLine
    gpus: int = 0
    milli: int = 0
    tasks: set[str] = field(default_factory=set)
    start_ns: int | None = None
    end_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    fault: UnusableError | None = None
    """Why one of its rows could not be read."""


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the jobs of the flat file, or of pai_task_table with the tables beside it."""
    kinds = {path: _kind(path, log) for path in files}
    if all(kind == FLAT for kind in kinds.values()):
        for path in files:
            rows = raw_rows(path, log)
            named = under_header(next(rows), rows, log, FLAT)
            yield from converted(named, _flat_job, log)
        return
    if FLAT in kinds.values() or _TASK not in kinds.values():
        raise InputError("give PAI's pai_task_table and the tables beside it, or flat files.")
    jobs: dict[str, _Job] = {}
    for kind, add in ((_TASK, _add_task), (_INSTANCE, _add_instance)):
        for path in (path for path in files if kinds[path] == kind):
            for row in _rows(path, kind, log):
                try:
                    add(jobs, row)
                except UnusableError as error:
                    _spoil(jobs, row, error, log)
    lists = [path for path in files if kinds[path] == _JOB]
    if lists:
        for path in lists:
            yield from converted(_rows(path, _JOB, log), lambda row: _listed_job(jobs, row), log)
        for name, job in jobs.items():
            problem = f"job {name} is not in pai_job_table."
            log.drop(job.where, UnusableError(Reason.NOT_LISTED, problem))
        return
    for name, job in jobs.items():
        try:
            yield _finished(name, job, None)
        except UnusableError as error:
            log.drop(job.where, error)


def _kind(path: str, log: RowLog) -> tuple[str, ...]:
    """Return the columns of a file, by its first row."""
    if path == STANDARD:
        raise InputError(
            "PAI's files are read more than once; give paths, not standard input.",
            source=source_name(path),
        )
    quiet = RowLog(log.strict)
    row = next(raw_rows(path, quiet), None)
    if row is None:
        raise InputError("the file is empty.", source=source_name(path))
    if {name.strip() for name in row.fields} >= {"job_id", "num_gpu"}:
        return FLAT
    if len(row.fields) not in TABLES:
        raise InputError(
            f"{len(row.fields)} fields; PAI's tables of jobs, tasks and instances have "
            f"{', '.join(map(str, TABLES))}, and a flat file begins with a header with "
            f"{', '.join(FLAT)}.",
            source=row.source,
            line=row.line,
        )
    return TABLES[len(row.fields)]


def _rows(path: str, columns: tuple[str, ...], log: RowLog) -> Iterator[Row]:
    for row in named_rows(raw_rows(path, log), log, columns):
        if row.text("job_name") != "job_name":
            yield row


def _flat_job(row: Row) -> TraceJob:
    share = 0.0 if row.missing("num_gpu") else row.figure("num_gpu")
    copies = 1 if row.missing("num_inst") else max(1, row.whole("num_inst", MAX_GPUS))
    each, milli = _shared(share / copies, "num_gpu")
    return TraceJob(
        job_id=row.label("job_id"),
        arrival_ns=row.time_ns("submit_time"),
        duration_ns=some_time(row.time_ns("duration"), "duration"),
        gpus=some_gpus(each * copies, "num_gpu"),
        gpu_milli=milli,
    )


def _shared(gpus: float, column: str) -> tuple[int, int]:
    """Return how many GPUs an instance uses, and its share of each in thousandths."""
    if not 0 <= gpus <= MAX_GPUS:
        raise UnusableError(Reason.UNREADABLE, f"must be from 0 to {MAX_GPUS:,}.", column)
    milli = round(gpus * WHOLE_GPU)
    return -(-milli // WHOLE_GPU), min(milli, WHOLE_GPU)


def _spoil(jobs: dict[str, _Job], row: Row, error: UnusableError, log: RowLog) -> None:
    """Leave out the job of an unreadable row; it counts once, however many rows are."""
    job = jobs.get(row.text("job_name"))
    if job is None or log.strict:
        log.drop(row, error)
    else:
        job.fault = error


def _add_task(jobs: dict[str, _Job], row: Row) -> None:
    name = row.label("job_name")
    job = jobs.setdefault(name, _Job(FileLine(row.source, row.line)))
    percent = 0.0 if row.missing("plan_gpu") else row.figure("plan_gpu")
    each, milli = _shared(percent / 100, "plan_gpu")
    if not each:
        return
    copies = 1 if row.missing("inst_num") else max(1, row.whole("inst_num", MAX_GPUS))
    job.gpus += each * copies
    job.milli = max(job.milli, milli)
    job.tasks.add(row.text("task_name"))
    if not row.missing("start_time"):
        job.start_ns = _earlier(job.start_ns, row.time_ns("start_time"))
    if not row.missing("end_time"):
        job.end_ns = _later(job.end_ns, row.time_ns("end_time"))


def _add_instance(jobs: dict[str, _Job], row: Row) -> None:
    job = jobs.get(row.text("job_name"))
    if job is None or row.text("task_name") not in job.tasks:
        return
    if not row.missing("start_time") and not row.missing("end_time"):
        job.first_ns = _earlier(job.first_ns, row.time_ns("start_time"))
        job.last_ns = _later(job.last_ns, row.time_ns("end_time"))


def _listed_job(jobs: dict[str, _Job], row: Row) -> TraceJob:
    name = row.label("job_name")
    job = jobs.pop(name, None)
    if job is None:
        raise UnusableError(Reason.NEVER_STARTED, "must have a task in pai_task_table.", "job_name")
    return _finished(name, job, row.time_ns("start_time"))


def _finished(name: str, job: _Job, submitted_ns: int | None) -> TraceJob:
    """Return the job: it runs from the first start to the last end of its GPU instances."""
    if job.fault is not None:
        raise job.fault
    gpus = some_gpus(job.gpus, "plan_gpu")
    start_ns = job.start_ns if job.first_ns is None else job.first_ns
    end_ns = job.end_ns if job.last_ns is None else job.last_ns
    if start_ns is None:
        raise UnusableError(Reason.NEVER_STARTED, "must be a time.", "start_time")
    if end_ns is None:
        raise UnusableError(Reason.NO_END, "must be a time.", "end_time")
    return TraceJob(
        job_id=name,
        arrival_ns=start_ns if submitted_ns is None else submitted_ns,
        duration_ns=ran_for(start_ns, end_ns, "end_time"),
        gpus=gpus,
        gpu_milli=job.milli,
    )


def _earlier(known_ns: int | None, new_ns: int) -> int:
    return new_ns if known_ns is None else min(known_ns, new_ns)


def _later(known_ns: int | None, new_ns: int) -> int:
    return new_ns if known_ns is None else max(known_ns, new_ns)
