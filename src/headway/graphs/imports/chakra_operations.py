"""Makes operations of the nodes of a Chakra trace: collectives and sends are matched over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headway.domain.errors import InputError, did_you_mean, shown
from headway.graphs.imports.chakra_file import (
    COLLECTIVE,
    INVALID,
    METADATA,
    RECEIVE,
    SEND,
    Node,
    RankTrace,
)
from headway.graphs.imports.chakra_folder import Groups
from headway.graphs.imports.imported import counted
from headway.graphs.imports.operations import Operation
from headway.graphs.imports.roofline import Roofline

_BARRIER = 9
_KINDS = {
    0: ("all-reduce", "all-reduce"),
    1: ("reduce", "reduce-scatter"),
    2: ("all-gather", "all-gather"),
    3: ("gather", "all-gather"),
    4: ("scatter", "reduce-scatter"),
    5: ("broadcast", "all-gather"),
    6: ("all-to-all", "all-to-all"),
    7: ("reduce-scatter", "reduce-scatter"),
    8: ("reduce-scatter", "reduce-scatter"),
    _BARRIER: ("barrier", "all-reduce"),
}
"""Chakra's kinds of collectives by number: the name, and the kind of the graph's message."""

_GATHERS = (2, 3)
"""Kinds whose size is that of one rank's part, not of the whole buffer."""

_NEEDED_LATE = (0, 1, 7, 8)
"""Kinds whose result a training loop needs only after the backward pass."""

_MATRIX_PRODUCT = "M"
"""The op_type of STG's einsums, whose num_ops are multiply-adds."""

_Group = tuple[str, tuple[int, ...]]
"""A process group: its name (empty for all ranks), and its ranks."""

_Pair = tuple[int, int, int]
"""A send: source, destination and tag."""


@dataclass(slots=True)
class Counts:
    """What is said about an import."""

    nodes: int = 0
    computations: int = 0
    collectives: int = 0
    sends: int = 0
    on_cpu: int = 0
    on_cpu_us: int = 0
    guessed_order: int = 0
    control: int = 0
    costed: int = 0
    multiply_adds: int = 0
    without_cost: int = 0
    alone: int = 0
    unprompted: int = 0
    idle_ranks: int = 0
    other_kinds: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Member:
    """A node on its rank."""

    rank: int
    trace: RankTrace
    node: Node

    @property
    def where(self) -> str:
        """The node in error messages that name several files."""
        return f"{self.node.label} of {self.trace.source}"

    def error(self, problem: str) -> InputError:
        """Return an error that names the file and the node."""
        return InputError(f"{self.node.label} {problem}", source=self.trace.source)

    def whole(self, name: str) -> int:
        """Return an attribute that must be there."""
        return self.node.whole(name, self.trace.source)


