"""The columns of a workload file: reading, checking and writing them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headway.domain.errors import InputError, closest, did_you_mean, shown
from headway.domain.gpus import ALIASES, V100
from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.limits import (
    HORIZON_NS,
    LONGEST_NS,
    MAX_BYTES,
    MAX_GPUS,
    whole,
    whole_from,
)
from headway.domain.models import (
    MAX_BATCH,
    MEBIBYTE,
    PAPER_PROFILES,
    ModelProfile,
    ProfileSet,
)
from headway.domain.profiles import batch_size_of, model_names, profile_at
from headway.results.columns import JOB_COLUMNS, label_names
from headway.workload.graphs import GraphFiles
from headway.workload.labels import Labels
from headway.workload.parallel import ParallelJobs
from headway.workload.tables import Unit, Value, check_names

REQUIRED = ("job_id", "arrival_s", "gpus", "iterations")
TIMES = ("forward_ms", "backward_ms")
PROFILE = (*TIMES, "gradient_mb", "memory_mb")
EXCLUSIVE = "exclusive"
NOT_WITH_GRAPH = ("model", "batch_size", *TIMES, "gradient_mb")
USUAL_HEADER = ",".join((*REQUIRED, "model"))
KNOWN = (
    *(*REQUIRED, "model", "batch_size", *PROFILE),
    *("measured_on", "parallel", "graph", "trained_model", "priority", EXCLUSIVE),
)

_UNITS = {
    "arrival_s": Unit("arrival_ns", 1e9, 0, HORIZON_NS, "seconds"),
    "forward_ms": Unit("forward_ns", 1e6, 1, LONGEST_NS, "milliseconds"),
    "backward_ms": Unit("backward_ns", 1e6, 1, LONGEST_NS, "milliseconds"),
    "gradient_mb": Unit("gradient_bytes", MEBIBYTE, 0, MAX_BYTES, "MB"),
    "memory_mb": Unit("memory_bytes", MEBIBYTE, 0, MAX_BYTES, "MB"),
}


_TYPO = 0.8
"""How like a known name another has to be to look like a slip of the pen."""


def check_header(names: list[str]) -> None:
    """Refuse missing and duplicate columns, and others with the name of a column of results."""
    check_names(names, KNOWN, USUAL_HEADER, others=True)
    missing = [name for name in REQUIRED if name not in names]
    wanted = list(missing)
    if "model" not in names and "graph" not in names:
        missing += [name for name in PROFILE if name not in names]
        wanted = [*missing, "model", "graph"]
    others = [name for name in names if name not in KNOWN]
    for name in others:
        if near := closest(name, wanted):
            raise InputError(f"unknown column {shown(name)}.{near}", field=name)
        if name in JOB_COLUMNS:
            raise InputError(
                f"{shown(name)} is a column of results; call this one something else.", field=name
            )
    if missing:
        hint = "" if "model" in names else " ('model' can replace the last four columns)"
        raise InputError(f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}{hint}.")


def likely_typos(names: Sequence[str]) -> list[str]:
    """Return a sentence about each column that is kept as a label and looks like a known one."""
    return [
        f"the column {shown(name)} is kept as a label.{near}"
        for name in names
        if name not in KNOWN and (near := closest(name, KNOWN, _TYPO))
    ]


def job_from_row(
    row: Mapping[str, Value], graphs: GraphFiles, parallel: ParallelJobs, labels: Labels
) -> Job:
    """Make a job from a row; errors name the column."""
    present = {
        name: value.strip() if isinstance(value, str) else value
        for name, value in row.items()
        if value is not None and value != ""
    }
    for name in REQUIRED:
        if name not in present:
            raise InputError("must not be empty.", field=name)
    if present.get("graph"):
        return _job_with_graph(row, present, graphs, labels)
    if "trained_model" in present:
        raise InputError("is for a row with a graph; give a model here.", field="trained_model")
    model = str(present.get("model", ""))
    if present.get("parallel") and not model:
        raise InputError("needs a model in the same row.", field="parallel")
    given = {
        _UNITS[name].field: _measure(name, present[name]) for name in PROFILE if name in present
    }
    batch_size = _batch_size(present)
    measured_on = _measured_on(present)
    estimated = False
    if len(given) < len(PROFILE):
        profile, scales = _profile_of(model, batch_size, present, row, parallel.profiles)
        if not all(name in present for name in TIMES):
            estimated = scales
            measured_on = _checked_type(measured_on, profile)
            if profile.batch_size != batch_size_of(model, batch_size):
                batch_size = profile.batch_size
        given = _values(profile) | given
    job = Job(
        job_id=str(present["job_id"]),
        arrival_ns=_measure("arrival_s", present["arrival_s"]),
        gpus=_integer("gpus", present["gpus"]),
        iterations=_integer("iterations", present["iterations"]),
        model=model,
        batch_size=batch_size,
        estimated=estimated,
        measured_on=measured_on or V100.name,
        forward_ns=given["forward_ns"],
        backward_ns=given["backward_ns"],
        gradient_bytes=given["gradient_bytes"],
        memory_bytes=given["memory_bytes"],
        priority=_priority(present),
        exclusive=EXCLUSIVE in present and _exclusive(present[EXCLUSIVE]),
        labels=labels.of_row(row, present),
    )
    return parallel.job(job, str(present["parallel"])) if present.get("parallel") else job


def _job_with_graph(
    row: Mapping[str, Value], present: Mapping[str, Value], graphs: GraphFiles, labels: Labels
) -> Job:
    for name in NOT_WITH_GRAPH:
        if name in present:
            raise InputError("must be empty in a row with a graph.", field=name)
    if "parallel" in present and "trained_model" not in present:
        raise InputError(
            "must be empty in a row with a graph, unless trained_model is given.", field="parallel"
        )
    gpus = whole(_integer("gpus", present["gpus"]), "gpus", 1, MAX_GPUS)
    if "trained_model" in present and "parallel" not in present:
        raise InputError("needs parallel in the same row, such as ddp.", field="trained_model")
    return Job(
        job_id=str(present["job_id"]),
        arrival_ns=_measure("arrival_s", present["arrival_s"]),
        gpus=gpus,
        iterations=_integer("iterations", present["iterations"]),
        memory_bytes=_measure("memory_mb", present.get("memory_mb", 0)),
        measured_on=_measured_on(present) or V100.name,
        model=str(present.get("trained_model", "")),
        graph=graphs.graph(str(present["graph"]), gpus),
        priority=_priority(present),
        parallel=str(present.get("parallel", "")),
        exclusive=EXCLUSIVE in present and _exclusive(present[EXCLUSIVE]),
        labels=labels.of_row(row, present),
    )


def _batch_size(present: Mapping[str, Value]) -> int | None:
    if "batch_size" not in present:
        return None
    return whole(_integer("batch_size", present["batch_size"]), "batch_size", 1, MAX_BATCH)


def _priority(present: Mapping[str, Value]) -> int:
    return _integer("priority", present.get("priority", 0))


def _exclusive(value: Value) -> bool:
    """Return whether a job has its GPUs to itself."""
    if isinstance(value, str):
        value = {"0": 0, "1": 1}.get(value, value)
    if value not in (0, 1):
        raise InputError(f"must be 1 or 0, not {shown(value)}.", field=EXCLUSIVE)
    return value == 1


def _measured_on(present: Mapping[str, Value]) -> str | None:
    """Return the type of GPU that the row's times were measured on."""
    if "measured_on" not in present:
        return None
    name = str(present["measured_on"])
    return ALIASES.get(name, name)


