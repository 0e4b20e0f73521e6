"""Reads one file of a Chakra execution trace: the nodes of one rank.

A file is a sequence of messages, each after its length as a varint: one GlobalMetadata, then Nodes
to the end. It may be compressed with gzip. Fields are those of Chakra's `et_def.proto`.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO

from headway.domain.errors import InputError, shown
from headway.domain.graph import MAX_NODES
from headway.files import open_input
from headway.graphs.imports.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    WireError,
    read_fields,
    read_packed,
    read_varint,
    signed,
    zigzag,
)

INVALID, METADATA, MEMORY_LOAD, MEMORY_STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(8)
"""Types of nodes."""

MAX_FILE_BYTES = 2**31
"""The most bytes of one rank's trace, unpacked."""

_GZIP = b"\x1f\x8b"
_EVERY = 4096
"""Nodes between two calls of the progress."""

_USED = frozenset(
    {
        *("num_ops", "tensor_size", "op_type", "is_cpu_op"),
        *("comm_type", "comm_size", "pg_name", "comm_tag", "comm_src", "comm_dst"),
    }
)

Value = int | float | str

_NODE_WIRE = {1: VARINT, 2: BYTES, 3: VARINT, 7: VARINT, 10: BYTES}
_NODE_NAMES = {
    1: "id",
    2: "name",
    3: "type",
    4: "ctrl_deps",
    5: "data_deps",
    7: "duration_micros",
    10: "attr",
}


@dataclass(slots=True)
class Node:
    """A node of a trace: `dependencies` and `control` are ids of nodes of the same rank."""

    offset: int
    node_id: int = 0
    name: str = ""
    kind: int = INVALID
    duration_us: int = 0
    on_cpu: bool = False
    """Whether the node runs on the CPU; nodes that do not say run on the GPU."""
    dependencies: list[int] = field(default_factory=list)
    control: list[int] = field(default_factory=list)
    attributes: dict[str, Value] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The node in error messages."""
        return f"node {self.node_id} ({shown(self.name)})"

    def whole(self, name: str, source: str) -> int:
        """Return an attribute that must be there, a whole number of at least 0."""
        value = self.attributes.get(name)
        if value is None:
            raise InputError(f"{self.label} has no attribute '{name}'.", source=source)
        if not isinstance(value, int) or value < 0:
            raise InputError(
                f"{self.label}: the attribute '{name}' must be a whole number of 0 or more, not "
                f"{shown(value)}.",
                source=source,
            )
        return value


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The trace of one rank: its nodes in the order of the file, and the metadata's schema."""

    source: str
    schema: str
    nodes: list[Node]
    by_id: dict[int, Node]
    has_cpu_nodes: bool


def read_rank(path: str, progress: Callable[[int], None] | None = None) -> RankTrace:
    """Read the trace of one rank; `progress` gets the bytes read since its last call.

    Raises:
        InputError: The file is no Chakra execution trace, or is damaged.
    """
    data, packed = _contents(path)
    # Progress counts bytes on disk.
    share = packed / max(len(data), 1)
    by_id: dict[int, Node] = {}
    try:
        at, schema = _metadata(data, path)
        reported = 0
        while at < len(data):
            begin, at = _next_message(data, at)
            node = _node(data, begin, at)
            if node.node_id in by_id:
                raise InputError(
                    f"{node.label} has the same id as {by_id[node.node_id].label}; ids must "
                    "differ.",
                    source=path,
                )
            by_id[node.node_id] = node
            if len(by_id) > MAX_NODES:
                raise InputError(f"has more than {MAX_NODES:,} nodes.", source=path)
            if progress is not None and len(by_id) % _EVERY == 0:
                progress(round((at - reported) * share))
                reported = at
        if progress is not None:
            progress(round((at - reported) * share))
    except WireError as error:
        raise error.at(path, len(data)) from None
    nodes = list(by_id.values())
    if not nodes:
        raise InputError("there are no nodes in the trace.", source=path)
    return RankTrace(path, schema, nodes, by_id, any(node.on_cpu for node in nodes))


def _contents(path: str) -> tuple[bytes, int]:
    """Return a file's bytes, unpacked, and how many there are on disk."""
    with open_input(path) as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    packed = len(data)
    if data[:2] == _GZIP:
        try:
            with gzip.GzipFile(fileobj=BytesIO(data)) as members:
                data = members.read(MAX_FILE_BYTES + 1)
        except EOFError:
            raise InputError("the gzip file is truncated.", source=path) from None
        except (zlib.error, gzip.BadGzipFile):
            raise InputError("the gzip file is damaged.", source=path) from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"has more than {MAX_FILE_BYTES:,} bytes.", source=path)
    return data, packed