class TraceOperations:
    """The operations of a trace, and what was dropped or guessed.

    Args:
        traces: The trace of each rank.
        groups: The ranks of each process group, if there is a file of groups.
        element_bytes: The bytes that sizes count.
        cost: What computations without a time take.
        multiply_adds: Whether num_ops of matrix products are multiply-adds.

    Raises:
        InputError: Ranks do not match, a node lacks an attribute, or a cost is needed.
    """

    def __init__(
        self,
        traces: Sequence[RankTrace],
        groups: Groups | None,
        element_bytes: int,
        cost: Roofline | None,
        *,
        multiply_adds: bool,
    ) -> None:
        self.operations: list[Operation] = []
        self.counts = Counts()
        self._traces = traces
        self._groups = groups
        self._element_bytes = element_bytes
        self._cost = cost
        self._multiply_adds = multiply_adds
        self._of_node: list[dict[int, int]] = [{} for _ in traces]
        self._everyone = tuple(range(len(traces)))
        # Ranks may share the trace of one.
        known: dict[int, list[Node] | None] = {}
        for trace in traces:
            if id(trace) not in known:
                _check_dependencies(trace)
                known[id(trace)] = _launch_order(trace)
        orders = [known[id(trace)] for trace in traces]
        self._add_nodes(orders)
        for rank, order in enumerate(orders):
            if order is None:
                self._connect(rank)
            else:
                self._connect_launches(rank, order)
                self.counts.guessed_order += 1
        self.counts.unprompted = sum(1 for one in self.operations if one.kind and not one.waits_for)
        self._add_missing_tasks()

    def _add_nodes(self, orders: Sequence[list[Node] | None]) -> None:
        """Add an operation for each node, or for each set of nodes that are one message."""
        collectives: dict[_Group, dict[int, list[_Member]]] = {}
        sends: dict[_Pair, list[_Member]] = {}
        receives: dict[_Pair, list[_Member]] = {}
        for rank, trace in enumerate(self._traces):
            self.counts.nodes += len(trace.nodes)
            if trace.has_cpu_nodes:
                self.counts.control += sum(len(node.control) for node in trace.nodes)
            for node in trace.nodes:
                member = _Member(rank, trace, node)
                if node.on_cpu:
                    self.counts.on_cpu += 1
                    self.counts.on_cpu_us += node.duration_us
                    if orders[rank] is None:
                        self._add([member])
                elif node.kind == COLLECTIVE:
                    by_rank = collectives.setdefault(self._group(member), {})
                    by_rank.setdefault(rank, []).append(member)
                elif node.kind == SEND:
                    sends.setdefault(self._pair(member, "comm_dst"), []).append(member)
                elif node.kind == RECEIVE:
                    receives.setdefault(self._pair(member, "comm_src"), []).append(member)
                elif node.kind in (INVALID, METADATA):
                    self._add([member])
                else:
                    self._add([member], duration_ns=self._duration_ns(member))
                    self.counts.computations += 1
        channels = _group_channels(collectives)
        for group, by_rank in collectives.items():
            self._add_collectives(group, by_rank, channels[group])
        self._add_sends(sends, receives)

    def _add(
        self,
        members: Sequence[_Member],
        duration_ns: int = 0,
        kind: str = "",
        buffer_bytes: int = 0,
        channel: str = "",
    ) -> None:
        first = members[0]
        for member in members:
            self._of_node[member.rank][member.node.node_id] = len(self.operations)
        self.operations.append(
            Operation(
                first.node.name,
                tuple(sorted(member.rank for member in members)),
                first.node.node_id,
                first.trace.source,
                duration_ns,
                kind,
                buffer_bytes,
                channel,
            )
        )

    def _duration_ns(self, member: _Member) -> int:
        """Return the time of a computation: its own, or else that of the roofline."""
        node = member.node
        if node.duration_us:
            return node.duration_us * 1000
        if "num_ops" not in node.attributes and "tensor_size" not in node.attributes:
            self.counts.without_cost += 1
            return 1
        if self._cost is None:
            raise member.error(
                "has no time; give --gpu, or --flops and --memory-bandwidth, to cost what it "
                "computes."
            )
        operations = member.whole("num_ops") if "num_ops" in node.attributes else 0
        size = member.whole("tensor_size") if "tensor_size" in node.attributes else 0
        self.counts.costed += 1
        if self._multiply_adds and node.attributes.get("op_type") == _MATRIX_PRODUCT:
            self.counts.multiply_adds += 1
            operations *= 2
        return self._cost.time_ns(operations, size * self._element_bytes)

    def _group(self, member: _Member) -> _Group:
        """Return the group of a collective; one without a name is among all ranks."""
        if "pg_name" not in member.node.attributes:
            return "", self._everyone
        name = str(member.node.attributes["pg_name"])
        if self._groups is None:
            raise member.error(
                f"is in the process group {shown(name)}, but there is no file of groups; give it "
                "with --groups."
            )
        if name not in self._groups:
            raise member.error(
                f"is in the unknown process group {shown(name)}.{did_you_mean(name, self._groups)}"
            )
        if member.rank not in self._groups[name]:
            raise member.error(
                f"is in the process group {shown(name)}, which does not have its rank, "
                f"{member.rank}."
            )
        return name, self._groups[name]

    def _add_collectives(
        self, group: _Group, by_rank: Mapping[int, Sequence[_Member]], channel: str
    ) -> None:
        """Match the collectives of a group: the k-th of each rank's file are one."""
        ranks = group[1]
        first = by_rank[min(by_rank)]
        for rank in ranks:
            own = by_rank.get(rank, ())
            for one, other in zip(first, own, strict=False):
                if _what(one) != _what(other):
                    raise InputError(
                        f"{one.where} and {other.where} should be one collective of "
                        f"{_group_label(group)}, but one is {_described(one)}, the other "
                        f"{_described(other)}."
                    )
            if len(own) != len(first):
                raise InputError(
                    f"{_group_label(group)}: rank {first[0].rank} has "
                    f"{counted(len(first), 'collective')}, but rank {rank} has {len(own):,}; "
                    "each rank of a group needs the same."
                )
        for place in range(len(first)):
            self._add_collective([by_rank[rank][place] for rank in ranks], channel)

    def _add_collective(self, members: Sequence[_Member], channel: str) -> None:
        number, size = _what(members[0])
        if number not in _KINDS:
            raise members[0].error(f"has the unknown comm_type {number}; known are 0 to 9.")
        name, kind = _KINDS[number]
        if len(members) == 1:
            self.counts.alone += 1
            self._add(members)
            return
        self.counts.collectives += 1
        if name != kind:
            self.counts.other_kinds[name, kind] += 1
        parts = len(members) if number in _GATHERS else 1
        self._add(
            members,
            kind=kind,
            buffer_bytes=size * parts * self._element_bytes,
            channel=channel,
        )

    def _pair(self, member: _Member, other: str) -> _Pair:
        """Return what a send and its receive have in common."""
        peer = member.whole(other)
        tag = member.node.attributes.get("comm_tag", 0)
        if peer >= len(self._traces) or peer == member.rank:
            raise member.error(
                f"is on rank {member.rank} and has the {other} {peer}; it must be another of the "
                f"ranks 0 to {len(self._traces) - 1:,}."
            )
        tag = tag if isinstance(tag, int) else 0
        return (member.rank, peer, tag) if other == "comm_dst" else (peer, member.rank, tag)

    def _add_sends(
        self, sends: Mapping[_Pair, list[_Member]], receives: Mapping[_Pair, list[_Member]]
    ) -> None:
        """Match the sends with the receives of the same source, destination and tag."""
        channels = _pair_channels(sends)
        for pair, received in receives.items():
            if len(received) > len(sends.get(pair, ())):
                raise received[len(sends.get(pair, ()))].error(
                    f"receives from rank {pair[0]} with the tag {pair[2]}, but there is no such "
                    f"send to rank {pair[1]}."
                )
        for pair, sent in sends.items():
            received = receives.get(pair, [])
            if len(received) < len(sent):
                raise sent[len(received)].error(
                    f"sends to rank {pair[1]} with the tag {pair[2]}, but that rank has no such "
                    "receive."
                )
            for one, other in zip(sent, received, strict=True):
                size = one.whole("comm_size")
                if other.whole("comm_size") != size:
                    raise InputError(
                        f"{one.where} sends {size:,}, but {other.where} receives "
                        f"{other.whole('comm_size'):,}."
                    )
                self.counts.sends += 1
                self._add(
                    [one, other],
                    kind="send",
                    buffer_bytes=size * self._element_bytes,
                    channel=channels[pair[:2]],
                )

    def _connect(self, rank: int) -> None:
        """Let the operations of a rank wait for what their nodes depend on."""
        of_node = self._of_node[rank]
        for node in self._traces[rank].nodes:
            self.operations[of_node[node.node_id]].waits_for += [
                of_node[other] for other in _before(node, self._traces[rank])
            ]

    def _connect_launches(self, rank: int, order: Sequence[Node]) -> None:
        """Let what a GPU runs wait as PyTorch's streams would: see `_launch_order`."""
        messages = [node for node in order if node.kind in (COLLECTIVE, SEND, RECEIVE)]
        last_message = messages[-1].node_id if messages else -1
        soon: list[int] = []
        late: list[int] = []
        kernel: int | None = None
        for node in order:
            index = self._of_node[rank][node.node_id]
            waits_for = self.operations[index].waits_for
            if kernel is not None:
                waits_for.append(kernel)
            if node.kind in (COLLECTIVE, SEND, RECEIVE):
                is_late = node.attributes.get("comm_type") in _NEEDED_LATE
                (late if is_late else soon).append(index)
                continue
            waits_for += soon
            soon.clear()
            if node.node_id > last_message:
                waits_for += late
                late.clear()
            kernel = index

    def _add_missing_tasks(self) -> None:
        """Add a task to each rank that computes nothing: a graph has none without."""
        busy = {one.ranks[0] for one in self.operations if one.is_task}
        for rank in self._everyone:
            if rank not in busy:
                self.counts.idle_ranks += 1
                source = self._traces[rank].source
                self.operations.append(Operation("idle", (rank,), 0, source, duration_ns=1))


