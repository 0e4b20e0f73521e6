"""Workload files: the CSV of docs/model.md, and the same columns as Parquet."""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, BinaryIO

from headway.configuration import profiles_from
from headway.domain.errors import InputError, shown
from headway.domain.job import Job
from headway.domain.limits import MAX_JOBS
from headway.domain.profiles import measured_times
from headway.domain.workload import Workload
from headway.files import STANDARD, open_input, open_output
from headway.results.parquet import PARQUET_MAGIC, parquet_output, read_parquet
from headway.workload.columns import (
    EXCLUSIVE,
    KNOWN,
    USUAL_HEADER,
    check_header,
    job_from_row,
    likely_typos,
    needs_graph_file,
    rows_from_jobs,
)
from headway.workload.graphs import GraphFiles, graphs_beside
from headway.workload.labels import Labels
from headway.workload.packaged import packaged_workload
from headway.workload.parallel import ParallelJobs
from headway.workload.tables import CsvTable, Value, Wording

_log = logging.getLogger("headway")

_WORDING = Wording(
    "not a text file; a workload is CSV, or Parquet named .parquet.",
    "a workload's lines are short.",
    USUAL_HEADER,
)


def read_workload(path: str | os.PathLike[str], profiles: Sequence[str] = ()) -> Workload:
    """Read a workload from a `.csv` or `.parquet` file, or CSV from standard input for `-`.

    A name without a suffix, such as `muri-1`, is a workload that ships with Headway.

    Args:
        path: The file or the name.
        profiles: Sets of model profiles, by name or path of a `.toml` file; the first set with a
            model applies. By default the paper's, `v100`.
    """
    sets = profiles_from(profiles)
    times = measured_times(sets) if profiles else ()
    source = "standard input" if os.fspath(path) == STANDARD else os.fspath(path)
    labels = Labels(KNOWN)
    make_job = partial(
        job_from_row,
        graphs=GraphFiles(os.path.dirname(os.fspath(path))),
        parallel=ParallelJobs(sets),
        labels=labels,
    )
    packaged = packaged_workload(os.fspath(path))
    if packaged is not None:
        with packaged.open("rb") as stream:
            return Workload(*_read_csv(stream, source, make_job, labels), times)
    with open_input(path) as stream:
        if Path(path).suffix == ".parquet":
            return Workload(*_read_parquet(stream, source, make_job), times)
        return Workload(*_read_csv(stream, source, make_job, labels), times)


def write_workload(workload: Workload, path: str | os.PathLike[str]) -> None:
    """Write a workload as Parquet to a `.parquet` file, or else as CSV; `-` is standard output.

    Graphs are written to a folder beside it: those of jobs.csv to jobs.graphs. A job whose graph
    follows from the paper's profile of its model is written with its model and `parallel` instead.
    """
    again = ParallelJobs()
    graphs = {job.graph: None for job in workload if job.graph and needs_graph_file(job, again)}
    with graphs_beside(graphs, path) as graph_paths:
        _write_table(*rows_from_jobs(workload.jobs, graph_paths), path)


def _write_table(
    header: list[str], rows: Iterable[list[Value]], path: str | os.PathLike[str]
) -> None:
    if Path(path).suffix == ".parquet":
        import polars

        columns = dict(zip(header, zip(*rows, strict=True), strict=True))
        with parquet_output(path) as stream:
            polars.DataFrame(columns, strict=False).write_parquet(stream)
    else:
        with open_output(path) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
            text.detach()


def _warn_of_typos(source: str, header: Sequence[str]) -> None:
    for sentence in likely_typos(header):
        _log.warning("%s: %s", source, sentence)


_MakeJob = Callable[[Mapping[str, Value]], Job]
_Parts = tuple[list[Job], str, Sequence[int], Sequence[str] | None]
"""Jobs, source, lines and columns of a workload."""


def _read_csv(stream: IO[bytes], source: str, make_job: _MakeJob, labels: Labels) -> _Parts:
    jobs, lines, header = CsvTable(source, _WORDING, check_header).rows(stream, make_job)
    labels.read_numbers()
    _warn_of_typos(source, header)
    return jobs, source, lines, header


def _read_parquet(stream: BinaryIO, source: str, make_job: _MakeJob) -> _Parts:
    import polars

    head = stream.read(len(PARQUET_MAGIC))
    if head != PARQUET_MAGIC:
        raise InputError("is not a Parquet file.", source=source)
    try:
        table, _ = read_parquet(BytesIO(head + stream.read()), most_rows=MAX_JOBS)
    except InputError as error:
        raise error.at(source) from None
    try:
        check_header(table.columns)
        temporal = [name for name, kind in table.schema.items() if kind.is_temporal()]
        others = set(table.columns) - set(KNOWN)
        table = table.cast({name: polars.String for name in temporal if name in others})
        floats = [name for name, kind in table.schema.items() if kind.is_float()]
        table = table.with_columns(polars.col(others.intersection(floats)).fill_nan(None))
        unfit = [
            n
            for n, kind in table.schema.items()
            if not (kind.is_numeric() or kind == polars.String)
            and not (kind == polars.Boolean and n in (EXCLUSIVE, *others))
        ]
        if unfit:
            raise InputError(
                f"holds {shown(str(table.schema[unfit[0]]))}, not text or numbers.", field=unfit[0]
            )
    except InputError as error:
        raise error.at(source) from None
    repeated = ~table["job_id"].is_first_distinct()
    if repeated.any():
        # The error is there: a small file may hold millions of equal rows.
        table = table.head(1 + (repeated.arg_max() or 0))
    jobs = []
    booleans = [name for name, kind in table.schema.items() if kind == polars.Boolean]
    table = table.cast(dict.fromkeys(booleans, polars.Int64))
    _warn_of_typos(source, table.columns)
    for number, row in enumerate(table.iter_rows(named=True)):
        try:
            jobs.append(make_job(row))
        except InputError as error:
            raise error.at(source, number + 1) from None
    return jobs, source, range(1, len(jobs) + 1), None
