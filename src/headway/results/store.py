"""Results on disk: JSON for scripts, Parquet for tables."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import cache
from typing import Any

from headway import jit
from headway.files import open_output
from headway.results.schema import Result


@cache
def code_version() -> str:
    """Return a hash of all the sources that a result depends on."""
    return jit.source_hash("workload", "results", "configuration")


def write_json(result: Result, path: str | os.PathLike[str]) -> None:
    """Write `{"summary": {…}, "jobs": [{…}, …]}`, jobs in workload order."""
    data = result.to_dict()
    jobs = ",\n    ".join(json.dumps(job, ensure_ascii=False) for job in data["jobs"])
    summary = json.dumps(data["summary"], indent=4).replace("\n}", "\n  }")
    text = f'{{\n  "summary": {summary},\n  "jobs": [\n    {jobs}\n  ]\n}}\n'
    with open_output(path) as stream:
        stream.write(text.encode())


def job_columns(result: Result) -> dict[str, Any]:
    """Return a result's jobs as columns, as Parquet files of jobs have them."""
    return {
        "job_id": [job.job_id for job in result.workload],
        "model": [job.model for job in result.workload],
        "iterations": [job.iterations for job in result.workload],
        "arrival_ns": result.arrival_ns,
        "start_ns": result.start_ns,
        "finish_ns": result.finish_ns,
        "gpus": [list(gpus) for gpus in result.gpus],
        "energy_j": result.energy_j,
    }


def write_parquet(result: Result, path: str | os.PathLike[str]) -> None:
    """Write a row per job; the file's metadata holds the rest of the result as JSON."""
    import polars

    metadata = {
        "headway.summary": json.dumps(asdict(result.summary)),
        "headway.settings": json.dumps(result.settings.to_dict()),
        "headway.gpu_busy_ns": json.dumps(result.gpu_busy_ns.tolist()),
        "headway.estimated": json.dumps(result.estimated),
        "headway.code": code_version(),
    }
    with open_output(path) as stream:
        polars.DataFrame(job_columns(result)).write_parquet(stream, metadata=metadata)
