"""Makes a graph of operations: fuses computations, and gives ranks that do the same one entry.

Nothing of this changes when a task or a message of the graph may start:

- Computations that follow each other on a rank become one task if no message starts after the
  first and none must end before the second.
- A wait that follows from another, or from the order of tasks or messages, is left out.
- Ranks whose tasks and messages are the same share entries.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headway.domain.graph import Graph, Message, Task
from headway.graphs.imports.operations import Operation, Schedule

_NONE = -1

Reference = tuple[int, int]
"""A message as one of its ranks sees it: its channel's number and its place in that channel."""


@dataclass(slots=True)
class _Block:
    """Computations of one rank that became one task, and the messages that it waits for."""

    first: int
    """The operation that it begins with."""
    count: int
    duration_ns: int
    waits_for: list[int]


@dataclass(slots=True)
class _Stream:
    """What one rank does: its tasks, and its messages by channel."""

    blocks: list[_Block] = field(default_factory=list)
    block_before: dict[int, int] = field(default_factory=dict)
    """The last block that each message waits for, or _NONE."""
    messages_before: dict[int, list[int]] = field(default_factory=dict)
    """The messages that each message waits for."""
    messages: list[int] = field(default_factory=list)
    references: dict[int, Reference] = field(default_factory=dict)


def assemble(operations: Sequence[Operation], plan: Schedule, ranks: int) -> Graph:
    """Return the graph of some operations in the order of a schedule."""
    streams = _streams(operations, plan, ranks)
    alike = _alike(operations, streams)
    while True:
        sets = _message_sets(streams, alike)
        unlike = _overlapping(operations, sets)
        if not unlike:
            order = _set_order(plan, streams, alike, sets)
            if order is not None:
                return _graph(operations, plan, streams, alike, order)
            unlike = set(range(ranks))
        # Negative numbers are nobody else's.
        alike = [-1 - rank if rank in unlike else number for rank, number in enumerate(alike)]


def _streams(operations: Sequence[Operation], plan: Schedule, ranks: int) -> list[_Stream]:
    """Return each rank's tasks and messages, and what these wait for on that rank."""
    place = [_NONE] * len(operations)
    for order in plan.streams:
        for position, index in enumerate(order):
            place[index] = position
    tasks_before, messages_before = _direct_waits(operations, plan, place)

    streams = [_Stream() for _ in range(ranks)]
    channels: dict[str, int] = {}
    used: dict[tuple[int, int], int] = {}
    for index in plan.messages:
        operation = operations[index]
        channel = channels.setdefault(operation.channel, len(channels))
        for rank in operation.ranks:
            position = used.get((rank, channel), 0)
            used[rank, channel] = position + 1
            streams[rank].messages.append(index)
            streams[rank].references[index] = (channel, position)
    for rank, stream in enumerate(streams):
        stream.messages.sort(key=stream.references.__getitem__)
        _fill(stream, rank, operations, plan.streams[rank], tasks_before, messages_before)
    return streams


_Waits = list[dict[int, int]]


def _direct_waits(
    operations: Sequence[Operation], plan: Schedule, place: Sequence[int]
) -> tuple[_Waits, list[set[int]]]:
    """Return what each operation waits for, seen through steps that take no time.

    The first list has, by rank, the place in its stream of the last task; the second the messages.
    """
    tasks: _Waits = [{} for _ in operations]
    messages: list[set[int]] = [set() for _ in operations]
    for index in plan.completed:
        waits_for = operations[index].waits_for
        if len(waits_for) == 1 and _is_step(operations[waits_for[0]]):
            # Long chains of steps share what they wait for.
            tasks[index], messages[index] = tasks[waits_for[0]], messages[waits_for[0]]
            continue
        last, before = tasks[index], messages[index]
        for other in waits_for:
            operation = operations[other]
            if operation.is_task:
                rank = operation.ranks[0]
                last[rank] = max(last.get(rank, _NONE), place[other])
            elif operation.kind:
                before.add(other)
            else:
                before |= messages[other]
                for rank, position in tasks[other].items():
                    last[rank] = max(last.get(rank, _NONE), position)
    return tasks, messages


