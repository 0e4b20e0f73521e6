"""The nodes of a graph, and which of them wait for which: the three rules as plain edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.domain.errors import InputError
from headway.domain.message_kinds import KINDS

if TYPE_CHECKING:
    from headway.domain.graph import Entry, Message, Task

Integers = NDArray[np.int64]

_LONG_CYCLE = 8
"""Nodes of a cycle that an error message names."""

_FEW_RANKS = 4
"""Ranks of a message that an error message names."""


@dataclass(frozen=True, eq=False)
class ExpandedGraph:
    """The tasks and messages that the entries of a graph stand for, and their order.

    Nodes are numbered: first the tasks, by entry and within an entry by rank, then the messages,
    by entry and within an entry by group. Lists of lists are flat arrays with an array of starts:
    the successors of node i are `successors[successor_start[i] : successor_start[i + 1]]`.
    """

    task_rank: Integers
    task_ns: Integers
    task_entry: Integers
    """The index in `Graph.tasks` of each task."""
    message_entry: Integers
    """The index in `Graph.messages` of each message."""
    message_kind: Integers
    """The index in `message_kinds.KINDS`."""
    message_bytes: Integers
    group_start: Integers
    group_ranks: Integers
    """The ranks of each message, ascending."""
    rank_start: Integers
    rank_tasks: Integers
    """The tasks of each rank in the order in which they run."""
    successor_start: Integers
    successors: Integers
    """The nodes that wait for each node, ascending: stream order, `after` and channel order."""
    predecessors: Integers
    """The number of nodes that each node waits for."""
    topological_order: Integers
    """All nodes, each after those that it waits for."""

    @property
    def tasks(self) -> int:
        """The number of tasks, which is the number of the first message's node."""
        return len(self.task_rank)

    @property
    def nodes(self) -> int:
        """The number of tasks and messages."""
        return len(self.predecessors)

    def longest_path_ns(self, task_ns: Sequence[int] | None = None) -> int:
        """Return when the last task ends if messages take no time, from these times of tasks."""
        times = self.task_ns.tolist() if task_ns is None else [int(time) for time in task_ns]
        start, successors, order = self._lists
        times += [0] * (self.nodes - self.tasks)
        ready = [0] * self.nodes
        longest = 0
        for node in order:
            end = ready[node] + times[node]
            longest = max(longest, end)
            for following in successors[start[node] : start[node + 1]]:
                ready[following] = max(ready[following], end)
        return longest

    def behind_ns(self, task_ns: Sequence[int]) -> list[int]:
        """Return the longest path of computing after each message, from these times of tasks."""
        start, successors, order = self._lists
        times = [*task_ns, *([0] * (self.nodes - self.tasks))]
        behind = [0] * self.nodes
        for node in reversed(order):
            following = successors[start[node] : start[node + 1]]
            behind[node] = max((times[other] + behind[other] for other in following), default=0)
        return behind[self.tasks :]

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[int]]:
        """Starts, successors and order as lists, which Python reads faster than arrays."""
        return (
            self.successor_start.tolist(),
            self.successors.tolist(),
            self.topological_order.tolist(),
        )


@dataclass(frozen=True, slots=True)
class _Members:
    """The ranks of an entry, ascending, and the node of the entry that each of them is in."""

    ranks: Integers
    nodes: Integers


