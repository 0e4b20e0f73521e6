"""When the last task or message ends, by the rules of graphs, if messages take some time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise

from headway.domain.graph import Graph
from headway.graphs.imports.operations import Operation, Schedule


def _time(seed: int, channel: str, group: tuple[int, ...], place: int) -> int:
    """Return some time for the n-th message of a group in a channel."""
    return hash((seed, sum(channel.encode()), group, place)) % 100_000_000


def path_of_operations(operations: Sequence[Operation], plan: Schedule, seed: int) -> int:
    """Return the length of an iteration of all operations, one by one."""
    before: dict[Hashable, set[Hashable]] = {}
    time: dict[Hashable, int] = {}
    for index, operation in enumerate(operations):
        before[index] = set(operation.waits_for)
        time[index] = operation.duration_ns
    for stream in plan.streams:
        for one, other in pairwise(stream):
            before[other].add(one)
    last: dict[tuple[str, int], int] = {}
    counts: dict[Hashable, int] = {}
    for index in plan.messages:
        operation = operations[index]
        key = operation.channel, operation.ranks
        counts[key] = counts.get(key, 0) + 1
        time[index] = _time(seed, operation.channel, operation.ranks, counts[key])
        for rank in operation.ranks:
            if (operation.channel, rank) in last:
                before[index].add(last[operation.channel, rank])
            last[operation.channel, rank] = index
    return _longest(before, time.__getitem__)


def path_of_graph(graph: Graph, seed: int) -> int:
    """Return the length of an iteration of a graph, from its entries alone."""
    before: dict[Hashable, set[Hashable]] = {}
    time: dict[Hashable, int] = {}
    node_of: dict[tuple[str, int], Hashable] = {}
    for task in graph.tasks:
        for rank in task.ranks:
            node_of[task.name, rank] = (task.name, rank)
            time[task.name, rank] = task.duration_ns
            before[task.name, rank] = set()
    for message in graph.messages:
        for group in message.groups:
            for rank in group:
                node_of[message.name, rank] = (message.name, min(group))
            before[message.name, min(group)] = set()
    previous: dict[Hashable, Hashable] = {}
    counts: dict[Hashable, int] = {}
    for task in graph.tasks:
        for rank in task.ranks:
            own = node_of[task.name, rank]
            before[own] |= {node_of[name, rank] for name in task.after if (name, rank) in node_of}
            if rank in previous:
                before[own].add(previous[rank])
            previous[rank] = own
    for message in graph.messages:
        for group in message.groups:
            key = message.channel, tuple(sorted(group))
            counts[key] = counts.get(key, 0) + 1
            own = message.name, min(group)
            time[own] = _time(seed, message.channel, tuple(sorted(group)), counts[key])
            for rank in group:
                before[own] |= {
                    node_of[name, rank] for name in message.after if (name, rank) in node_of
                }
                if (message.channel, rank) in previous:
                    before[own].add(previous[message.channel, rank])
                previous[message.channel, rank] = own
    return _longest(before, time.__getitem__)


def _longest(before: Mapping[Hashable, set[Hashable]], time: Callable[[Hashable], int]) -> int:
    """Return the longest path; each node ends its time after all those before it."""
    following: dict[Hashable, list[Hashable]] = {node: [] for node in before}
    left = {node: len(others) for node, others in before.items()}
    for node, others in before.items():
        for other in others:
            following[other].append(node)
    ready = [node for node, count in left.items() if count == 0]
    start = dict.fromkeys(before, 0)
    end = 0
    for node in ready:
        finish = start[node] + time(node)
        end = max(end, finish)
        for other in following[node]:
            start[other] = max(start[other], finish)
            left[other] -= 1
            if left[other] == 0:
                ready.append(other)
    assert len(ready) == len(before), "a cycle"
    return end