def _before(node: Node, trace: RankTrace) -> list[int]:
    """Return the ids of the nodes that a node waits for.

    With CPU nodes, control dependencies are PyTorch's call tree and no order.
    """
    if node.control and not trace.has_cpu_nodes:
        return node.dependencies + node.control
    return node.dependencies


def _check_dependencies(trace: RankTrace) -> None:
    """Refuse dependencies on nodes that do not exist."""
    for node in trace.nodes:
        for other in _before(node, trace):
            if other == node.node_id:
                raise InputError(f"{node.label} waits for itself.", source=trace.source)
            if other not in trace.by_id:
                raise InputError(
                    f"{node.label} waits for node {other}, which is not in the file.",
                    source=trace.source,
                )


def _launch_order(trace: RankTrace) -> list[Node] | None:
    """Return the GPU's nodes by id if the CPU launches them and nothing waits for the GPU.

    PyTorch's traces are like this: kernels depend on the CPU's calls alone. None for other traces.
    """
    if not trace.has_cpu_nodes:
        return None
    on_cpu = {node.node_id for node in trace.nodes if node.on_cpu}
    if any(other not in on_cpu for node in trace.nodes for other in node.dependencies):
        return None
    return sorted((node for node in trace.nodes if not node.on_cpu), key=lambda node: node.node_id)