def expand(ranks: int, tasks: Sequence[Task], messages: Sequence[Message]) -> ExpandedGraph:
    """Return the nodes and edges of a graph whose entries are valid one by one.

    Raises:
        InputError: An entry waits for one with which it has no rank in common, a task for a later
            task, or there is a cycle.
    """
    sorted_ranks: dict[tuple[int, ...], Integers] = {}

    def ascending(group: tuple[int, ...]) -> Integers:
        if group not in sorted_ranks:
            sorted_ranks[group] = np.sort(np.array(group, np.int64))
        return sorted_ranks[group]

    members: dict[str, _Members] = {}
    nodes = 0
    for task in tasks:
        own = ascending(task.ranks)
        members[task.name] = _Members(own, np.arange(nodes, nodes + len(own)))
        nodes += len(own)
    task_count = nodes
    groups: list[Integers] = []
    for message in messages:
        parts = [ascending(group) for group in message.groups]
        groups += parts
        numbers = np.arange(nodes, nodes + len(parts))
        members[message.name] = _by_rank(parts, numbers)
        nodes += len(parts)

    task_lengths = [len(members[task.name].ranks) for task in tasks]
    message_lengths = [len(message.groups) for message in messages]
    task_rank = _joined([members[task.name].ranks for task in tasks])
    group_start = _starts([len(group) for group in groups])
    group_ranks = _joined(groups)
    message_entry = np.repeat(np.arange(len(messages)), message_lengths)

    rank_tasks = np.argsort(task_rank, kind="stable")
    edges = [
        _consecutive(rank_tasks, task_rank[rank_tasks]),
        _after(tasks, messages, members),
        _channel_order(messages, message_entry, group_start, group_ranks, task_count),
    ]
    before, following = _unique(np.concatenate(edges, axis=1), nodes)
    successor_start = _starts(np.bincount(before, minlength=nodes))
    predecessors = np.bincount(following, minlength=nodes)
    order = _topological_order(successor_start, following, predecessors)
    if len(order) < nodes:
        left = np.setdiff1d(np.arange(nodes), order)
        cycle = _cycle(before, following, left)
        raise _cycle_error(cycle, tasks, messages, members)
    return ExpandedGraph(
        task_rank=task_rank,
        task_ns=np.repeat([task.duration_ns for task in tasks], task_lengths),
        task_entry=np.repeat(np.arange(len(tasks)), task_lengths),
        message_entry=message_entry,
        message_kind=np.repeat(
            np.array([KINDS.index(message.kind) for message in messages], np.int64),
            message_lengths,
        ),
        message_bytes=np.repeat(
            np.array([message.buffer_bytes for message in messages], np.int64), message_lengths
        ),
        group_start=group_start,
        group_ranks=group_ranks,
        rank_start=_starts(np.bincount(task_rank, minlength=ranks)),
        rank_tasks=rank_tasks,
        successor_start=successor_start,
        successors=following,
        predecessors=predecessors,
        topological_order=order,
    )


def _by_rank(groups: Sequence[Integers], numbers: Integers) -> _Members:
    """Return the ranks of some groups, ascending, with the number of the group of each."""
    if len(groups) == 1:
        return _Members(groups[0], np.full(len(groups[0]), numbers[0]))
    ranks = _joined(groups)
    owners = np.repeat(numbers, [len(group) for group in groups])
    order = np.argsort(ranks)
    return _Members(ranks[order], owners[order])


