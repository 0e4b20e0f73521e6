"""Results in files: JSON for scripts, Parquet for tables, both with the same content."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from headway import jit
from headway.domain.errors import InputError
from headway.domain.limits import MAX_JOBS
from headway.files import open_input, open_output
from headway.results.columns import is_job_table, job_columns, job_schema, job_table
from headway.results.parquet import PARQUET_MAGIC, parquet_output, read_parquet
from headway.results.schema import AnyResult, Result, Settings, Summary
from headway.results.time_parts import PARTS

if TYPE_CHECKING:
    import polars

    from headway.results.usage import Integers

_ARRAYS = ("arrival_ns", "start_ns", "finish_ns", "jct_s", "jct_margin_s", "energy_j")
_PREFIX = "headway."
"""Begins each of our keys in the metadata of a Parquet file."""
_CHECKSUM = "checksum"


@cache
def code_version() -> str:
    """Return a hash of all the sources that a result depends on."""
    return jit.source_hash("workload", "results", "configuration")


def to_dict(result: Result) -> dict[str, Any]:
    """Return a result as plain values, with the keys of the JSON file."""
    columns = job_columns(result)
    rows = zip(*columns.values(), strict=True)
    return {
        **run_values(result),
        "time_parts_ns": _parts_to_store(result),
        "jobs": [dict(zip(columns, row, strict=True)) for row in rows],
    }


def _parts_to_store(result: Result) -> dict[str, list[int]]:
    return {name: part.tolist() for name, part in result.parts_ns.items()}


def run_values(result: Result) -> dict[str, Any]:
    """Return what is known of a run beside its jobs as plain values, by the keys that files use."""
    exclusive = result.exclusive_jobs
    return {
        "summary": asdict(result.summary),
        "settings": result.settings.to_dict(),
        **({"exclusive_jobs": exclusive} if exclusive else {}),
        "estimated": [list(pair) for pair in result.estimated],
        "gpu_busy_ns": result.gpu_busy_ns.tolist(),
        "code": code_version(),
    }


def run_metadata(result: Result) -> dict[str, str]:
    """Return what is known of a run beside its jobs as the metadata of a Parquet file."""
    return _metadata(run_values(result))


def _metadata(values: dict[str, Any]) -> dict[str, str]:
    return {
        f"{_PREFIX}{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }


def write_json(result: Result, path: str | os.PathLike[str]) -> None:
    """Write `{"summary": {…}, "settings": {…}, …, "jobs": [{…}, …]}`, one job per line."""
    data = to_dict(result)
    data[_CHECKSUM] = _digest(data)
    jobs = ",\n    ".join(json.dumps(job, ensure_ascii=False) for job in data.pop("jobs"))
    summary = json.dumps(data.pop("summary"), indent=4).replace("\n}", "\n  }")
    rest = "".join(f',\n  "{key}": {json.dumps(value)}' for key, value in data.items())
    text = f'{{\n  "summary": {summary}{rest},\n  "jobs": [\n    {jobs}\n  ]\n}}\n'
    with open_output(path) as stream:
        stream.write(text.encode())


def _digest(data: dict[str, Any]) -> str:
    """Return the SHA-256 of values, however their JSON is laid out."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_parquet(result: Result, path: str | os.PathLike[str]) -> None:
    """Write one row per job; the file's metadata holds the rest of the result as JSON."""
    with parquet_output(path) as stream:
        parts = _metadata({"time_parts_ns": _parts_to_store(result)})
        result.jobs.write_parquet(stream, metadata=run_metadata(result) | parts)


@dataclass(frozen=True, slots=True, repr=False)
class StoredResult(AnyResult):
    """A result read from a file: what `simulate` returns, but for the workload and the tasks."""

    source: str
    """The file."""
    summary: Summary
    settings: Settings
    jobs: polars.DataFrame
    """The same table as `Result.jobs`."""
    gpu_busy_ns: Integers
    estimated: list[tuple[str, str]]
    code: str
    """The hash of the sources that made the result."""
    stored_parts_ns: dict[str, Integers] | None
    """The file's `time_parts_ns`, if it has them."""
    exclusive_jobs: int = 0
    """How many of the jobs had their GPUs to themselves."""

    @property
    def origin(self) -> str:
        """The file."""
        return self.source

    @property
    def gpus(self) -> tuple[tuple[int, ...], ...]:
        """Each job's GPUs, ascending."""
        return tuple(map(tuple, self.jobs["gpus"].to_list()))

    @property
    def has_parts(self) -> bool:
        """Whether it is known where the jobs' time went."""
        return self.stored_parts_ns is not None

    @property
    def parts_ns(self) -> dict[str, Integers]:
        """Where each job's completion time went; `time_parts` has it as a table."""
        if self.stored_parts_ns is None:
            raise InputError(
                "does not say where the jobs' time went: an earlier version of Headway wrote it. "
                "Simulate again.",
                source=self.source,
            )
        return self.stored_parts_ns

    @property
    def timeline(self) -> None:
        """None: `headway.read_timeline` reads the file of a timeline."""
        return None

    def __getattr__(self, name: str) -> Any:
        """Return a column of the jobs as an array, by the name that it has in `Result`."""
        if name in _ARRAYS:
            return self.jobs[name].to_numpy()
        raise AttributeError(
            f"a result from a file has no {name!r}: it knows neither the workload nor the tasks."
        )


