"""The columns of a workload: how each is read, checked and written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.job import Job
from headway.domain.limits import (
    HORIZON_NS,
    LONGEST_NS,
    MOST_BYTES,
    scaled,
    whole,
)
from headway.domain.models import MEBIBYTE, MODELS, MOST_BATCH
from headway.domain.profiles import at_batch_size

REQUIRED = ("job_id", "arrival_s", "gpus", "iterations")
TIMES = ("forward_ms", "backward_ms")
PROFILE = (*TIMES, "gradient_mb", "memory_mb")
KNOWN = (*REQUIRED, "model", "batch_size", *PROFILE)

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class _Unit:
    """How a column of the file becomes a field of the job."""

    field: str
    factor: float
    least: int
    most: int
    unit: str


_UNITS = {
    "arrival_s": _Unit("arrival_ns", 1e9, 0, HORIZON_NS, "seconds"),
    "forward_ms": _Unit("forward_ns", 1e6, 1, LONGEST_NS, "milliseconds"),
    "backward_ms": _Unit("backward_ns", 1e6, 1, LONGEST_NS, "milliseconds"),
    "gradient_mb": _Unit("gradient_bytes", MEBIBYTE, 0, MOST_BYTES, "MB"),
    "memory_mb": _Unit("memory_bytes", MEBIBYTE, 0, MOST_BYTES, "MB"),
}

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE
)


def check_header(names: list[str]) -> None:
    """Refuse columns that are unknown, missing or doubled; `field` names the one at fault."""
    for place, name in enumerate(names):
        if name not in KNOWN:
            raise InputError(
                f"unknown column {shown(name)}.{did_you_mean(name, KNOWN)}", field=name
            )
        if name in names[:place]:
            raise InputError(f"column '{name}' stands there twice.", field=name)
    missing = [name for name in REQUIRED if name not in names]
    if "model" not in names:
        missing += [name for name in PROFILE if name not in names]
    if missing:
        hint = "" if "model" in names else " ('model' may stand for the last four columns)"
        raise InputError(f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}{hint}.")


def job_from_row(row: Mapping[str, Value]) -> Job:
    """Make a job from a row; an error names the column at fault."""
    present = {
        name: value.strip() if isinstance(value, str) else value
        for name, value in row.items()
        if value is not None and value != ""
    }
    for name in REQUIRED:
        if name not in present:
            raise InputError("must not be empty.", field=name)
    model = str(present.get("model", ""))
    given = {
        _UNITS[name].field: _measure(name, present[name]) for name in PROFILE if name in present
    }
    batch_size = _batch_size(present)
    estimated = False
    if len(given) < len(PROFILE):
        _check_model(model, present, row)
        estimated = _scales(model, batch_size) and not all(name in present for name in TIMES)
        given = _from_model(model, batch_size) | given
    return Job(
        job_id=str(present["job_id"]),
        arrival_ns=_measure("arrival_s", present["arrival_s"]),
        gpus=_integer("gpus", present["gpus"]),
        iterations=_integer("iterations", present["iterations"]),
        model=model,
        batch_size=batch_size,
        estimated=estimated,
        forward_ns=given["forward_ns"],
        backward_ns=given["backward_ns"],
        gradient_bytes=given["gradient_bytes"],
        memory_bytes=given["memory_bytes"],
    )


def _batch_size(present: Mapping[str, Value]) -> int | None:
    if "batch_size" not in present:
        return None
    return whole(_integer("batch_size", present["batch_size"]), "batch_size", 1, MOST_BATCH)


def _check_model(model: str, present: Mapping[str, Value], columns: Collection[str]) -> None:
    """Refuse a row that leaves values to a model which has none."""
    missing = [name for name in PROFILE if name not in present]
    if not model:
        raise InputError(
            f"must not be empty; without a model a row needs {', '.join(PROFILE)}.",
            field="model" if "model" in columns else missing[0],
        )
    if model not in MODELS:
        raise InputError(
            f"unknown model {shown(model)}.{did_you_mean(model, MODELS)} "
            f"(Or give {', '.join(missing)}.)",
            field="model",
        )


def _scales(model: str, batch_size: int | None) -> bool:
    """Whether a model's times must be scaled to this batch size."""
    return batch_size is not None and batch_size != MODELS[model].batch_size


def _from_model(model: str, batch_size: int | None) -> dict[str, int]:
    """Return a model's values; its times at the batch size, if one is given."""
    profile = MODELS[model]
    values = {unit.field: getattr(profile, unit.field) for unit in _profile_units()}
    if batch_size is not None and _scales(model, batch_size):
        for field in ("forward_ns", "backward_ns"):
            values[field] = at_batch_size(values[field], batch_size, profile.batch_size)
    return values


def _measure(name: str, value: Value) -> int:
    unit = _UNITS[name]
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise InputError(f"must be a number of {unit.unit}, not {shown(value)}.", field=name)
        number = float(value)
        return scaled(number, unit.factor, name, unit.least, unit.most, unit.unit, given=value)
    assert value is not None
    return scaled(value, unit.factor, name, unit.least, unit.most, unit.unit)


def _integer(name: str, value: Value) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?\d{1,30}", value):
            raise InputError(f"must be a whole number, not {shown(value)}.", field=name)
        return int(value)
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise InputError(f"must be a whole number, not {shown(value)}.", field=name)


def rows_from_jobs(jobs: tuple[Job, ...]) -> tuple[list[str], Iterator[list[Value]]]:
    """Return the header and the rows; optional columns only where some job needs them."""
    named = any(job.model for job in jobs)
    batched = any(job.batch_size is not None for job in jobs)
    plain = all(_follows_from_model(job) for job in jobs)
    header = [
        *REQUIRED,
        *(["model"] if named else []),
        *(["batch_size"] if batched else []),
        *([] if plain else PROFILE),
    ]
    return header, (_row(job, named, batched, plain) for job in jobs)


def _row(job: Job, named: bool, batched: bool, plain: bool) -> list[Value]:
    row: list[Value] = [job.job_id, _in_unit(job.arrival_ns, 10**9), job.gpus, job.iterations]
    if named:
        row.append(job.model)
    if batched:
        row.append(job.batch_size)
    if not plain:
        row += _profile_cells(job)
    return row


def _follows_from_model(job: Job) -> bool:
    """Whether model and batch size tell all the rest, and whether it is estimated."""
    if job.model not in MODELS or job.estimated != _scales(job.model, job.batch_size):
        return False
    values = _from_model(job.model, job.batch_size)
    return all(getattr(job, field) == value for field, value in values.items())


def _profile_cells(job: Job) -> list[Value]:
    """Return the last columns; estimated times stay empty, so that they are estimated again."""
    again = {}
    if job.estimated and job.model in MODELS:
        values = _from_model(job.model, job.batch_size)
        again = {_UNITS[name].field: values[_UNITS[name].field] for name in TIMES}
    return [
        None
        if again.get(unit.field) == getattr(job, unit.field)
        else _in_unit(getattr(job, unit.field), int(unit.factor))
        for unit in _profile_units()
    ]


def _profile_units() -> list[_Unit]:
    return [_UNITS[name] for name in PROFILE]


def _in_unit(value: int, factor: int) -> int | float:
    """Return value / factor, as a whole number where it is one."""
    return value // factor if value % factor == 0 else value / factor
