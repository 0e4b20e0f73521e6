"""A Slurm cluster's own history: what `sacct` prints, as parsable text or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from headway.domain.errors import InputError, shown
from headway.domain.limits import LONGEST_NS, MAX_GPUS
from headway.workload.traces.json_array import Entry, member_entries
from headway.workload.traces.reading import open_trace, source_name
from headway.workload.traces.records import (
    SECOND_NS,
    Reason,
    RowLog,
    TraceJob,
    UnusableError,
    check_ran,
    converted,
    ran_for,
    some_gpus,
)
from headway.workload.traces.tables import Row, rows_of, under_header

COLUMNS = ("JobID", "Submit", "Start", "End", "AllocTRES")
_BEFORE_JSON = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may come first: a byte order mark, and space."""
_NEVER = frozenset({"", "None", "Unknown"})
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d+)(?=,|$)")


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the jobs; a file that begins with a brace is JSON."""
    for path in files:
        with open_trace(path, log) as stream:
            source = source_name(path)
            beginning = stream.peek(1)  # type: ignore[attr-defined]
            if beginning.lstrip(_BEFORE_JSON).startswith(b"{"):
                yield from converted(member_entries(stream, source, "jobs"), _entry, log)
                continue
            rows = rows_of(stream, source, log, "|")
            first = next(rows, None)
            if first is None:
                header = "|".join(COLUMNS)
                raise InputError(
                    f"the file is empty; it must begin with a header: {header}.", source=source
                )
            jobs = (row for row in under_header(first, rows, log, COLUMNS) if not _is_step(row))
            yield from converted(jobs, _row, log)


def _is_step(row: Row) -> bool:
    """Whether a row is of a step of a job, such as 12.batch: the job has a row of its own."""
    return "." in row.text("JobID")


def _row(row: Row) -> TraceJob:
    gpus = some_gpus(_gpus(row.text("AllocTRES")), "AllocTRES")
    started, ended = (row.text(name) not in _NEVER for name in ("Start", "End"))
    check_ran(started, ended, "Start", "End")
    return TraceJob(
        job_id=row.label("JobID"),
        arrival_ns=row.date_ns("Submit"),
        duration_ns=ran_for(row.date_ns("Start"), row.date_ns("End"), "End"),
        gpus=gpus,
    )


def _gpus(resources: str) -> int:
    """Return the GPUs among allocated resources: all of them, or those of each type."""
    of_types = 0
    for kind, count in _GPUS.findall(resources):
        if len(count) > len(str(MAX_GPUS)) or int(count) > MAX_GPUS:
            raise UnusableError(
                Reason.UNREADABLE, f"must have at most {MAX_GPUS:,} GPUs.", "AllocTRES"
            )
        if not kind:
            return int(count)
        of_types += int(count)
    return of_types


def _entry(entry: Entry) -> TraceJob:
    job_id = entry.value.get("job_id")
    if isinstance(job_id, bool) or not isinstance(job_id, int):
        raise UnusableError(
            Reason.UNREADABLE, f"must be a whole number, not {shown(job_id)}.", "job_id"
        )
    allocated = _part(_part(entry.value, "tres", dict), "allocated", list)
    resources = ",".join(map(_resource, allocated))
    gpus = some_gpus(_gpus(resources), "tres")
    times = _part(entry.value, "time", dict)
    start_ns, end_ns = _time_ns(times, "start"), _time_ns(times, "end")
    check_ran(start_ns > 0, end_ns > 0, "start", "end")
    return TraceJob(
        job_id=str(job_id),
        arrival_ns=_time_ns(times, "submission"),
        duration_ns=ran_for(start_ns, end_ns, "end"),
        gpus=gpus,
    )


def _resource(value: Any) -> str:
    """Return a resource as the text has it, such as gres/gpu=8."""
    if not isinstance(value, dict):
        raise UnusableError(
            Reason.UNREADABLE, f"must hold JSON objects, not {shown(value)}.", "allocated"
        )
    name = f"/{value['name']}" if value.get("name") else ""
    return f"{value.get('type')}{name}={value.get('count')}"


def _part(parent: dict[str, Any], key: str, kind: type) -> Any:
    value = parent.get(key)
    if not isinstance(value, kind):
        called = "a JSON object" if kind is dict else "a list"
        raise UnusableError(Reason.UNREADABLE, f"must be {called}, not {shown(value)}.", key)
    return value


def _time_ns(times: dict[str, Any], key: str) -> int:
    """Return a time in seconds since 1970 in ns; 0 is none."""
    value = times.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnusableError(
            Reason.UNREADABLE, f"must be seconds since 1970, not {shown(value)}.", key
        )
    if value < 0:
        raise UnusableError(Reason.NEGATIVE, f"must be 0 or more, not {value}.", key)
    if value > LONGEST_NS // SECOND_NS:
        most = LONGEST_NS // SECOND_NS
        raise UnusableError(Reason.UNREADABLE, f"must be at most {most:,}, not {value}.", key)
    return value * SECOND_NS
