"""Microsoft's Philly trace: the JSON array `cluster_job_log` (Jeon et al., ATC'19)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headway.domain.errors import shown
from headway.workload.traces.json_array import Entry, json_entries
from headway.workload.traces.reading import open_trace, source_name
from headway.workload.traces.records import (
    Reason,
    RowLog,
    TraceJob,
    UnusableError,
    converted,
    ran_for,
    some_gpus,
)
from headway.workload.traces.tables import date_ns


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the jobs of cluster_job_log files."""
    for path in files:
        with open_trace(path, log) as stream:
            yield from converted(json_entries(stream, source_name(path)), _job, log)


def _job(entry: Entry) -> TraceJob:
    """Return a job whose duration is the sum of all attempts with a start, an end and GPUs."""
    job_id = _part(entry.value, "jobid", str, "text")
    attempts = _part(entry.value, "attempts", list, "a list")
    started = [a for a in map(_object, attempts) if a.get("start_time") not in (None, "None")]
    if not started:
        raise UnusableError(Reason.NEVER_STARTED, "must have an attempt with a start.", "attempts")
    ended = [a for a in started if a.get("end_time") not in (None, "None")]
    if not ended:
        raise UnusableError(Reason.NO_END, "must have an attempt with an end.", "attempts")
    duration_ns = gpus = 0
    for attempt in ended:
        start_ns = date_ns(_part(attempt, "start_time", str, "text"), "start_time")
        end_ns = date_ns(_part(attempt, "end_time", str, "text"), "end_time")
        count = _gpus(attempt)
        if count and end_ns != start_ns:
            duration_ns += ran_for(start_ns, end_ns, "end_time")
            gpus = max(gpus, count)
    if not duration_ns and any(_gpus(attempt) for attempt in ended):
        raise UnusableError(Reason.NO_TIME, "must have an attempt of more than 0 s.", "attempts")
    return TraceJob(
        job_id=job_id,
        arrival_ns=date_ns(_part(entry.value, "submitted_time", str, "text"), "submitted_time"),
        duration_ns=duration_ns,
        gpus=some_gpus(gpus, "gpus"),
    )


def _gpus(attempt: dict[str, Any]) -> int:
    servers = map(_object, _part(attempt, "detail", list, "a list"))
    return sum(len(_part(server, "gpus", list, "a list")) for server in servers)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnusableError(
            Reason.UNREADABLE, f"must hold JSON objects, not {shown(value)}.", "attempts"
        )
    return value


def _part(parent: dict[str, Any], key: str, kind: type, called: str) -> Any:
    value = parent.get(key)
    if not isinstance(value, kind) or value == "":
        found = "there is none" if key not in parent else f"not {shown(value)}"
        raise UnusableError(Reason.UNREADABLE, f"must be {called}, {found}.", key)
    return value