def _checked_type(given: str | None, profile: ModelProfile) -> str:
    """Return the type of GPU of a profile that provides the times; a row must not differ."""
    if given not in (None, profile.gpu):
        raise InputError(
            f"the times of {shown(profile.name)} were measured on {profile.gpu}; for "
            f"{shown(given)} give {' and '.join(TIMES)} too.",
            field="measured_on",
        )
    return profile.gpu


def _profile_of(
    model: str,
    batch_size: int | None,
    present: Mapping[str, Value],
    columns: Collection[str],
    profiles: Sequence[ProfileSet],
) -> tuple[ModelProfile, bool]:
    """Return the profile that fills in a row, and whether it is scaled."""
    missing = [name for name in PROFILE if name not in present]
    if not model:
        either = "a model or a graph" if "graph" in columns else "a model"
        raise InputError(
            f"must not be empty; without {either} a row needs {', '.join(PROFILE)}.",
            field="model" if "model" in columns else missing[0],
        )
    found = profile_at(model, batch_size, profiles)
    if found is None:
        raise InputError(
            f"unknown model {shown(model)}.{did_you_mean(model, model_names(profiles))} "
            f"(Or give {', '.join(missing)}.)",
            field="model",
        )
    return found


def _values(profile: ModelProfile) -> dict[str, int]:
    return {unit.field: getattr(profile, unit.field) for unit in _profile_units()}


def _measure(name: str, value: Value) -> int:
    return _UNITS[name].convert(name, value)


def _integer(name: str, value: Value) -> int:
    if isinstance(value, str):
        try:
            return whole_from(value)
        except ValueError:
            problem = f"must be a whole number, not {shown(value)}."
            raise InputError(problem, field=name) from None
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise InputError(f"must be a whole number, not {shown(value)}.", field=name)


