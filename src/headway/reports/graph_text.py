"""A job's graph as text: a table of its entries, or its nodes for Graphviz."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from headway.domain.graph import Graph
from headway.durations import milliseconds_text
from headway.graphs.imports.imported import message_totals
from headway.text_table import TextTable


def entries_table(graph: Graph) -> TextTable:
    """Return a row for each entry: its ranks, its time or size, and what it waits for."""
    table = TextTable(["entry", "kind", "ranks"], ["ms", "MB"], ["after"])
    for task in graph.tasks:
        ranks = ranks_text(task.ranks, graph.ranks)
        time = milliseconds_text(task.duration_ns)
        table.add_row(task.name, "task", ranks, time, "", ", ".join(task.after))
    for message in graph.messages:
        ranks = " | ".join(ranks_text(group, graph.ranks) for group in message.groups)
        size = f"{message.buffer_bytes / 2**20:,.3f}"
        table.add_row(message.name, message.kind, ranks, "", size, ", ".join(message.after))
    return table


def totals_table(graph: Graph) -> TextTable:
    """Return the messages by kind and by the size of their groups, with the sum of their bytes."""
    table = TextTable(["messages"], ["ranks each", "number", "MB in all"])
    for one in message_totals(graph):
        table.add_row(
            one.kind,
            f"{one.group_ranks:,}",
            f"{one.messages:,}",
            f"{one.total_bytes / 2**20:,.1f}",
        )
    return table


def ranks_text(ranks: Collection[int], count: int) -> str:
    """Return ranks as ranges, such as `0-3, 6`, or `all`."""
    if len(ranks) == count:
        return "all"
    ordered = np.array(sorted(ranks))
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def to_dot(graph: Graph) -> str:
    """Return the tasks and messages of one iteration for Graphviz."""
    lines = ["digraph iteration {", "  rankdir=LR;", "  node [shape=box];"]
    lines += _nodes(graph)
    start, successors = graph.expanded.successor_start, graph.expanded.successors
    for node in range(graph.expanded.nodes):
        lines += [f"  n{node} -> n{other};" for other in successors[start[node] : start[node + 1]]]
    return "\n".join([*lines, "}"]) + "\n"


def _nodes(graph: Graph) -> Iterator[str]:
    found = graph.expanded
    for node, (entry, rank) in enumerate(zip(found.task_entry, found.task_rank, strict=True)):
        yield f'  n{node} [label="{_quoted(graph.tasks[entry].name)} on {rank}"];'
    for number, entry in enumerate(found.message_entry):
        group = found.group_ranks[found.group_start[number] : found.group_start[number + 1]]
        label = (
            f"{_quoted(graph.messages[entry].name)} among {ranks_text(group.tolist(), graph.ranks)}"
        )
        yield f'  n{found.tasks + number} [shape=ellipse, label="{label}"];'


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