def _is_step(operation: Operation) -> bool:
    return not operation.is_task and not operation.kind


def _fill(
    stream: _Stream,
    rank: int,
    operations: Sequence[Operation],
    order: Sequence[int],
    tasks_before: _Waits,
    messages_before: Sequence[set[int]],
) -> None:
    """Cut a rank's computations into blocks, and find what its messages wait for."""
    ends = {tasks_before[index].get(rank, _NONE) for index in stream.messages}
    awaited: dict[int, int] = {}
    block_of: list[int] = []
    for position, index in enumerate(order):
        new = [
            other
            for other in messages_before[index]
            if other not in awaited and other in stream.references
        ]
        for other in new:
            awaited[other] = position
        if new or position - 1 in ends or not stream.blocks:
            stream.blocks.append(_Block(index, 0, 0, sorted(new)))
        block = stream.blocks[-1]
        block.count += 1
        block.duration_ns += operations[index].duration_ns
        block_of.append(len(stream.blocks) - 1)
    for index in stream.messages:
        last = tasks_before[index].get(rank, _NONE)
        stream.block_before[index] = block_of[last] if last != _NONE else _NONE
        channel, _ = stream.references[index]
        stream.messages_before[index] = [
            other
            for other in sorted(messages_before[index])
            # A task before it may have waited already, and the channel keeps its own order.
            if other in stream.references
            and awaited.get(other, len(order)) > last
            and stream.references[other][0] != channel
        ]


def _alike(operations: Sequence[Operation], streams: Sequence[_Stream]) -> list[int]:
    """Return a number for each rank; ranks with equal numbers do the same among the same."""
    numbers: dict[object, int] = {}

    def number(key: object) -> int:
        return numbers.setdefault(key, len(numbers))

    alike = []
    for stream in streams:
        reference = stream.references
        blocks = tuple(
            (block.duration_ns, tuple(sorted(reference[other] for other in block.waits_for)))
            for block in stream.blocks
        )
        messages = tuple(
            (
                reference[index],
                operations[index].kind,
                operations[index].buffer_bytes,
                stream.block_before[index],
                tuple(sorted(reference[other] for other in stream.messages_before[index])),
            )
            for index in stream.messages
        )
        alike.append(number((blocks, messages)))
    every = sorted({index for stream in streams for index in stream.messages})
    while True:
        among = {
            index: number(tuple(sorted(alike[rank] for rank in operations[index].ranks)))
            for index in every
        }
        finer = [
            number((alike[rank], tuple(among[index] for index in stream.messages)))
            for rank, stream in enumerate(streams)
        ]
        if len(set(finer)) == len(set(alike)):
            return alike
        alike = finer


def _members(alike: Sequence[int]) -> dict[int, list[int]]:
    """Return the ranks by their number."""
    members: dict[int, list[int]] = {}
    for rank, number in enumerate(alike):
        members.setdefault(number, []).append(rank)
    return members


def _message_sets(streams: Sequence[_Stream], alike: Sequence[int]) -> dict[int, list[int]]:
    """Return the messages that are to share an entry, by the first of them.

    Ranks that are alike name the same entry for what they wait for, so the messages at the same
    place of their channels belong together.
    """
    parent: dict[int, int] = {}

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for ranks in _members(alike).values():
        for rank in ranks:
            for first, other in zip(
                streams[ranks[0]].messages, streams[rank].messages, strict=True
            ):
                parent.setdefault(first, first)
                parent.setdefault(other, other)
                low, high = sorted((root(first), root(other)))
                parent[high] = low
    sets: dict[int, list[int]] = {}
    for index in sorted(parent):
        sets.setdefault(root(index), []).append(index)
    return sets


