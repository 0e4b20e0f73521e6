"""The critical path of each iteration of a job with a graph, from the timeline of a run.

It is found from its end: the task or message that ended last, before it the one whose end made that
ready, and so on to the start of the iteration (of several that ended together, the first by
number). Each waits from the end of its predecessor to its own start, so that the path covers the
iteration without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.graph import Graph
from headway.domain.graph_expansion import ExpandedGraph
from headway.domain.records import NOBODY
from headway.results.timeline.compiled import Integers
from headway.results.timeline.nodes import message_servers
from headway.results.timeline.recorded import RecordedRun


@dataclass(frozen=True, slots=True)
class Spans:
    """Tasks or messages: when each was ready, started and ended, its GPU, node and iteration."""

    ready_ns: Integers
    start_ns: Integers
    end_ns: Integers
    gpu: Integers
    node: Integers
    iteration: Integers

    def where(self, chosen: NDArray[Any]) -> Spans:
        """Return the chosen ones."""
        return Spans(*(getattr(self, name)[chosen] for name in self.__slots__))

    @property
    def length_ns(self) -> Integers:
        """How long each ran."""
        return self.end_ns - self.start_ns

    @property
    def waiting_ns(self) -> Integers:
        """How long each waited."""
        return self.start_ns - self.ready_ns


@dataclass(frozen=True, slots=True)
class Path:
    """The tasks and the messages on the critical paths of all iterations of a job."""

    tasks: Spans
    messages: Spans


def critical_path(run: RecordedRun, job: int, graph: Graph, gpus: Integers, start_ns: int) -> Path:
    """Return the critical paths of all iterations of a job on these GPUs, ascending.

    Raises:
        ValueError: The rows of the job are not those of its graph.
    """
    import polars

    rows = run.tasks.filter(polars.col("job") == job)
    iteration, node = rows["iteration"].to_numpy(), rows["node"].to_numpy()
    count, expanded = int(run.jobs["iterations"][job]), graph.expanded
    servers = message_servers(graph, run.server_of_gpu[gpus]).length
    end_ns = np.full((count, expanded.nodes), NOBODY, np.int64)
    np.maximum.at(end_ns, (iteration, node), rows["end_ns"].to_numpy())
    recorded = np.concatenate([np.ones(expanded.tasks, np.bool_), servers > 1])
    if ((end_ns != NOBODY) != recorded).any():
        raise ValueError
    ended_ns = end_ns.max(axis=1)
    started_ns = np.concatenate([[start_ns], ended_ns[:-1]])
    waits_for = _predecessors(expanded)
    for other in expanded.topological_order[~recorded[expanded.topological_order]].tolist():
        end_ns[:, other] = end_ns[:, waits_for[other]].max(axis=1, initial=0)
        end_ns[:, other] = np.maximum(end_ns[:, other], started_ns)
    on_path, ready_ns = _walk(end_ns, started_ns, waits_for)

    chosen = on_path[iteration, node]
    rows, iteration, node = rows.filter(chosen), iteration[chosen], node[chosen]
    is_task = node < expanded.tasks
    # A bucket is ready when the one before it has ended, as its row says.
    ready = np.where(is_task, ready_ns[iteration, node], rows["ready_ns"].fill_null(0).to_numpy())
    spans = Spans(
        ready_ns=ready,
        start_ns=rows["start_ns"].to_numpy(),
        end_ns=rows["end_ns"].to_numpy(),
        gpu=rows["gpu"].fill_null(NOBODY).to_numpy(),
        node=node,
        iteration=iteration,
    )
    return Path(spans.where(is_task), spans.where(~is_task))


def _predecessors(graph: ExpandedGraph) -> list[Integers]:
    """Return the nodes that each node waits for, ascending."""
    before = np.repeat(np.arange(graph.nodes), np.diff(graph.successor_start))
    order = np.argsort(graph.successors, kind="stable")
    return np.split(before[order], np.cumsum(graph.predecessors)[:-1])


def _walk(
    end_ns: Integers, started_ns: Integers, waits_for: list[Integers]
) -> tuple[NDArray[np.bool_], Integers]:
    """Return which nodes of which iterations are on critical paths, and when these were ready.

    All iterations take a step together, those at the same node at once.
    """
    on_path, ready_ns = np.zeros(end_ns.shape, np.bool_), np.zeros(end_ns.shape, np.int64)
    current = end_ns.argmax(axis=1)
    active = np.arange(len(current))
    while len(active):
        for node in np.unique(current[active]).tolist():
            here = active[current[active] == node]
            before = waits_for[node]
            on_path[here, node] = True
            if len(before) == 0:
                ready_ns[here, node] = started_ns[here]
                current[here] = NOBODY
                continue
            ends_ns = end_ns[np.ix_(here, before)]
            current[here] = before[ends_ns.argmax(axis=1)]
            ready_ns[here, node] = ends_ns.max(axis=1)
        active = active[current[active] != NOBODY]
    return on_path, ready_ns