def read_result(path: str | os.PathLike[str]) -> StoredResult:
    """Read a result that `write_json` or `write_parquet` wrote; the content tells the format.

    Raises:
        InputError: The file cannot be read, is damaged, or holds something else.
    """
    source = os.fspath(path)
    with open_input(path) as stream:
        content = stream.read(len(PARQUET_MAGIC))
        # What is neither Parquet nor JSON may have no end.
        if content != PARQUET_MAGIC and not content.lstrip().startswith(b"{"):
            raise _not_a_result().at(source)
        content += stream.read()
    try:
        return stored_result(*_parts(content), source)
    except InputError as error:
        raise error.at(source) from None


def _parts(content: bytes) -> tuple[dict[str, Any], polars.DataFrame]:
    """Return the values of a run, and its jobs."""
    if content.startswith(PARQUET_MAGIC):
        frame, metadata = read_parquet(BytesIO(content), most_rows=MAX_JOBS)
        return metadata_values(metadata), frame
    try:
        data = _parsed(content)
        checksum = data.pop(_CHECKSUM, None)
        if checksum not in (None, _digest(data)):
            raise InputError(
                "does not match its checksum: it is damaged or was changed; after a change that "
                "was meant, remove the key 'checksum'."
            )
        rows = data.pop("jobs")
        usual = job_schema()
        names = [*usual, *(name for name in (rows[0] if rows else ()) if name not in usual)]
        return data, job_table({name: [row[name] for row in rows] for name in names})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _not_a_result() from None


def stored_result(values: dict[str, Any], jobs: polars.DataFrame, source: str) -> StoredResult:
    """Return a result from its values by key and its table of jobs."""
    import msgspec

    if not is_job_table(jobs.schema):
        raise _not_a_result()
    try:
        return StoredResult(
            source=source,
            summary=Summary(**values["summary"]),
            settings=msgspec.convert(values["settings"], Settings),
            jobs=jobs,
            gpu_busy_ns=np.array(values["gpu_busy_ns"], np.int64),
            estimated=[(str(model), str(gpu)) for model, gpu in values["estimated"]],
            code=str(values["code"]),
            stored_parts_ns=_stored_parts_ns(values.get("time_parts_ns"), len(jobs)),
            exclusive_jobs=int(values.get("exclusive_jobs", 0)),
        )
    except (KeyError, TypeError, ValueError, OverflowError, InputError):
        raise _not_a_result() from None


def _stored_parts_ns(parts: dict[str, list[int]] | None, jobs: int) -> dict[str, Integers] | None:
    if parts is None:
        return None
    arrays = {name: np.array(parts[name], np.int64) for name in PARTS}
    if len(parts) != len(PARTS) or any(part.shape != (jobs,) for part in arrays.values()):
        raise _not_a_result()
    return arrays


def _not_a_result() -> InputError:
    return InputError("is not a result from `headway simulate --json` or `--parquet`.")


def metadata_values(metadata: dict[str, str]) -> dict[str, Any]:
    """Return our own entries of a Parquet file's metadata, parsed, without their prefix."""
    values: dict[str, Any] = {}
    for key, value in metadata.items():
        if not key.startswith(_PREFIX):
            continue
        name = key.removeprefix(_PREFIX)
        try:
            values[name] = value if name == "code" else _parsed(value)
        except ValueError:
            raise InputError(f"is damaged: its metadata {key} is not JSON.") from None
    return values


def _parsed(content: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is not JSON, nested too deeply, or has half a surrogate pair.
    """
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError from None
    json.dumps(value, ensure_ascii=False).encode()
    return value
