"""The columns of a table of jobs: the same in memory, in JSON, in Parquet and in sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.domain.errors import InputError, shown

if TYPE_CHECKING:
    import polars

    from headway.domain.job import Job
    from headway.results.schema import Result

JOB_COLUMNS = (
    *("job_id", "model", "gpu_count", "iterations"),
    *("arrival_ns", "start_ns", "finish_ns", "jct_s", "jct_margin_s", "waiting_s"),
    *("gpus", "energy_j"),
)
"""The columns that every table of jobs has."""

PARALLEL = "parallel"
"""The column that says how jobs with graphs train their models; there if that is known of some."""


def job_columns(result: Result) -> dict[str, list[Any]]:
    """Return one list per column, with jobs in workload order; labels come last."""
    arrival_ns = result.arrival_ns
    jobs = result.workload.jobs
    columns: dict[str, list[Any]] = {
        "job_id": [text(job.job_id) for job in jobs],
        "model": [text(job.model) for job in jobs],
        "gpu_count": [job.gpus for job in jobs],
        "iterations": [job.iterations for job in jobs],
        "arrival_ns": arrival_ns.tolist(),
        "start_ns": result.start_ns.tolist(),
        "finish_ns": result.finish_ns.tolist(),
        "jct_s": result.jct_s.tolist(),
        "jct_margin_s": result.jct_margin_s.tolist(),
        "waiting_s": ((result.start_ns - arrival_ns) / 1e9).tolist(),
        "gpus": [list(gpus) for gpus in result.gpus],
        "energy_j": result.energy_j.tolist(),
    }
    if any(job.parallel for job in jobs):
        columns[PARALLEL] = [text(job.parallel) or None for job in jobs]
    for name in label_names(jobs):
        columns[text(name)] = _alike([job.labels.get(name) for job in jobs])
    return columns


def label_names(jobs: Sequence[Job]) -> list[str]:
    """Return the names of all labels, in the order in which jobs first have them."""
    names = list(dict.fromkeys(name for job in jobs if job.labels for name in job.labels))
    for name in names:
        if name in (*JOB_COLUMNS, PARALLEL):
            raise InputError(f"{shown(name)} is a column of results already.", field="labels")
    return names


def _alike(values: list[Any]) -> list[Any]:
    """Return the values of a label, all of them numbers or all texts."""
    if any(isinstance(value, str) for value in values):
        return [None if value is None else text(str(value)) for value in values]
    if any(isinstance(value, float) for value in values):
        return [None if value is None else float(value) for value in values]
    return values


def job_schema() -> dict[str, polars.DataType]:
    """Return the types of the columns that every table of jobs has."""
    import polars

    types = {
        **dict.fromkeys(("job_id", "model"), polars.String()),
        **dict.fromkeys(("jct_s", "jct_margin_s", "waiting_s", "energy_j"), polars.Float64()),
        "gpus": polars.List(polars.Int64),
    }
    return {name: types.get(name, polars.Int64()) for name in JOB_COLUMNS}


def job_table(columns: Mapping[str, list[Any]]) -> polars.DataFrame:
    """Return the columns as a table.

    Raises:
        KeyError: One that every table has is missing.
    """
    import polars

    known: dict[str, Any] = job_schema()
    for name in columns:
        if name not in known:
            known[name] = _label_type(columns[name])
    return polars.DataFrame({name: columns[name] for name in known}, schema=known)


def is_job_table(schema: Mapping[str, polars.DataType]) -> bool:
    """Return whether these are the columns of a table of jobs, the usual ones and labels."""
    import polars

    usual = job_schema()
    labels = [kind for name, kind in schema.items() if name not in usual]
    fits = all(kind in (polars.String, polars.Int64, polars.Float64) for kind in labels)
    return fits and list(schema.items())[: len(usual)] == list(usual.items())


def _label_type(values: Iterable[Any]) -> polars.DataType:
    import polars

    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int} and kinds:
        return polars.Int64()
    return polars.Float64() if kinds and kinds <= {int, float} else polars.String()


def text(value: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates become escapes."""
    return value.encode(errors="backslashreplace").decode()
