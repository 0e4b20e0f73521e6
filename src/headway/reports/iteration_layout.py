"""The layout of a picture of an iteration: a row for each rank, with its tasks and messages."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.domain.errors import InputError
from headway.reports.graph_text import ranks_text
from headway.reports.iteration import Iteration

MAX_BOXES = 20_000
"""The most tasks and messages in a picture."""

MERGED_ABOVE = 12
"""With more ranks than this, those that do the same at the same time share a row."""

MAX_ROWS = 32
TASK_HEIGHT, LANE_HEIGHT, GAP = 1.0, 0.5, 0.35
"""Heights in a row: of tasks, of each lane of messages below them, and between rows."""

OTHER = "other tasks"
MAX_FAMILIES = 5


@dataclass(frozen=True, slots=True)
class Box:
    """A node in a row; `top` counts downwards from the top of the picture."""

    node: int
    from_ms: float
    to_ms: float
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Row:
    """A rank, or several that do the same at the same time."""

    ranks: tuple[int, ...]
    label: str
    top: float
    height: float
    tasks: tuple[Box, ...]
    messages: tuple[Box, ...]

    @property
    def boxes(self) -> tuple[Box, ...]:
        """All nodes in this row."""
        return self.tasks + self.messages


def lay_out(iteration: Iteration) -> list[Row]:
    """Return the rows of a picture; of very many, the first.

    Raises:
        InputError: There are too many tasks and messages to draw.
    """
    nodes: dict[int, list[int]] = defaultdict(list)
    for node in range(iteration.graph.expanded.nodes):
        if iteration.end_ns[node] > iteration.start_ns[node]:
            for rank in iteration.ranks(node):
                nodes[rank].append(node)
    groups = _groups(iteration, nodes)[:MAX_ROWS]
    boxes = sum(len(nodes[ranks[0]]) for ranks in groups)
    if boxes > MAX_BOXES:
        raise InputError(
            f"{boxes:,} tasks and messages are too many for a picture; at most {MAX_BOXES:,} are "
            "drawn. Draw a smaller graph of the same kind."
        )
    rows, top = [], 0.0
    for ranks in groups:
        rows.append(_row(iteration, ranks, nodes[ranks[0]], top))
        top += rows[-1].height + GAP
    return rows


def _groups(iteration: Iteration, nodes: Mapping[int, list[int]]) -> list[tuple[int, ...]]:
    """Return the ranks of each row."""
    count = iteration.graph.ranks
    if count <= MERGED_ABOVE:
        return [(rank,) for rank in range(count)]
    alike: dict[tuple[tuple[str, int, int], ...], list[int]] = defaultdict(list)
    for rank in range(count):
        key = (
            (iteration.name(node), int(iteration.start_ns[node]), int(iteration.end_ns[node]))
            for node in nodes[rank]
        )
        alike[tuple(key)].append(rank)
    return [tuple(ranks) for ranks in alike.values()]


def _row(iteration: Iteration, ranks: tuple[int, ...], nodes: Iterable[int], top: float) -> Row:
    """Place the tasks of a rank in one line, and its messages in lanes below."""
    first_message = iteration.graph.expanded.tasks
    tasks, messages, lane_ends = [], [], list[int]()
    for node in sorted(nodes, key=lambda node: (int(iteration.start_ns[node]), node)):
        start_ns, end_ns = int(iteration.start_ns[node]), int(iteration.end_ns[node])
        if node < first_message:
            tasks.append(Box(node, start_ns / 1e6, end_ns / 1e6, top, TASK_HEIGHT))
            continue
        lane = next((i for i, end in enumerate(lane_ends) if end <= start_ns), len(lane_ends))
        lane_ends[lane : lane + 1] = [end_ns]
        below = top + TASK_HEIGHT + lane * LANE_HEIGHT
        messages.append(Box(node, start_ns / 1e6, end_ns / 1e6, below, LANE_HEIGHT))
    height = TASK_HEIGHT + len(lane_ends) * LANE_HEIGHT
    text = ranks_text(ranks, iteration.graph.ranks)
    label = f"rank {text}" if len(ranks) == 1 else f"{text} ranks" if text == "all" else text
    return Row(ranks, label, top, height, tuple(tasks), tuple(messages))


def family(name: str) -> str:
    """Return a task's name without its numbers: `forward` for `forward-3.1`."""
    return re.sub(r"[\W_]*\d[\d\W_]*$", "", name) or name


def families(iteration: Iteration, rows: Iterable[Row]) -> dict[str, str]:
    """Map names of tasks to the families in the legend, those of most time in order of time."""
    total: Counter[str] = Counter()
    names: dict[str, None] = {}
    for row in rows:
        for box in row.tasks:
            name = iteration.name(box.node)
            names[name] = None
            total[family(name)] += int(1e6 * (box.to_ms - box.from_ms))
    kept = {one for one, _ in total.most_common(MAX_FAMILIES)}
    return {name: family(name) if family(name) in kept else OTHER for name in names}
