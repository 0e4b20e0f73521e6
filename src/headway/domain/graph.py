"""The graph of an iteration: computing on the ranks of a job, and messages among them.

Entries stand for several nodes: a task entry for one task on each of its ranks, a message entry
for one message in each of its groups. `Graph.expanded` has the nodes and what each waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.graph_expansion import ExpandedGraph, expand
from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_GPUS, text, whole
from headway.domain.message_kinds import ALL_TO_ALL, KINDS, SEND, message_size_bytes

MAX_NODES = 2**22
"""The most tasks of a graph, and the most ranks in all groups of its messages together."""

DEFAULT_CHANNEL = "default"


@dataclass(frozen=True, slots=True)
class Task:
    """One compute task on each of `ranks`; it waits for the entries named in `after`."""

    name: str
    ranks: tuple[int, ...]
    duration_ns: int
    after: tuple[str, ...] = ()

    def __init__(
        self, name: str, ranks: Iterable[int], duration_ns: int, after: Iterable[str] = ()
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "ranks", _as_tuple(ranks, self, "ranks"))
        object.__setattr__(self, "duration_ns", duration_ns)
        object.__setattr__(self, "after", _as_tuple(after, self, "after"))

    @property
    def label(self) -> str:
        """The entry in error messages."""
        return f"task {shown(self.name)}"


@dataclass(frozen=True, slots=True)
class Message:
    """One message in each of `groups`, which are disjoint sets of ranks.

    `kind` is one of `message_kinds.KINDS`. `buffer_bytes` are the bytes of the buffer on each rank
    for an all-reduce, of the whole buffer for a reduce-scatter or an all-gather, those that each
    rank has to send in all for an all-to-all, and those sent for a send. Messages of one channel
    that have a rank in common run one after the other.
    """

    name: str
    kind: str
    groups: tuple[tuple[int, ...], ...]
    buffer_bytes: int
    channel: str = DEFAULT_CHANNEL
    after: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        kind: str,
        groups: Iterable[Iterable[int]],
        buffer_bytes: int,
        channel: str = DEFAULT_CHANNEL,
        after: Iterable[str] = (),
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "kind", kind)
        lists = _as_tuple(groups, self, "groups")
        object.__setattr__(
            self, "groups", tuple(_as_tuple(group, self, "groups") for group in lists)
        )
        object.__setattr__(self, "buffer_bytes", buffer_bytes)
        object.__setattr__(self, "channel", channel)
        object.__setattr__(self, "after", _as_tuple(after, self, "after"))

    @property
    def label(self) -> str:
        """The entry in error messages."""
        return f"message {shown(self.name)}"


Entry = Task | Message
Ranks = TypeVar("Ranks", tuple[int, ...], tuple[tuple[int, ...], ...])


@dataclass(frozen=True, repr=False)
class Graph:
    """One iteration of a job of `ranks` GPUs; rank r runs on the r-th of them by number.

    The tasks of a rank run one at a time, in the order of entries. Each task or message waits for
    those of the entries in `after` with which it has a rank in common, and each message for the
    earlier ones of its channel on its ranks.

    Raises:
        InputError: Some entry is invalid, or the graph has a cycle.
    """

    ranks: int
    tasks: tuple[Task, ...]
    messages: tuple[Message, ...] = ()
    expanded: ExpandedGraph = field(init=False, compare=False)

    def __init__(self, ranks: int, tasks: Iterable[Task], messages: Iterable[Message] = ()) -> None:
        object.__setattr__(self, "ranks", whole(ranks, "ranks", 1, MAX_GPUS))
        object.__setattr__(self, "tasks", tuple(tasks))
        object.__setattr__(self, "messages", tuple(messages))
        _check_names(self.entries)
        _check_tasks(self)
        _check_messages(self)
        object.__setattr__(self, "expanded", expand(ranks, self.tasks, self.messages))

    def __repr__(self) -> str:
        tasks, messages = self.expanded.tasks, self.message_count
        return f"<Graph: {self.ranks:,} ranks, {tasks:,} tasks, {messages:,} messages>"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Tasks, then messages."""
        return self.tasks + self.messages

    @property
    def message_count(self) -> int:
        """The number of messages: one for each group of each entry."""
        return len(self.expanded.message_entry)

    def unit_ns(self, task_ns: Sequence[int] | None = None) -> int:
        """Return the length of one iteration in which messages take no time: u_J.

        Args:
            task_ns: The time of each task, in the order of `expanded`; by default its own.
        """
        return self.expanded.longest_path_ns(task_ns)

    def total_size_bytes(self, ring: bool) -> int:
        """Return the sum of round(f * M) over all messages, with one rank on each server."""
        total = 0
        for entry in self.messages:
            size = message_size_bytes(KINDS.index(entry.kind), entry.buffer_bytes, 1, ring)
            total += len(entry.groups) * size
        return total


def check_nodes(tasks: int, in_messages: int) -> None:
    """Refuse a graph that would be too large, before it is built.

    Args:
        tasks: Its tasks.
        in_messages: The ranks in all groups of its messages.
    """
    for count, what in ((tasks, "tasks"), (in_messages, "ranks in the groups of its messages")):
        if count > MAX_NODES:
            raise InputError(
                f"the graph would have {count:,} {what}; at most {MAX_NODES:,} are allowed."
            )


def _as_tuple(values: object, entry: Entry, key: str) -> tuple[object, ...]:
    if isinstance(values, tuple):
        return values
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"must be a list, not {shown(values)}.", field=f"{entry.label}, {key}")
    return tuple(values)


