"""The rows of a timeline and the graphs of the jobs: names of entries, servers of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.graph import Entry, Graph
from headway.domain.records import COMMUNICATION, NOBODY, Records
from headway.results.timeline.compiled import Integers


class GraphNodes:
    """The nodes of the jobs' graphs, looked up by job and node; jobs may share a graph."""

    def __init__(self, graphs: Sequence[Graph | None]) -> None:
        known: dict[int, int] = {}
        distinct: list[Graph] = []
        self._graph = np.full(len(graphs), NOBODY, np.int64)
        for job, graph in enumerate(graphs):
            if graph is not None:
                if id(graph) not in known:
                    known[id(graph)] = len(distinct)
                    distinct.append(graph)
                self._graph[job] = known[id(graph)]
        self.entries: list[Entry] = [entry for graph in distinct for entry in graph.entries]
        """The entries of all graphs."""
        entries, nodes, first = [], [], 0
        for graph in distinct:
            expanded = graph.expanded
            messages = len(graph.tasks) + expanded.message_entry
            entries.append(first + np.concatenate([expanded.task_entry, messages]))
            nodes.append(expanded.nodes)
            first += len(graph.entries)
        # The last of each is for jobs without a graph, whose nodes are NOBODY.
        self._entry = np.concatenate([*entries, [NOBODY]]).astype(np.int64)
        self._first = np.concatenate([[0], np.cumsum(nodes)]).astype(np.int64)
        self._first[-1] = len(self._entry)
        self._tasks = np.array([*(graph.expanded.tasks for graph in distinct), NOBODY], np.int64)

    def entry(self, job: Integers, node: Integers) -> Integers:
        """Return the index in `entries` of each node, or NOBODY for a job without a graph."""
        found: Integers = self._entry[self._first[self._graph[job]] + node]
        return found

    def message(self, job: Integers, node: Integers) -> Integers:
        """Return the number within its job of each node that is a message."""
        return node - self._tasks[self._graph[job]]


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists of integers, one after the other: list i is values[start[i] : start[i] + length[i]]."""

    values: Integers
    start: Integers
    length: Integers

    def take(self, rows: NDArray[Any]) -> Lists:
        """Return the lists of these rows, which share their values."""
        return Lists(self.values, self.start[rows], self.length[rows])

    def of(self, row: int) -> Integers:
        """Return one list."""
        return self.values[self.start[row] : self.start[row] + self.length[row]]

    def pairs(self) -> tuple[Integers, Integers]:
        """Return all values, each with the row of its list before it."""
        row = np.repeat(np.arange(len(self.length)), self.length)
        first = np.cumsum(self.length) - self.length
        return row, self.values[np.arange(len(row)) + (self.start - first)[row]]


def message_servers(graph: Graph | None, servers: Integers) -> Lists:
    """Return the servers of each message of a job, ascending; `servers` holds those of its ranks.

    A job without a graph has one message, on all its servers.
    """
    if graph is None:
        ranks, start = np.arange(len(servers)), np.array([0, len(servers)])
    else:
        ranks, start = graph.expanded.group_ranks, graph.expanded.group_start
    # Ranks ascend within a group, and so do the numbers of their GPUs and servers.
    of_rank = servers[ranks]
    new = np.ones(len(of_rank), np.bool_)
    new[1:] = of_rank[1:] != of_rank[:-1]
    new[start[:-1]] = True
    before = np.concatenate([[0], np.cumsum(new)])[start]
    return Lists(of_rank[new], before[:-1], np.diff(before))


class PlacedMessages:
    """The servers of all messages of the jobs placed so far."""

    def __init__(self, graphs: Sequence[Graph | None], server_of_gpu: Integers) -> None:
        self.nodes = GraphNodes(graphs)
        self.graphs = graphs
        self._server_of_gpu = server_of_gpu
        self._first = np.full(len(graphs), NOBODY, np.int64)
        self._messages = 0
        self._parts: list[Lists] = []

    def place(self, job: int, gpus: Sequence[int] | Integers) -> None:
        """Note the GPUs of a job, in ascending order."""
        own = message_servers(self.graphs[job], self._server_of_gpu[np.asarray(gpus, np.int64)])
        self._first[job] = self._messages
        self._messages += len(own.length)
        self._parts.append(own)

    def place_rows(self, rows: Records) -> None:
        """Note the GPUs of the jobs in rows of kind PLACEMENT."""
        ends = np.flatnonzero(np.diff(rows.job)) + 1
        for own in np.split(rows, ends) if len(rows) else []:
            self.place(int(own["job"][0]), own["gpu"])

    @property
    def servers(self) -> Lists:
        """The servers of all messages, in the order of `index`."""
        if len(self._parts) != 1:
            values = [np.zeros(0, np.int64), *(part.values for part in self._parts)]
            length = [np.zeros(0, np.int64), *(part.length for part in self._parts)]
            joined = np.concatenate(length)
            start = np.cumsum(joined) - joined
            self._parts = [Lists(np.concatenate(values), start, joined)]
        return self._parts[0]

    def index(self, tasks: Records) -> Integers:
        """Return the index in `servers` of each task that is a message, NOBODY for the others."""
        found = np.full(len(tasks), NOBODY, np.int64)
        is_message = tasks.kind == COMMUNICATION
        found[is_message] = self.index_of(tasks.job[is_message], tasks.node[is_message])
        return found

    def index_of(self, job: Integers, node: Integers) -> Integers:
        """Return the index in `servers` of messages, by job and node."""
        found: Integers = self._first[job] + self.nodes.message(job, node)
        return found

    def servers_of(self, tasks: Records) -> Lists:
        """Return the servers of each task that is a message, none for the others."""
        index, servers = self.index(tasks), self.servers
        # The list of no servers comes last.
        start, length = np.append(servers.start, 0), np.append(servers.length, 0)
        return Lists(servers.values, start[index], length[index])
