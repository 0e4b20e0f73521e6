"""What an import gives: a graph, and what was dropped, guessed or merged on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from headway.domain.graph import Graph

Progress = Callable[[float, int], None]
"""Gets the share of the work that is done, and the bytes read."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph and sentences about what is not as in the file."""

    graph: Graph
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessageTotal:
    """Messages of one kind in groups of one size: how many, and the sum of their bytes M."""

    kind: str
    group_ranks: int
    messages: int
    total_bytes: int


def message_totals(graph: Graph) -> list[MessageTotal]:
    """Return the messages of a graph by kind and by the size of their groups."""
    messages: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    for entry in graph.messages:
        for group in entry.groups:
            messages[entry.kind, len(group)] += 1
            sums[entry.kind, len(group)] += entry.buffer_bytes
    return [MessageTotal(*key, messages[key], sums[key]) for key in sorted(messages)]


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: '1 task', '2,000 tasks'."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