def _overlapping(operations: Sequence[Operation], sets: dict[int, list[int]]) -> set[int]:
    """Return the ranks of sets in which some rank has two messages."""
    found: set[int] = set()
    for members in sets.values():
        ranks = [rank for index in members for rank in operations[index].ranks]
        if len(set(ranks)) < len(ranks):
            found.update(ranks)
    return found


def _set_order(
    plan: Schedule,
    streams: Sequence[_Stream],
    alike: Sequence[int],
    sets: dict[int, list[int]],
) -> list[list[int]] | None:
    """Return the sets in an order that keeps each channel's; None if there is none."""
    place = {index: position for position, index in enumerate(plan.messages)}
    set_of = {index: first for first, members in sets.items() for index in members}
    earliest = {first: min(place[index] for index in members) for first, members in sets.items()}
    following: dict[int, set[int]] = {first: set() for first in sets}
    for ranks in _members(alike).values():
        stream = streams[ranks[0]]
        for one, other in pairwise(stream.messages):
            if stream.references[one][0] == stream.references[other][0]:
                following[set_of[one]].add(set_of[other])
    left = dict.fromkeys(sets, 0)
    for others in following.values():
        for other in others:
            left[other] += 1
    ready = [(earliest[first], first) for first, count in left.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, first = heapq.heappop(ready)
        order.append(sorted(sets[first], key=place.__getitem__))
        for other in following[first]:
            left[other] -= 1
            if left[other] == 0:
                heapq.heappush(ready, (earliest[other], other))
    return order if len(order) == len(sets) else None


def _graph(
    operations: Sequence[Operation],
    plan: Schedule,
    streams: Sequence[_Stream],
    alike: Sequence[int],
    order: Sequence[Sequence[int]],
) -> Graph:
    """Return the graph; `order` has the messages of each entry."""
    groups = list(_members(alike).values())
    blocks = [
        (plan.start_ns[block.first], number, position)
        for number, ranks in enumerate(groups)
        for position, block in enumerate(streams[ranks[0]].blocks)
    ]
    names = _Names()
    task_name = {}
    for _, number, position in sorted(blocks):
        block = streams[groups[number][0]].blocks[position]
        more = f" +{block.count - 1}" if block.count > 1 else ""
        task_name[number, position] = names.unique(f"{operations[block.first].name}{more}")
    message_name = {}
    for members in order:
        message_name.update(dict.fromkeys(members, names.unique(operations[members[0]].name)))

    tasks = []
    for _, number, position in sorted(blocks):
        block = streams[groups[number][0]].blocks[position]
        tasks.append(
            Task(
                task_name[number, position],
                tuple(groups[number]),
                block.duration_ns,
                _distinct(message_name[other] for other in block.waits_for),
            )
        )
    group_of = {rank: number for number, ranks in enumerate(groups) for rank in ranks}
    messages = []
    for members in order:
        after = []
        for number in {group_of[rank]: None for one in members for rank in operations[one].ranks}:
            rank = groups[number][0]
            stream = streams[rank]
            index = next(one for one in members if one in stream.references)
            if stream.block_before[index] != _NONE:
                after.append(task_name[number, stream.block_before[index]])
            after += [message_name[other] for other in stream.messages_before[index]]
        first = operations[members[0]]
        messages.append(
            Message(
                message_name[members[0]],
                first.kind,
                tuple(sorted(operations[one].ranks for one in members)),
                first.buffer_bytes,
                first.channel,
                _distinct(after),
            )
        )
    return Graph(len(streams), tuple(tasks), tuple(messages))


class _Names:
    """Names of entries; one that is taken gets a number."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """Return a name that no other entry has."""
        name = name or "unnamed"
        count = self._used.get(name, 0) + 1
        self._used[name] = count
        if count == 1:
            return name
        return self.unique(f"{name} ({count})")


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