def _joined(arrays: Sequence[Integers]) -> Integers:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _starts(counts: Sequence[int] | Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def _consecutive(nodes: Integers, key: Integers) -> Integers:
    """Return an edge from each node to the next one in the list, if both have the same key."""
    same = key[1:] == key[:-1]
    return np.stack([nodes[:-1][same], nodes[1:][same]])


def _after(
    tasks: Sequence[Task], messages: Sequence[Message], members: dict[str, _Members]
) -> Integers:
    """Return the edges of every `after`: between nodes with a rank in common."""
    entries: list[Entry] = [*tasks, *messages]
    number = {entry.name: index for index, entry in enumerate(entries)}
    # Pairs of an entry and one that it waits for.
    waiting = np.repeat(np.arange(len(entries)), [len(entry.after) for entry in entries])
    awaited = np.array([number[name] for entry in entries for name in entry.after], np.int64)
    sizes = np.array([len(members[entry.name].ranks) for entry in entries], np.int64)
    start = _starts(sizes)
    ranks = _joined([members[entry.name].ranks for entry in entries])
    nodes = _joined([members[entry.name].nodes for entry in entries])
    # The places in these arrays of each pair's waiting entry.
    lengths = sizes[waiting]
    pair = np.repeat(np.arange(len(waiting)), lengths)
    place = np.arange(len(pair)) - np.repeat(_starts(lengths)[:-1] - start[waiting], lengths)
    # Entries and ranks are both below 2**24, so that one ascending key holds both.
    keys = np.repeat(np.arange(len(entries)), sizes) * 2**24 + ranks
    wanted = awaited[pair] * 2**24 + ranks[place]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    common = keys[at] == wanted
    alone = np.bincount(pair[common], minlength=len(waiting)) == 0
    later = (waiting < len(tasks)) & (awaited < len(tasks)) & (awaited > waiting)
    if (wrong := later | alone).any():
        first = int(wrong.argmax())
        raise _after_error(entries[waiting[first]], entries[awaited[first]].name, later[first])
    return np.stack([nodes[at[common]], nodes[place[common]]])


def _after_error(entry: Entry, name: str, later: bool) -> InputError:
    if later:
        problem = (
            f"the task {name!r} stands later in the list; a task can only wait for tasks before it."
        )
    else:
        problem = (
            f"has no rank in common with {name!r}, so nothing would wait; leave {name!r} out or "
            "correct the ranks."
        )
    return InputError(problem, field=f"{entry.label}, after")


def _channel_order(
    messages: Sequence[Message],
    message_entry: Integers,
    group_start: Integers,
    group_ranks: Integers,
    task_count: int,
) -> Integers:
    """Return an edge from each message to the next in its channel, on each of its ranks."""
    numbers: dict[str, int] = {}
    channel = [numbers.setdefault(message.channel, len(numbers)) for message in messages]
    sizes = np.diff(group_start)
    node = np.repeat(np.arange(task_count, task_count + len(sizes)), sizes)
    key = np.repeat(np.array(channel, np.int64)[message_entry], sizes)
    order = np.lexsort((node, group_ranks, key))
    # Channels and ranks are both below 2**24, so that one key holds both.
    return _consecutive(node[order], (key * 2**24 + group_ranks)[order])


def _unique(edges: Integers, nodes: int) -> tuple[Integers, Integers]:
    """Return sources and targets without duplicates, by source, then by target."""
    keys = np.unique(edges[0] * nodes + edges[1])
    return keys // nodes, keys % nodes


def _topological_order(start: Integers, successors: Integers, predecessors: Integers) -> Integers:
    """Return the nodes in an order in which none precedes its predecessors; all if possible."""
    first, following, waits_for = start.tolist(), successors.tolist(), predecessors.tolist()
    order = [node for node, count in enumerate(waits_for) if count == 0]
    for node in order:
        for other in following[first[node] : first[node + 1]]:
            waits_for[other] -= 1
            if waits_for[other] == 0:
                order.append(other)
    return np.array(order, np.int64)


def _cycle(before: Integers, following: Integers, left: Integers) -> list[int]:
    """Return one cycle among the nodes that no order reaches, from its first node."""
    stuck = set(left.tolist())
    # Each of these nodes waits for another of them, so walking back must return somewhere.
    waits_for = {
        target: source
        for source, target in zip(before.tolist(), following.tolist(), strict=True)
        if source in stuck and target in stuck
    }
    walk: dict[int, None] = {}
    node = min(stuck)
    while node not in walk:
        walk[node] = None
        node = waits_for[node]
    path = list(walk)
    cycle = path[path.index(node) :][::-1]
    at = cycle.index(min(cycle))
    return cycle[at:] + cycle[:at]


def _cycle_error(
    cycle: list[int],
    tasks: Sequence[Task],
    messages: Sequence[Message],
    members: dict[str, _Members],
) -> InputError:
    entries: list[Entry] = [*tasks, *messages]
    task_count = sum(len(task.ranks) for task in tasks)
    first_node = [int(members[entry.name].nodes.min()) for entry in entries]

    def label(node: int) -> str:
        entry = entries[int(np.searchsorted(first_node, node, side="right")) - 1]
        own = members[entry.name]
        ranks = own.ranks[own.nodes == node].tolist()
        if node < task_count:
            return f"{entry.name!r} on rank {ranks[0]}"
        more = ", …" if len(ranks) > _FEW_RANKS else ""
        return f"{entry.name!r} among ranks {', '.join(map(str, ranks[:_FEW_RANKS]))}{more}"

    shown = len(cycle) if len(cycle) <= _LONG_CYCLE else _LONG_CYCLE - 1
    names = [label(node) for node in cycle[:shown]]
    if shown < len(cycle):
        names.append(f"… ({len(cycle) - shown:,} more)")
    return InputError(
        f"a cycle: {' -> '.join([*names, names[0]])}, each before the next by `after`, by "
        "the order of a rank's tasks or by that of a channel's messages."
    )