def _next_message(data: bytes, at: int) -> tuple[int, int]:
    """Return where the message after a length begins and ends."""
    length, begin = read_varint(data, at, len(data))
    if length > len(data) - begin:
        raise WireError(
            at, f"a message of {length:,} bytes is cut off after {len(data) - begin:,}."
        )
    return begin, begin + length


def _metadata(data: bytes, path: str) -> tuple[int, str]:
    """Return the offset behind the GlobalMetadata, and its attribute `schema`."""
    not_a_trace = InputError(
        "not a Chakra execution trace: it does not begin with a GlobalMetadata message.",
        source=path,
    )
    schema = ""
    try:
        begin, end = _next_message(data, 0)
        for number, wire_type, first, last in read_fields(data, begin, end):
            if number not in (1, 2) or wire_type != BYTES:
                raise not_a_trace
            if number == 2:
                name, value = _attribute(data, first, last, frozenset({"schema"}))
                if name == "schema" and isinstance(value, str):
                    schema = value
    except WireError:
        raise not_a_trace from None
    return end, schema


def _node(data: bytes, begin: int, end: int) -> Node:
    node = Node(begin)
    for number, wire_type, first, last in read_fields(data, begin, end):
        if wire_type != _NODE_WIRE.get(number, wire_type):
            raise WireError(
                begin, f"not a node: its field '{_NODE_NAMES[number]}' has the wrong type."
            )
        if number == 10:
            name, value = _attribute(data, first, last, _USED)
            if value is not None:
                node.attributes[name] = value
        elif number == 5:
            _add_ids(node.dependencies, data, begin, (number, wire_type, first, last))
        elif number == 1:
            node.node_id = first
        elif number == 2:
            node.name = data[first:last].decode("utf-8", "replace")
        elif number == 3:
            if first > COLLECTIVE:
                raise WireError(begin, f"not a node: it has the unknown type {first}.")
            node.kind = first
        elif number == 7:
            node.duration_us = first
        elif number == 4:
            _add_ids(node.control, data, begin, (number, wire_type, first, last))
    node.on_cpu = bool(node.attributes.get("is_cpu_op", 0))
    return node


def _add_ids(ids: list[int], data: bytes, begin: int, one: tuple[int, int, int, int]) -> None:
    number, wire_type, first, last = one
    if wire_type == BYTES:
        ids += read_packed(data, first, last)
    elif wire_type == VARINT:
        ids.append(first)
    else:
        raise WireError(begin, f"not a node: its field '{_NODE_NAMES[number]}' has the wrong type.")


def _attribute(data: bytes, begin: int, end: int, used: frozenset[str]) -> tuple[str, Value | None]:
    """Return an attribute's name and value; no value if it is none of `used`, or a list."""
    name = ""
    value: Value | None = None
    for number, wire_type, first, last in read_fields(data, begin, end):
        if number == 1:
            if wire_type != BYTES:
                raise WireError(begin, "an attribute's name is no text.")
            name = data[first:last].decode("utf-8", "replace")
            if name not in used:
                return name, None
        elif number in _DECODE:
            expected, decode = _DECODE[number]
            if wire_type != expected:
                raise WireError(begin, "an attribute's value has the wrong type.")
            value = decode(first) if decode else data[first:last].decode("utf-8", "replace")
    return name, value


def _int32(value: int) -> int:
    return signed(value & 0xFFFFFFFF, 32)


_DECODE: dict[int, tuple[int, Callable[[int], Value] | None]] = {
    3: (FIXED64, lambda bits: struct.unpack("<d", bits.to_bytes(8, "little"))[0]),
    5: (FIXED32, lambda bits: struct.unpack("<f", bits.to_bytes(4, "little"))[0]),
    7: (VARINT, _int32),
    9: (VARINT, signed),
    11: (VARINT, int),
    13: (VARINT, int),
    15: (VARINT, zigzag),
    17: (VARINT, zigzag),
    19: (FIXED32, int),
    21: (FIXED64, int),
    23: (FIXED32, lambda bits: signed(bits, 32)),
    25: (FIXED64, signed),
    27: (VARINT, int),
    29: (BYTES, None),
}
"""Values by field of AttributeProto: the wire type, and the decoding of its bits (None: text)."""
