"""A recorded run: its tasks and jobs as tables, with the settings and the window they cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.domain.errors import InputError
from headway.domain.records import COMMUNICATION, Records
from headway.results.timeline.compiled import Integers, Steps
from headway.results.timeline.counters import Messages, counter_changes, counter_steps
from headway.results.timeline.window import Window

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

    from headway.results.schema import Result

KINDS = ("forward", "backward", "message")
"""The kinds of tasks; kind k of a task record is `KINDS[k]`."""


def task_schema(job_ids: Sequence[str]) -> dict[str, polars.DataType]:
    """Return the columns of a table of tasks, and their types."""
    import polars

    return {
        "job": polars.Int32(),
        "job_id": polars.Enum(job_ids),
        "iteration": polars.Int64(),
        "kind": polars.Enum(KINDS),
        "gpu": polars.Int32(),
        "servers": polars.List(polars.Int32),
        "ready_ns": polars.Int64(),
        "start_ns": polars.Int64(),
        "end_ns": polars.Int64(),
    }


def task_table(
    tasks: Records, job_ids: Sequence[str], servers: Sequence[Sequence[int]]
) -> polars.DataFrame:
    """Return task records as a table; `servers` holds each job's servers."""
    import polars

    schema = task_schema(job_ids)
    is_message = polars.Series(tasks.kind == COMMUNICATION)
    job = polars.Series(tasks.job)
    table = polars.DataFrame(
        {
            "job": job,
            "job_id": polars.Series(job_ids, dtype=schema["job_id"]).gather(job),
            "iteration": tasks.iteration,
            "kind": polars.Series(KINDS, dtype=schema["kind"]).gather(polars.Series(tasks.kind)),
            "gpu": tasks.gpu,
            "ready_ns": tasks.ready_ns,
            "start_ns": tasks.start_ns,
            "end_ns": tasks.end_ns,
        }
    ).with_columns(
        gpu=polars.when(~is_message).then(polars.col("gpu")),
        ready_ns=polars.when(is_message).then(polars.col("ready_ns")),
        sender=polars.when(is_message).then(polars.col("job")),
    )
    by_job = polars.Series([list(own) for own in servers], dtype=schema["servers"])
    return table.with_columns(servers=by_job.gather(table["sender"])).select(list(schema))


@dataclass(frozen=True)
class RecordedRun:
    """A run with its timeline, from a file or from memory."""

    source: str
    window: Window
    """The part of the run that was recorded, from 0 to its end if it was all."""
    tasks: polars.DataFrame
    """One row per task, ordered by their ends.

    `job` and `job_id`; `iteration`, from 0; `kind`, one of KINDS; `gpu`, null for a message;
    `servers` and `ready_ns` of a message, null for others; `start_ns` and `end_ns`. A message that
    was waiting in the window is included even if it started after it.
    """
    jobs: polars.DataFrame
    """The same table as `Result.jobs`."""
    settings: dict[str, Any]
    """The settings of the run as plain values."""
    server_gpus: tuple[int, ...]
    """The number of GPUs of each server; GPUs are numbered server by server."""

    @classmethod
    def of(cls, result: Result) -> RecordedRun:
        """Return a result together with the timeline that it keeps in memory.

        Raises:
            InputError: The result has no timeline in memory.
        """
        if result.timeline is None:
            raise InputError(
                "the run has no timeline in memory; record one with "
                "simulate(..., timeline=headway.Timeline())."
            )
        tasks, jobs, cluster = result.timeline.tasks(), result.jobs, result.settings.cluster
        servers = [cluster.servers_of(gpus) for gpus in result.gpus]
        return cls(
            source=result.workload.source or "run",
            window=Window(0, int(result.finish_ns.max())),
            tasks=task_table(tasks, jobs["job_id"].to_list(), servers),
            jobs=jobs,
            settings=result.settings.to_dict(),
            server_gpus=cluster.server_gpus,
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
