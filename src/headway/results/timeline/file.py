"""Timelines in Parquet files, written while a run is simulated and read back as tables.

    with record_timeline("run.parquet", workload, cluster) as sink:
        sink.finish(simulate(workload, cluster, timeline=sink))

A file has one row per task (`RecordedRun.tasks`). Its metadata holds, as JSON, the jobs and their
graphs, the settings and the summary of the run, the window that was recorded, and the sizes of the
servers.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.domain.limits import HORIZON_NS, MAX_GPUS, whole
from headway.domain.records import COMMUNICATION, COMPUTE, PLACEMENT, TASK, Records
from headway.domain.workload import Workload
from headway.files import STANDARD, open_input
from headway.interrupts import before_forced_exit, uninterruptible
from headway.results.columns import job_columns, job_table, text
from headway.results.parquet import PARQUET_MAGIC, parquet_output, read_parquet
from headway.results.schema import Result
from headway.results.store import metadata_values, run_metadata
from headway.results.timeline.nodes import PlacedMessages
from headway.results.timeline.recorded import KINDS, RecordedRun, task_schema, task_table
from headway.results.timeline.window import Window

if TYPE_CHECKING:
    import polars

FORMAT = 2
"""The version of the file format; a reader refuses all others."""

_SETTINGS = ("cluster", "network", "seed", "placement", "priority", "admission", "bucket_bytes")
"""The settings that readers rely on."""

PART_ROWS = 1 << 20
"""Rows kept in memory; a longer timeline is first written to temporary files in parts."""


class TimelineWriter:
    """A sink that writes the tasks of a run to a Parquet file, in bounded memory."""

    def __init__(
        self, stream: BinaryIO, folder: Path, workload: Workload, cluster: Cluster, window: Window
    ) -> None:
        self._stream = stream
        self._folder = folder
        self._cluster = cluster
        self._window = window
        self.finished = False
        self._job_ids = [text(job.job_id) for job in workload]
        graphs = [job.graph for job in workload]
        self._placed = PlacedMessages(graphs, cluster.server_of_gpu)
        self._batches: list[Records] = []
        self._rows = 0
        self._parts: list[Path] = []

    def append(self, tasks: Records) -> None:
        """Add a batch of tasks."""
        is_placement = tasks.kind == PLACEMENT
        self._placed.place_rows(tasks[is_placement])
        # A message counts from when it is ready: one that waits in the window belongs to it.
        is_message = tasks.kind == COMMUNICATION
        begun = np.where(
            is_message, tasks.ready_ns <= self._window.to_ns, tasks.start_ns < self._window.to_ns
        )
        inside = begun & (tasks.end_ns > self._window.from_ns)
        self._batches.append(tasks[inside & ~is_placement])
        self._rows += len(self._batches[-1])
        if self._rows >= PART_ROWS:
            part = self._folder / f"{len(self._parts)}.arrow"
            self._table().write_ipc(part)
            self._parts.append(part)

    def finish(self, result: Result) -> Result:
        """Write the file, which needs the result of the run; return the result."""
        import polars

        window = self._window.clipped(int(result.finish_ns.max()))
        metadata = run_metadata(result) | _timeline_metadata(
            window, job_columns(result), self._cluster.server_gpus, self._placed.graphs
        )
        last = self._table()
        with uninterruptible():
            if self._parts:
                parts = [polars.scan_ipc(part) for part in self._parts]
                polars.concat([*parts, last.lazy()]).sink_parquet(self._stream, metadata=metadata)
            else:
                last.write_parquet(self._stream, metadata=metadata)
        self.finished = True
        return result

    def _table(self) -> polars.DataFrame:
        """Return the tasks in memory as a table, and forget them."""
        empty = np.zeros(0, TASK).view(np.recarray)
        tasks = np.concatenate([empty, *self._batches]).view(np.recarray)
        self._batches, self._rows = [], 0
        return task_table(tasks, self._job_ids, self._placed)


@contextmanager
def record_timeline(
    path: str | os.PathLike[str],
    workload: Workload,
    cluster: Cluster,
    window: Window | None = None,
) -> Iterator[TimelineWriter]:
    """Record a run's timeline in a Parquet file, or on standard output for `-`.

    Pass the sink it yields to `simulate(..., timeline=sink)`, and that run's result to
    `sink.finish`; without both, no file is written.

    Args:
        path: The file.
        workload: The workload that will be simulated.
        cluster: The cluster that it will be simulated on.
        window: Record only tasks that overlap this window; by default, all.

    Raises:
        InputError: The file cannot be written, or the run ends before the window begins.
    """
    target = Path(os.path.realpath(path))
    # Beside the target, where there must be room anyway; the system's folder may be in memory.
    beside = target.parent if os.fspath(path) != STANDARD and target.parent.is_dir() else None
    if str(target).startswith(("/dev/", "/proc/")):
        beside = None
    with (
        parquet_output(path) as stream,
        tempfile.TemporaryDirectory(prefix=f".{target.name}.parts.", dir=beside) as folder,
        before_forced_exit(lambda: shutil.rmtree(folder, ignore_errors=True)),
    ):
        sink = TimelineWriter(stream, Path(folder), workload, cluster, window or Window())
        yield sink
        if not sink.finished:
            raise InputError("the timeline was not finished with the run's result.")


def _timeline_metadata(
    window: Window,
    jobs: dict[str, list[Any]],
    server_gpus: tuple[int, ...],
    graphs: Sequence[Graph | None],
) -> dict[str, str]:
    distinct = {id(graph): graph for graph in graphs if graph is not None}
    numbers = {key: number for number, key in enumerate(distinct)}
    return {
        "headway.timeline": json.dumps(FORMAT),
        "headway.window": json.dumps([window.from_ns, window.to_ns]),
        "headway.jobs": json.dumps(jobs),
        "headway.server_gpus": json.dumps(server_gpus),
        "headway.graphs": json.dumps([_graph_values(graph) for graph in distinct.values()]),
        "headway.graph_of_job": json.dumps([numbers.get(id(graph)) for graph in graphs]),
    }


def _graph_values(graph: Graph) -> dict[str, Any]:
    return {
        "ranks": graph.ranks,
        "tasks": [asdict(task) for task in graph.tasks],
        "messages": [asdict(message) for message in graph.messages],
    }


def _graph(values: dict[str, Any]) -> Graph:
    return Graph(
        values["ranks"],
        [Task(**task) for task in values["tasks"]],
        [Message(**message) for message in values["messages"]],
    )


def read_timeline(path: str | os.PathLike[str]) -> RecordedRun:
    """Read the timeline of a run.

    Raises:
        InputError: The file cannot be read, is cut off or damaged, or is not a timeline.
    """
    source = os.fspath(path)
    with open_input(path) as stream:
        try:
            # By its path polars maps a file instead of copying it.
            if source != STANDARD and os.path.isfile(source):
                _check_magic(stream, source)
                return _parse(stream, source, mapped=True)
            content = BytesIO(_all_of(stream))
            _check_magic(content, source)
            return _parse(content, source)
        except InputError as error:
            raise error.at(source) from None


def _all_of(stream: BinaryIO) -> bytes:
    """Return the content of a pipe; what is no Parquet file may have no end."""
    head = stream.read(len(PARQUET_MAGIC))
    if head and not PARQUET_MAGIC.startswith(head):
        raise _not_a_timeline()
    return head + stream.read()


def _check_magic(stream: BinaryIO, source: str) -> None:
    """Refuse what is not a whole Parquet file, and go back to its beginning."""
    head = stream.read(len(PARQUET_MAGIC))
    size = stream.seek(0, os.SEEK_END)
    if size == 0:
        raise InputError("is empty; a timeline comes from `headway simulate --timeline`.")
    if source.endswith(".pftrace"):
        raise InputError(
            "is an export for Perfetto, which Headway does not read; record the run with "
            "`headway simulate --timeline FILE.parquet`."
        )
    if not head or not PARQUET_MAGIC.startswith(head[: len(PARQUET_MAGIC)]):
        raise _not_a_timeline()
    stream.seek(max(0, size - len(PARQUET_MAGIC)))
    if size < 3 * len(PARQUET_MAGIC) or stream.read() != PARQUET_MAGIC:
        raise InputError(f"is cut off after {size:,} bytes.")
    stream.seek(0)


def _not_a_timeline() -> InputError:
    return InputError("is not a timeline from `headway simulate --timeline`.")


def _parse(content: BinaryIO, source: str, mapped: bool = False) -> RecordedRun:
    tasks, metadata = read_parquet(content, source if mapped else None)
    if "headway.timeline" not in metadata:
        raise _not_a_timeline()
    values = metadata_values(metadata)
    if values["timeline"] != FORMAT:
        raise InputError(
            f"has format {values['timeline']} of timelines, and this version of Headway reads "
            f"format {FORMAT}; record the run again."
        )
    import polars

    try:
        jobs = job_table(values["jobs"])
        from_ns, to_ns = (whole(edge, "window", 0, HORIZON_NS) for edge in values["window"])
        server_gpus = tuple(whole(n, "server_gpus", 1, MAX_GPUS) for n in values["server_gpus"])
        settings = {name: values["settings"][name] for name in _SETTINGS} | values["settings"]
        known = dict(enumerate(_graph(graph) for graph in values["graphs"]))
        graphs = tuple(None if at is None else known[at] for at in values["graph_of_job"])
        if len(graphs) != len(jobs):
            raise ValueError
        schema = task_schema(jobs["job_id"].to_list(), graphs)
        run = RecordedRun(
            source=source,
            window=Window(from_ns, to_ns),
            tasks=tasks,
            jobs=jobs,
            settings=settings,
            server_gpus=server_gpus,
            graphs=graphs,
            exclusive_jobs=int(values.get("exclusive_jobs", 0)),
        )
    except (KeyError, TypeError, ValueError, InputError, polars.exceptions.PolarsError) as error:
        raise InputError("is damaged: its metadata is incomplete.") from error
    if tasks.schema != schema:
        raise InputError("is damaged: its columns are not those of a timeline.")
    _check_values(run)
    return run


def _check_values(run: RecordedRun) -> None:
    """Refuse tasks that no run can have, so that readers can rely on indices and order."""
    import polars

    col, gpus = polars.col, sum(run.server_gpus)
    # Of each job: its tasks and its nodes in an iteration, 0 without a graph.
    expanded = [None if graph is None else graph.expanded for graph in run.graphs]
    sizes = polars.DataFrame(
        {
            "job": range(len(expanded)),
            "tasks": [0 if one is None else one.tasks for one in expanded],
            "nodes": [0 if one is None else one.nodes for one in expanded],
        },
        schema_overrides={"job": polars.Int32},
    )
    kind, plain = col("kind"), col("nodes") == 0
    compute = (
        col("gpu").is_between(0, gpus - 1) & col("servers").is_null() & col("ready_ns").is_null()
    )
    message = (
        col("gpu").is_null()
        & (col("servers").list.len() > 1)
        & (col("servers").list.min() >= 0)
        & (col("servers").list.max() < run.servers)
        & (col("ready_ns") >= 0)
        & (col("ready_ns") <= col("start_ns"))
    )
    no_graph = col("entry").is_null() & col("node").is_null()
    in_graph = col("entry").is_not_null() & col("node").is_between(0, col("nodes") - 1)
    sound = (
        col("nodes").is_not_null()
        & (col("iteration") >= 0)
        & (col("start_ns") >= 0)
        & (col("start_ns") < col("end_ns"))
        & polars.when(kind == KINDS[COMMUNICATION]).then(message).otherwise(compute)
        & polars.when(plain).then(no_graph).otherwise(in_graph)
        & polars.when(kind == KINDS[COMMUNICATION])
        .then(plain | (col("node") >= col("tasks")))
        .when(kind == KINDS[COMPUTE])
        .then(col("node") < col("tasks"))
        .otherwise(plain)
    )
    tasks = run.tasks.lazy().join(sizes.lazy(), on="job", how="left")
    broken = tasks.select((~sound.fill_null(False)).sum()).collect().item()
    job = (
        col("arrival_ns").is_between(0, col("start_ns"))
        & (col("start_ns") < col("finish_ns"))
        & (col("gpus").list.len() == col("gpu_count"))
        & (col("gpu_count") > 0)
        & (col("gpus").list.min() >= 0)
        & (col("gpus").list.max() < gpus)
    )
    broken += run.jobs.select((~job.fill_null(False)).sum()).item()
    broken += sum(
        graph is not None and graph.ranks != count
        for graph, count in zip(run.graphs, run.jobs["gpu_count"], strict=True)
    )
    broken += run.jobs["job_id"].null_count()
    if broken or len(run.jobs) == 0 or min(run.server_gpus, default=0) < 1:
        raise InputError("is damaged: it holds values that no run can have.")
