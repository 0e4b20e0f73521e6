"""Gavel's `.trace` files, and Shockwave's (Narayanan et al., OSDI'20; Zheng et al., NSDI'23)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from headway.domain.errors import InputError, shown
from headway.workload.traces.reading import open_trace, source_name
from headway.workload.traces.records import (
    SECOND_NS,
    Reason,
    RowLog,
    TraceJob,
    UnusableError,
    converted,
    some_gpus,
    some_time,
)
from headway.workload.traces.tables import Row, Table, raw_rows

_START = ("job_type", "command")
_STEPS = ("num_steps_arg", "needs_data_dir", "total_steps")
LAYOUTS = {
    7: (*_START, *_STEPS, "arrival_time", "scale_factor"),
    9: (*_START, *_STEPS, "scale_factor", "priority_weight", "slo", "arrival_time"),
    10: (
        *(*_START, "working_directory", *_STEPS),
        *("scale_factor", "priority_weight", "slo", "arrival_time"),
    ),
    11: (
        *(*_START, "working_directory", *_STEPS),
        *("scale_factor", "mode", "priority_weight", "slo", "arrival_time"),
    ),
    12: (
        *(*_START, "working_directory", *_STEPS),
        *("scale_factor", "mode", "priority_weight", "slo", "duration", "arrival_time"),
    ),
}
"""The columns by their count; there is no header. The last layout is Shockwave's."""

GPU = "v100"
MAX_JSON_BYTES = 2**26
_PUBLISHED = {"ResNet-18": "resnet18", "ResNet-50": "resnet50"}

Throughputs = dict[str, float]
"""Steps per second by "('job type', GPUs)"."""


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the jobs; a .json file gives the throughputs, for lines without a duration."""
    throughputs: Throughputs = {}
    for path in files:
        if path.endswith((".json", ".json.gz")):
            throughputs |= _throughputs(path, log)
    for path in files:
        if not path.endswith((".json", ".json.gz")):
            rows = _laid_out(raw_rows(path, log, delimiter="\t"), log)
            yield from converted(rows, lambda row: _job(row, throughputs), log)


def _laid_out(rows: Iterator[Row], log: RowLog) -> Iterator[Row]:
    tables: dict[int, Table] = {}
    for row in rows:
        count = len(row.fields)
        if count in LAYOUTS:
            if count not in tables:
                positions = {name: position for position, name in enumerate(LAYOUTS[count])}
                tables[count] = Table(row.source, positions)
            row.table = tables[count]
            yield row
        else:
            known = ", ".join(map(str, LAYOUTS))
            problem = f"{count} tab-separated fields; a line of Gavel's has {known}."
            log.drop(row, UnusableError(Reason.FIELDS, problem))


def _job(row: Row, throughputs: Throughputs) -> TraceJob:
    job_type = row.label("job_type")
    steps = row.whole("total_steps")
    if steps < 1:
        raise UnusableError(Reason.NO_TIME, f"must be at least 1, not {steps}.", "total_steps")
    gpus = some_gpus(row.gpus("scale_factor"), "scale_factor")
    if row.missing("duration"):
        duration_ns = round(steps * SECOND_NS / _speed(row, job_type, gpus, throughputs))
    else:
        duration_ns = row.time_ns("duration")
    name = re.sub(r" \(batch size \d+\)$", "", job_type)
    return TraceJob(
        job_id=str(row.number - 1),
        arrival_ns=row.time_ns("arrival_time"),
        duration_ns=some_time(duration_ns, "total_steps"),
        gpus=gpus,
        iterations=steps,
        model=_PUBLISHED.get(name, name),
    )


def _speed(row: Row, job_type: str, gpus: int, throughputs: Throughputs) -> float:
    if not throughputs:
        raise InputError(
            "has steps but no durations; give Gavel's throughputs file too, such as "
            "simulation_throughputs.json.",
            source=row.source,
            line=row.line,
        )
    speed = throughputs.get(f"('{job_type}', {gpus})", 0.0)
    if speed <= 0:
        problem = f"has no throughput on {gpus} {GPU} GPUs: {shown(job_type)}."
        raise UnusableError(Reason.UNKNOWN_TYPE, problem, "job_type")
    return speed


def _throughputs(path: str, log: RowLog) -> Throughputs:
    """Read the steps per second of each job type, alone on V100 GPUs."""
    source = source_name(path)
    with open_trace(path, log) as stream:
        data = stream.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise InputError(f"longer than {MAX_JSON_BYTES:,} bytes.", source=source)
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}.", source=source) from None
    types = found.get(GPU) if isinstance(found, dict) else None
    if not isinstance(types, dict):
        raise InputError(
            f'must be Gavel\'s throughputs, {{"{GPU}": {{"(\'job type\', GPUs)": …}}}}.',
            source=source,
        )
    return {
        key: float(value["null"])
        for key, value in types.items()
        if isinstance(value, dict) and isinstance(value.get("null"), (int, float))
    }
