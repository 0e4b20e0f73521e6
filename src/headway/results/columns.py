"""The columns of a table of jobs: the same in memory, in JSON, in Parquet and in sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars

    from headway.results.schema import Result


def job_columns(result: Result) -> dict[str, list[Any]]:
    """Return one list per column, with jobs in workload order."""
    arrival_ns = result.arrival_ns
    return {
        "job_id": [text(job.job_id) for job in result.workload],
        "model": [text(job.model) for job in result.workload],
        "gpu_count": [job.gpus for job in result.workload],
        "iterations": [job.iterations for job in result.workload],
        "arrival_ns": arrival_ns.tolist(),
        "start_ns": result.start_ns.tolist(),
        "finish_ns": result.finish_ns.tolist(),
        "jct_s": result.jct_s.tolist(),
        "jct_margin_s": result.jct_margin_s.tolist(),
        "waiting_s": ((result.start_ns - arrival_ns) / 1e9).tolist(),
        "gpus": [list(gpus) for gpus in result.gpus],
        "energy_j": result.energy_j.tolist(),
    }


def job_schema() -> dict[str, polars.DataType]:
    """Return the types of the columns."""
    import polars

    return {
        "job_id": polars.String(),
        "model": polars.String(),
        "gpu_count": polars.Int64(),
        "iterations": polars.Int64(),
        "arrival_ns": polars.Int64(),
        "start_ns": polars.Int64(),
        "finish_ns": polars.Int64(),
        "jct_s": polars.Float64(),
        "jct_margin_s": polars.Float64(),
        "waiting_s": polars.Float64(),
        "gpus": polars.List(polars.Int64),
        "energy_j": polars.Float64(),
    }


def job_table(columns: dict[str, list[Any]]) -> polars.DataFrame:
    """Return the columns as a table."""
    import polars

    return polars.DataFrame(columns, schema=job_schema())


def text(value: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates become escapes."""
    return value.encode(errors="backslashreplace").decode()
