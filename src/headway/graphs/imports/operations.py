"""What other simulators' files describe: operations with dependencies, but without an order.

A graph needs an order: of a rank's tasks, and of a channel's messages. `schedule` runs one
iteration in which messages take no time and takes the order of that run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.domain.errors import InputError, shown

_LONG_CYCLE = 8
"""Operations of a cycle that an error message names."""


@dataclass(slots=True)
class Operation:
    """A computation on one rank, a message among several, or a step that takes no time.

    A message has a `kind` of `message_kinds`. A step without a kind and of 0 ns is only passed
    on: what waits for it waits for what it waits for.
    """

    name: str
    ranks: tuple[int, ...]
    priority: int
    """Of a rank's computations that are ready, the lowest runs first."""
    source: str
    """The file, for error messages."""
    duration_ns: int = 0
    kind: str = ""
    buffer_bytes: int = 0
    channel: str = ""
    waits_for: list[int] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The operation in error messages."""
        return f"node {self.priority} ({shown(self.name)}) of {self.source}"

    @property
    def is_task(self) -> bool:
        """Whether the operation occupies its rank."""
        return self.duration_ns > 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order of a run in which messages take no time."""

    start_ns: list[int]
    """When each operation starts."""
    streams: list[list[int]]
    """The computations of each rank in the order in which they run."""
    completed: list[int]
    """All operations, each after those that it waits for."""
    messages: list[int]
    """The messages in the order in which they are ready; of those that are ready at the same
    time, the one that is needed first comes first."""


def schedule(operations: Sequence[Operation], ranks: int) -> Schedule:
    """Run the operations: of a rank's computations that are ready, the lowest priority first.

    Raises:
        InputError: Some operations wait for each other.
    """
    following: list[list[int]] = [[] for _ in operations]
    left = []
    for index, operation in enumerate(operations):
        before = set(operation.waits_for)
        left.append(len(before))
        for other in before:
            following[other].append(index)
    start_ns = [0] * len(operations)
    streams: list[list[int]] = [[] for _ in range(ranks)]
    completed: list[int] = []
    waiting: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    busy = [False] * ranks
    running: list[tuple[int, int]] = []
    released = [index for index, count in enumerate(left) if count == 0]
    candidates: dict[int, None] = {}
    now_ns = 0

    def complete(index: int) -> None:
        completed.append(index)
        for other in following[index]:
            left[other] -= 1
            if left[other] == 0:
                released.append(other)

    while True:
        # Messages and steps end as soon as they are ready, so the list grows while it is read.
        for index in released:
            operation = operations[index]
            if operation.is_task:
                rank = operation.ranks[0]
                heapq.heappush(waiting[rank], (operation.priority, index))
                candidates[rank] = None
            else:
                start_ns[index] = now_ns
                complete(index)
        for rank in candidates:
            if not busy[rank] and waiting[rank]:
                _, index = heapq.heappop(waiting[rank])
                busy[rank] = True
                start_ns[index] = now_ns
                streams[rank].append(index)
                heapq.heappush(running, (now_ns + operations[index].duration_ns, index))
        released.clear()
        candidates.clear()
        if not running:
            break
        now_ns = running[0][0]
        while running and running[0][0] == now_ns:
            _, index = heapq.heappop(running)
            rank = operations[index].ranks[0]
            busy[rank] = False
            candidates[rank] = None
            complete(index)
    if len(completed) < len(operations):
        raise _cycle_error(operations, left)
    messages = _message_order(operations, following, start_ns, completed)
    return Schedule(start_ns, streams, completed, messages)


def _message_order(
    operations: Sequence[Operation],
    following: Sequence[Sequence[int]],
    start_ns: Sequence[int],
    completed: Sequence[int],
) -> list[int]:
    """Return the messages by when they are ready, then by when their result is first used."""
    needed_ns: list[float] = [math.inf] * len(operations)
    for index in reversed(completed):
        if operations[index].is_task:
            needed_ns[index] = start_ns[index]
        else:
            needed_ns[index] = min(
                (needed_ns[other] for other in following[index]), default=math.inf
            )
    place = {index: position for position, index in enumerate(completed)}
    messages = [index for index in completed if operations[index].kind]
    messages.sort(key=lambda index: (start_ns[index], needed_ns[index], place[index]))
    return messages


def _cycle_error(operations: Sequence[Operation], left: Sequence[int]) -> InputError:
    """Return the error that names operations which wait for each other."""
    # Each operation that is left waits for another of them, so walking back returns somewhere.
    index = next(index for index, count in enumerate(left) if count)
    walk: dict[int, None] = {}
    while index not in walk:
        walk[index] = None
        index = next(other for other in operations[index].waits_for if left[other])
    path = list(walk)
    cycle = path[path.index(index) :][::-1]
    names = [operations[one].where for one in cycle]
    more = f", … ({len(names) - _LONG_CYCLE:,} more)" if len(names) > _LONG_CYCLE else ""
    return InputError(
        f"these wait for each other, each for the one before and the first for the last: "
        f"{', '.join(names[:_LONG_CYCLE])}{more}."
    )