def rows_from_jobs(
    jobs: tuple[Job, ...], graph_paths: Mapping[Graph, str]
) -> tuple[list[str], Iterator[list[Value]]]:
    """Return the header and the rows; optional columns only if some job needs them.

    A job with a graph that has no path is written with its model and `parallel`.
    """
    plain = [job for job in jobs if job.graph is None]
    with_file = [job for job in jobs if job.graph is not None and job.graph in graph_paths]
    parallel = [job for job in jobs if job.graph is not None and job.graph not in graph_paths]
    explicit = not all(map(_follows_from_model, plain))
    optional = {
        "model": any(job.model for job in plain + parallel),
        "batch_size": any(job.batch_size is not None for job in plain + parallel),
        **dict.fromkeys((*TIMES, "gradient_mb"), explicit),
        "memory_mb": explicit or any(job.memory_bytes for job in with_file),
        "measured_on": any(job.measured_on != V100.name for job in jobs),
        "parallel": bool(parallel) or any(job.parallel for job in with_file),
        "graph": bool(with_file),
        "priority": any(job.priority for job in jobs),
        "trained_model": any(job.model for job in with_file),
        EXCLUSIVE: any(job.exclusive for job in jobs),
    }
    header = [*REQUIRED, *(name for name, needed in optional.items() if needed)]
    labels = label_names(jobs)
    for name in labels:
        if name in KNOWN:
            raise InputError(f"{shown(name)} is a column of workloads already.", field="labels")
    header += labels
    return header, (list(map(_cells(job, graph_paths).get, header)) for job in jobs)


def _cells(job: Job, graph_paths: Mapping[Graph, str]) -> dict[str, Value]:
    """Return the value of each column for a job."""
    path = None if job.graph is None else graph_paths.get(job.graph)
    return {
        "job_id": job.job_id,
        "arrival_s": _in_unit(job.arrival_ns, 10**9),
        "gpus": job.gpus,
        "iterations": job.iterations,
        "model": job.model if path is None else None,
        "batch_size": job.batch_size if path is None else None,
        **_profile_cells(job),
        "measured_on": job.measured_on,
        "parallel": job.parallel or None,
        "graph": path,
        "priority": job.priority,
        "trained_model": None if path is None else job.model or None,
        EXCLUSIVE: int(job.exclusive),
        **job.labels,
    }


def needs_graph_file(job: Job, again: ParallelJobs) -> bool:
    """Return whether a job has a graph that does not follow from its model and `parallel`.

    Args:
        job: The job.
        again: Makes graphs from the paper's profiles, with which the row would be read.
    """
    if job.graph is None:
        return False
    found = profile_at(job.model, job.batch_size, PAPER_PROFILES)
    if found is None or not job.parallel or job.memory_bytes != found[0].memory_bytes:
        return True
    values: dict[str, Any] = _values(found[0])
    plain = replace(job, graph=None, parallel="", estimated=found[1], **values)
    try:
        if again.misfit(plain, job.parallel) is not None:
            return True
    except InputError:  # `parallel` is but a name.
        return True
    made = again.job(plain, job.parallel)
    known = made.graph, made.estimated, found[0].gpu
    return known != (job.graph, job.estimated, job.measured_on)


def _follows_from_model(job: Job) -> bool:
    """Return whether model and batch size determine the rest, and whether that is estimated."""
    found = profile_at(job.model, job.batch_size, PAPER_PROFILES)
    if found is None or (job.measured_on, job.estimated) != (found[0].gpu, found[1]):
        return False
    return all(getattr(job, field) == value for field, value in _values(found[0]).items())


def _profile_cells(job: Job) -> dict[str, Value]:
    """Return times and sizes; estimated times stay empty, to be estimated again when read."""
    if job.graph is not None:
        memory_mb = _in_unit(job.memory_bytes, MEBIBYTE)
        return dict.fromkeys(PROFILE) | {"memory_mb": memory_mb}
    again = {}
    found = profile_at(job.model, job.batch_size, PAPER_PROFILES) if job.estimated else None
    if found is not None and found[0].gpu == job.measured_on:
        values = _values(found[0])
        again = {_UNITS[name].field: values[_UNITS[name].field] for name in TIMES}
    cells: dict[str, Value] = {}
    for name in PROFILE:
        unit = _UNITS[name]
        value = getattr(job, unit.field)
        same = again.get(unit.field) == value
        cells[name] = None if same else _in_unit(value, int(unit.factor))
    return cells


def _profile_units() -> list[Unit]:
    return [_UNITS[name] for name in PROFILE]


def _in_unit(value: int, factor: int) -> int | float:
    """Return value / factor, as an int if it is whole."""
    return value // factor if value % factor == 0 else value / factor