def _what(member: _Member) -> tuple[int, int]:
    """Return the kind and the size of a collective."""
    number = member.whole("comm_type")
    return number, 0 if number == _BARRIER else member.whole("comm_size")


def _described(member: _Member) -> str:
    number, size = _what(member)
    name = _KINDS[number][0] if number in _KINDS else f"comm_type {number}"
    return f"{name} with the comm_size {size:,}"


def _group_label(group: _Group) -> str:
    return f"process group {shown(group[0])}" if group[0] else "the group of all ranks"


def _group_channels(groups: Iterable[_Group]) -> dict[_Group, str]:
    """Return a channel for each group, as NCCL has a communicator for each.

    Groups of the same shape without a rank in common share a name, which keeps no message waiting.
    """
    shapes: dict[tuple[int, ...], list[tuple[str, set[int]]]] = {}
    channels = {}
    for name, ranks in sorted(groups, key=lambda group: (group[1], group[0])):
        alike = shapes.setdefault(tuple(rank - ranks[0] for rank in ranks), [])
        free = next((one for one in alike if one[1].isdisjoint(ranks)), None)
        if free is None:
            free = (f"group-{name}" if name else "all", set())
            alike.append(free)
        free[1].update(ranks)
        channels[name, ranks] = free[0]
    return channels


def _pair_channels(pairs: Iterable[_Pair]) -> dict[tuple[int, int], str]:
    """Return a channel for each source and destination; disjoint pairs alike share a name."""
    distances: dict[int, list[tuple[str, set[int]]]] = {}
    channels = {}
    for source, destination in sorted({pair[:2] for pair in pairs}):
        alike = distances.setdefault(destination - source, [])
        ranks = {source, destination}
        free = next((one for one in alike if one[1].isdisjoint(ranks)), None)
        if free is None:
            free = (f"send-{source}-{destination}", set())
            alike.append(free)
        free[1].update(ranks)
        channels[source, destination] = free[0]
    return channels
