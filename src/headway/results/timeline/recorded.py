"""A recorded run: its tasks and jobs as tables, with the settings and the window they cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.errors import InputError
from headway.domain.fabric import rail_of_gpu
from headway.domain.graph import Graph
from headway.domain.records import COMMUNICATION, NOBODY, Records
from headway.results.columns import text
from headway.results.timeline.compiled import Integers, Steps
from headway.results.timeline.counters import Messages, counter_changes, counter_steps
from headway.results.timeline.nodes import Lists, PlacedMessages
from headway.results.timeline.window import Window

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

    from headway.results.schema import Result
    from headway.results.timeline.sinks import Timeline

KINDS = ("forward", "backward", "message", "compute")
"""The kinds of tasks; kind k of a task record is `KINDS[k]`. A task of a graph is `compute`."""


def task_schema(
    job_ids: Sequence[str], graphs: Iterable[Graph | None]
) -> dict[str, polars.DataType]:
    """Return the columns of a table of tasks of these jobs, and their types."""
    import polars

    distinct = {id(graph): graph for graph in graphs if graph is not None}.values()
    names = dict.fromkeys(text(entry.name) for graph in distinct for entry in graph.entries)
    return {
        "job": polars.Int32(),
        "job_id": polars.Enum(job_ids),
        "iteration": polars.Int64(),
        "kind": polars.Enum(KINDS),
        "entry": polars.Enum(list(names)),
        "node": polars.Int32(),
        "gpu": polars.Int32(),
        "servers": polars.List(polars.Int32),
        "ready_ns": polars.Int64(),
        "start_ns": polars.Int64(),
        "end_ns": polars.Int64(),
    }


def task_table(tasks: Records, job_ids: Sequence[str], placed: PlacedMessages) -> polars.DataFrame:
    """Return task records as a table; the jobs of all its messages must be placed."""
    import polars

    schema = task_schema(job_ids, placed.graphs)
    names = [text(entry.name) for entry in placed.nodes.entries]
    indices = {
        "job_id": (job_ids, tasks.job),
        "kind": (KINDS, tasks.kind),
        "entry": (names, placed.nodes.entry(tasks.job, tasks.node)),
    }
    servers = _list_series(placed.servers).cast(schema["servers"])
    columns = {
        "job": tasks.job,
        "iteration": tasks.iteration,
        "node": _without_nobody(tasks.node),
        "gpu": _without_nobody(tasks.gpu),
        "servers": servers.gather(_without_nobody(placed.index(tasks))),
        "ready_ns": _without_nobody(tasks.ready_ns),
        "start_ns": tasks.start_ns,
        "end_ns": tasks.end_ns,
    }
    for name, (values, index) in indices.items():
        columns[name] = polars.Series(values, dtype=schema[name]).gather(_without_nobody(index))
    return polars.DataFrame(columns).select(list(schema))


def _without_nobody(values: NDArray[Any]) -> polars.Series:
    """Return values as a series, with null for NOBODY."""
    import polars

    series = polars.Series("value", values)
    return series.to_frame().select(polars.when(series != NOBODY).then(series)).to_series()


def _list_series(lists: Lists) -> polars.Series:
    """Return lists, none of them empty, as a series."""
    import polars

    row, value = lists.pairs()
    table = polars.DataFrame({"row": row, "value": value})
    return table.group_by("row", maintain_order=True).agg("value")["value"]


def timeline_of(result: Result) -> Timeline:
    """Return the timeline that a result keeps in memory.

    Raises:
        InputError: It has none.
    """
    if result.timeline is None:
        raise InputError(
            "the run has no timeline in memory; record one with "
            "simulate(..., timeline=headway.Timeline())."
        )
    return result.timeline


@dataclass(frozen=True, slots=True)
class LiveDetails:
    """What a run of real jobs has beside its tasks."""

    names: tuple[str, ...]
    """What users call each job; empty if they do not."""
    last_states: tuple[str, ...]
    """How each job ended (done, failed or cancelled), or its state at the end of the run."""
    server_names: tuple[str, ...]
    unknown: tuple[tuple[int, int], ...]
    """Stretches of time in which messages may be missing, in order."""
    begun_ns: int
    """When the run began, in ns since 1970."""


@dataclass(frozen=True)
class RecordedRun:
    """A run with its timeline, from a file or from memory."""

    source: str
    window: Window
    """The part of the run that was recorded, from 0 to its end if it was all."""
    tasks: polars.DataFrame
    """One row per task, ordered by their ends.

    `job` and `job_id`; `iteration`, from 0; `kind`, one of KINDS; `entry` and `node` of the job's
    graph, its name and the number of the task or message, null for jobs without one; `gpu`, null
    for a message; `servers` and `ready_ns` of a message, null for others; `start_ns` and `end_ns`.
    A message that was waiting in the window is included even if it started after it.
    """
    jobs: polars.DataFrame
    """The same table as `Result.jobs`."""
    settings: dict[str, Any]
    """The settings of the run as plain values."""
    server_gpus: tuple[int, ...]
    """The number of GPUs of each server; GPUs are numbered server by server."""
    graphs: tuple[Graph | None, ...]
    """The graph of each job's iterations, or None."""
    exclusive_jobs: int = 0
    """How many of the jobs had their GPUs to themselves."""
    live: LiveDetails | None = None
    """What is known of a live run; None for a simulated one."""

    @classmethod
    def of(cls, result: Result) -> RecordedRun:
        """Return a result together with the timeline that it keeps in memory.

        Raises:
            InputError: The result has no timeline in memory.
        """
        tasks, jobs, cluster = timeline_of(result).tasks(), result.jobs, result.settings.cluster
        graphs = tuple(job.graph for job in result.workload)
        placed = PlacedMessages(graphs, cluster.server_of_gpu)
        for job, gpus in enumerate(result.gpus):
            placed.place(job, gpus)
        return cls(
            source=result.workload.source or "run",
            window=Window(0, int(result.finish_ns.max())),
            tasks=task_table(tasks, jobs["job_id"].to_list(), placed),
            jobs=jobs,
            settings=result.settings.to_dict(),
            server_gpus=cluster.server_gpus,
            graphs=graphs,
            exclusive_jobs=result.exclusive_jobs,
        )

    @property
    def servers(self) -> int:
        """The number of servers."""
        return len(self.server_gpus)

    @cached_property
    def server_of_gpu(self) -> Integers:
        """The server of each GPU."""
        return np.repeat(np.arange(self.servers), self.server_gpus)

    @cached_property
    def rail_of_gpu(self) -> Integers:
        """The rail of each GPU, its link to the network; rails are numbered server by server."""
        cluster = self.settings.get("cluster", {})
        groups = cluster.get("groups") or [{**cluster, "servers": self.servers}]
        rails = [group.get("rails", 1) for group in groups for _ in range(group["servers"])]
        return rail_of_gpu(self.server_gpus, rails)

    @cached_property
    def covers_all(self) -> bool:
        """Whether the whole run was recorded."""
        return self.window.from_ns == 0 and self.window.to_ns >= int(self.jobs["finish_ns"].max())  # type: ignore[arg-type]

    @cached_property
    def messages(self) -> polars.DataFrame:
        """The tasks that are messages."""
        import polars

        return self.tasks.filter(polars.col("kind") == KINDS[COMMUNICATION])

    @cached_property
    def steps(self) -> Steps:
        """The counters over the recorded window."""
        import polars

        messages = self.messages.with_row_index("message")
        pairs = messages.select("message", "servers").explode("servers")
        changes = counter_changes(
            self.jobs["arrival_ns"].to_numpy(),
            self.jobs["start_ns"].to_numpy(),
            Messages(
                ready_ns=messages["ready_ns"].to_numpy(),
                start_ns=messages["start_ns"].to_numpy(),
                end_ns=messages["end_ns"].to_numpy(),
                message=pairs["message"].cast(polars.Int64).to_numpy(),
                server=pairs["servers"].cast(polars.Int64).to_numpy(),
            ),
        )
        return counter_steps(changes, self.servers, self.window)

    def plot_contention(self) -> Figure:
        """Draw the messages on each server over time."""
        from headway.results.plots import contention_figure

        return contention_figure(self)