def _check_names(entries: Sequence[Entry]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if not isinstance(entry.name, str) or not entry.name:
            raise InputError("must be a non-empty string.", field=f"{entry.label}, name")
        text(entry.name, f"{entry.label}, name")
        if entry.name in seen:
            raise InputError(
                "the name is used twice; names of tasks and messages must all differ.",
                field=entry.label,
            )
        seen.add(entry.name)
    for entry in entries:
        for name in entry.after:
            if not isinstance(name, str):
                raise InputError(
                    f"a name must be a string, not {shown(name)}.", field=f"{entry.label}, after"
                )
            if name == entry.name:
                raise InputError(
                    "an entry cannot wait for itself; leave its own name out.",
                    field=f"{entry.label}, after",
                )
            if name not in seen:
                others = seen - {entry.name}
                known = did_you_mean(name, others)
                raise InputError(
                    f"unknown name {shown(name)}"
                    + (f".{known}" if others else "; there is no other entry."),
                    field=f"{entry.label}, after",
                )


def _check_tasks(graph: Graph) -> None:
    checked: set[tuple[int, ...]] = set()
    busy: set[int] = set()
    _check_size(graph.tasks, [len(task.ranks) for task in graph.tasks], "tasks")
    for task in graph.tasks:
        whole(task.duration_ns, f"{task.label}, duration_ns", 1, LONGEST_NS)
        if _is_among(checked, task.ranks, f"{task.label}, ranks"):
            continue
        if not task.ranks:
            raise InputError(
                "must not be empty; a task is for at least one rank.", field=f"{task.label}, ranks"
            )
        _check_ranks(task.ranks, graph.ranks, f"{task.label}, ranks", set())
        checked.add(task.ranks)
        busy.update(task.ranks)
    if len(busy) < graph.ranks:
        idle = next(rank for rank in range(graph.ranks) if rank not in busy)
        raise InputError(f"rank {idle} has no task; each rank needs at least one.", field="tasks")


def _check_messages(graph: Graph) -> None:
    checked: set[tuple[tuple[int, ...], ...]] = set()
    _check_size(graph.messages, [sum(map(len, one.groups)) for one in graph.messages], "messages")
    for message in graph.messages:
        if graph.ranks == 1:
            raise InputError(
                "a graph of one rank has no messages; leave it out.", field=message.label
            )
        if message.kind not in KINDS:
            raise InputError(
                f"unknown kind {shown(message.kind)}.{did_you_mean(str(message.kind), KINDS)}",
                field=f"{message.label}, kind",
            )
        if not isinstance(message.channel, str) or not message.channel:
            raise InputError(
                f"must be a non-empty string, not {shown(message.channel)}.",
                field=f"{message.label}, channel",
            )
        text(message.channel, f"{message.label}, channel")
        whole(message.buffer_bytes, f"{message.label}, buffer_bytes", 0, MAX_BYTES)
        _check_groups(message, graph.ranks, checked)
        if message.kind == KINDS[ALL_TO_ALL]:
            _check_all_to_all(message)


def _check_all_to_all(message: Message) -> None:
    """Refuse an all-to-all that might load a server's link with too many bytes."""
    ranks = max(map(len, message.groups))
    size = message_size_bytes(ALL_TO_ALL, message.buffer_bytes, ranks - 1, False)
    if size > MAX_BYTES:
        raise InputError(
            f"must be at most {2 * MAX_BYTES // (ranks - 1):,} bytes in a group of {ranks:,} "
            f"ranks, not {message.buffer_bytes:,}.",
            field=f"{message.label}, buffer_bytes",
        )


def _check_groups(message: Message, ranks: int, checked: set[tuple[tuple[int, ...], ...]]) -> None:
    """Refuse groups that are too small, share ranks or have ranks that do not exist."""
    where = f"{message.label}, groups"
    if not message.groups:
        raise InputError("must not be empty; a message has at least one group.", field=where)
    if not _is_among(checked, message.groups, where):
        seen: set[int] = set()
        for group in message.groups:
            if len(group) < 2:
                raise InputError(
                    f"a group needs at least two ranks, not {shown(list(group))}.", field=where
                )
            _check_ranks(group, ranks, where, seen)
        checked.add(message.groups)
    if message.kind == KINDS[SEND]:
        for group in message.groups:
            if len(group) != 2:
                raise InputError(
                    f"each group of a send has exactly two ranks, not {len(group):,}: "
                    f"{shown(list(group))}.",
                    field=where,
                )


def _is_among(checked: set[Ranks], ranks: Ranks, where: str) -> bool:
    """Return whether these ranks, or groups of ranks, have been checked."""
    try:
        return ranks in checked
    except TypeError:  # They cannot be hashed.
        raise InputError(
            "a rank must be a whole number, not a list or an object.", field=where
        ) from None


def _check_ranks(ranks: Sequence[int], count: int, where: str, seen: set[int]) -> None:
    """Refuse ranks that do not exist or are in `seen` or twice in the list; add them to `seen`."""
    for rank in ranks:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise InputError(f"a rank must be a whole number, not {shown(rank)}.", field=where)
        if not 0 <= rank < count:
            raise InputError(
                f"there is no rank {shown(rank)}; ranks are 0 to {count - 1:,}.", field=where
            )
        if rank in seen:
            raise InputError(f"rank {rank} is there twice; give each rank once.", field=where)
        seen.add(rank)


def _check_size(entries: Sequence[Entry], counts: Sequence[int], key: str) -> None:
    """Refuse lists that would expand to more nodes than any job has."""
    if sum(counts) > MAX_NODES:
        raise InputError(
            f"{len(entries):,} entries with {sum(counts):,} ranks in all; at most {MAX_NODES:,} "
            "are allowed.",
            field=key,
        )
