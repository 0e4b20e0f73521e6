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
)
from headway.domain.models import MEBIBYTE, MODELS

REQUIRED = ("job_id", "arrival_s", "gpus", "iterations")
PROFILE = ("forward_ms", "backward_ms", "gradient_mb", "memory_mb")
KNOWN = (*REQUIRED, "model", *PROFILE)

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
    if len(given) < len(PROFILE):
        given = _from_model(model, present, row) | given
    return Job(
        job_id=str(present["job_id"]),
        arrival_ns=_measure("arrival_s", present["arrival_s"]),
        gpus=_integer("gpus", present["gpus"]),
        iterations=_integer("iterations", present["iterations"]),
        model=model,
        **given,
    )


def _from_model(
    model: str, present: Mapping[str, Value], columns: Collection[str]
) -> dict[str, int]:
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
    return {unit.field: getattr(MODELS[model], unit.field) for unit in _profile_units()}


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


def rows_from_jobs(jobs: tuple[Job, ...]) -> tuple[list[str], Iterator[list[str | int | float]]]:
    """Return the header and the rows; profile columns only where some job needs them."""
    plain = all(
        job.model in MODELS
        and all(
            getattr(job, u.field) == getattr(MODELS[job.model], u.field) for u in _profile_units()
        )
        for job in jobs
    )
    named = any(job.model for job in jobs)
    header = [*REQUIRED, *(["model"] if named else []), *([] if plain else PROFILE)]
    return header, (_row(job, named, plain) for job in jobs)


def _row(job: Job, named: bool, plain: bool) -> list[str | int | float]:
    row: list[str | int | float] = [
        job.job_id,
        _in_unit(job.arrival_ns, 10**9),
        job.gpus,
        job.iterations,
    ]
    if named:
        row.append(job.model)
    if not plain:
        row += [_in_unit(getattr(job, u.field), int(u.factor)) for u in _profile_units()]
    return row


def _profile_units() -> list[_Unit]:
    return [_UNITS[name] for name in PROFILE]


def _in_unit(value: int, factor: int) -> int | float:
    """Return value / factor, as a whole number where it is one."""
    return value // factor if value % factor == 0 else value / factor
