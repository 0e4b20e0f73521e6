"""What the jobs of a recorded run do over time: when they compute, and their messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.records import NOBODY
from headway.results.timeline.recorded import RecordedRun
from headway.results.usage import Integers


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of jobs."""

    job: Integers
    start_ns: Integers
    end_ns: Integers

    def where(self, chosen: NDArray[np.bool_]) -> Spans:
        """Return the chosen spans."""
        return Spans(self.job[chosen], self.start_ns[chosen], self.end_ns[chosen])

    def total_ns(self, jobs: int) -> Integers:
        """Return the total length of each job's spans."""
        total_ns = np.zeros(jobs, np.int64)
        np.add.at(total_ns, self.job, self.end_ns - self.start_ns)
        return total_ns


def union(spans: Spans, jobs: int) -> Spans:
    """Return when at least one span of a job is open, ordered by job and time.

    The given spans are ordered by job and end.
    """
    first = np.searchsorted(spans.job, np.arange(jobs + 1))
    is_last = np.ones(len(spans.job), np.bool_)
    earliest = np.empty_like(spans.start_ns)
    for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        # The earliest start of this span and of all that end later.
        starts = np.minimum.accumulate(spans.start_ns[begin:end][::-1])[::-1]
        earliest[begin:end] = starts
        is_last[begin : end - 1] = spans.end_ns[begin : end - 1] < starts[1:]
    last = np.flatnonzero(is_last)
    begun = np.concatenate([[0], last[:-1] + 1]).astype(np.intp)[: len(last)]
    return Spans(spans.job[last].astype(np.int64), earliest[begun], spans.end_ns[last])


def joined(*parts: Spans) -> Spans:
    """Return the spans of several sets, ordered by job and end."""
    job = np.concatenate([part.job for part in parts])
    start_ns = np.concatenate([part.start_ns for part in parts])
    end_ns = np.concatenate([part.end_ns for part in parts])
    order = np.lexsort((end_ns, job))
    return Spans(job[order], start_ns[order], end_ns[order])


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages, ordered by job and by when they were ready."""

    job: Integers
    group: Integers
    """Messages of one group are on the same servers."""
    entry: Integers
    """The index of the entry of the job's graph; NOBODY without a graph."""
    iteration: Integers
    ready_ns: Integers
    start_ns: Integers
    end_ns: Integers

    @property
    def waiting(self) -> Spans:
        """When they wait for admission."""
        return Spans(self.job, self.ready_ns, self.start_ns)

    @property
    def in_flight(self) -> Spans:
        """When they are in flight."""
        return Spans(self.job, self.start_ns, self.end_ns)

    def where(self, chosen: NDArray[np.bool_]) -> Messages:
        """Return the chosen messages."""
        return Messages(*(getattr(self, name)[chosen] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class ComputeTasks:
    """The compute tasks, ordered by job and end."""

    spans: Spans
    iteration: Integers


def compute_tasks(run: RecordedRun) -> ComputeTasks:
    """Return the compute tasks of a run."""
    import polars

    tasks = run.tasks.filter(polars.col("gpu").is_not_null())
    job = tasks["job"].to_numpy()
    # Tasks are ordered by end. Sorting 16-bit integers is several times as quick.
    small = len(run.jobs) < 1 << 16
    order = np.argsort(job.astype(np.uint16) if small else job, kind="stable")
    job, start_ns, end_ns, iteration = (
        tasks[name].to_numpy()[order] for name in ("job", "start_ns", "end_ns", "iteration")
    )
    return ComputeTasks(Spans(job, start_ns, end_ns), iteration)


@dataclass(frozen=True, slots=True)
class MessageGroups:
    """The messages of a run, and the servers of each of their groups."""

    messages: Messages
    servers: tuple[tuple[int, ...], ...]
    entries: tuple[str, ...]
    """The names of the entries of graphs."""


def message_groups(run: RecordedRun) -> MessageGroups:
    """Return the messages of a run in groups that share their servers."""
    table = run.messages.sort("job", "ready_ns", "start_ns", maintain_order=True)
    job = table["job"].to_numpy().astype(np.int64)
    node = table["node"].fill_null(NOBODY).to_numpy().astype(np.int64)
    # A job's messages of one node are on the same servers in every iteration.
    nodes = int(node.max(initial=0)) + 2
    _, rows, group = np.unique(job * nodes + node + 1, return_index=True, return_inverse=True)
    entry: Any = table["entry"].to_physical().cast(int).fill_null(NOBODY)
    messages = Messages(
        job=job,
        group=group.astype(np.int64),
        entry=entry.to_numpy().astype(np.int64),
        iteration=table["iteration"].to_numpy(),
        ready_ns=table["ready_ns"].to_numpy(),
        start_ns=table["start_ns"].to_numpy(),
        end_ns=table["end_ns"].to_numpy(),
    )
    servers = table["servers"].gather(rows).to_list()
    names: Any = table.schema["entry"]
    return MessageGroups(messages, tuple(map(tuple, servers)), tuple(names.categories.to_list()))
