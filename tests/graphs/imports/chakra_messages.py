"""Chakra's messages by the protobuf library, independent of what Headway decodes itself."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from builders import DATA, EXAMPLES

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
_PACKAGE = "headway_tests_chakra"
_TYPES = descriptor_pb2.FieldDescriptorProto


def _messages() -> dict[str, Any]:
    """Return classes for the messages of et_def.proto; lists in attributes are left unknown."""
    file = descriptor_pb2.FileDescriptorProto(
        name="headway_tests/et_def.proto", package=_PACKAGE, syntax="proto3"
    )
    attribute = file.message_type.add(name="AttributeProto")
    attribute.field.add(name="name", number=1, type=_TYPES.TYPE_STRING, label=1)
    attribute.oneof_decl.add(name="value")
    values = {
        "double_val": 3,
        "float_val": 5,
        "int32_val": 7,
        "int64_val": 9,
        "uint32_val": 11,
        "uint64_val": 13,
        "sint32_val": 15,
        "sint64_val": 17,
        "fixed32_val": 19,
        "fixed64_val": 21,
        "sfixed32_val": 23,
        "sfixed64_val": 25,
        "bool_val": 27,
        "string_val": 29,
        "bytes_val": 31,
    }
    for name, number in values.items():
        kind = getattr(_TYPES, f"TYPE_{name.removesuffix('_val').upper()}")
        attribute.field.add(name=name, number=number, type=kind, label=1, oneof_index=0)
    metadata = file.message_type.add(name="GlobalMetadata")
    metadata.field.add(name="version", number=1, type=_TYPES.TYPE_STRING, label=1)
    node = file.message_type.add(name="Node")
    for name, number, kind, label in (
        ("id", 1, _TYPES.TYPE_UINT64, 1),
        ("name", 2, _TYPES.TYPE_STRING, 1),
        ("type", 3, _TYPES.TYPE_UINT64, 1),
        ("ctrl_deps", 4, _TYPES.TYPE_UINT64, 3),
        ("data_deps", 5, _TYPES.TYPE_UINT64, 3),
        ("duration_micros", 7, _TYPES.TYPE_UINT64, 1),
    ):
        node.field.add(name=name, number=number, type=kind, label=label)
    for message, number in ((metadata, 2), (node, 10)):
        message.field.add(
            name="attr",
            number=number,
            type=_TYPES.TYPE_MESSAGE,
            label=3,
            type_name=f".{_PACKAGE}.AttributeProto",
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("AttributeProto", "GlobalMetadata", "Node")
    }


_CLASSES = _messages()
Node = _CLASSES["Node"]
GlobalMetadata = _CLASSES["GlobalMetadata"]


def make_node(
    node_id: int,
    kind: int,
    *,
    after: Iterable[int] = (),
    control: Iterable[int] = (),
    name: str = "",
    micros: int = 0,
    **attributes: int | str | float,
) -> Any:
    """Return a node; whole numbers become int64 attributes."""
    node = Node(id=node_id, name=name or f"n{node_id}", type=kind, duration_micros=micros)
    node.data_deps.extend(after)
    node.ctrl_deps.extend(control)
    for key, value in attributes.items():
        field = {int: "int64_val", str: "string_val", float: "double_val"}[type(value)]
        node.attr.add(name=key, **{field: value})
    return node


def compute(node_id: int, micros: int = 10, **more: Any) -> Any:
    """Return a computation with a time."""
    return make_node(node_id, COMPUTE, micros=micros, **more)


def collective(node_id: int, comm_type: int = 0, comm_size: int = 1024, **more: Any) -> Any:
    """Return a collective."""
    return make_node(node_id, COLLECTIVE, comm_type=comm_type, comm_size=comm_size, **more)


def encoded(nodes: Iterable[Any], schema: str = "") -> bytes:
    """Return the bytes of a rank's file."""
    metadata = GlobalMetadata(version="0.0.4")
    if schema:
        metadata.attr.add(name="schema", string_val=schema)
    return b"".join(
        _length(message) + message.SerializeToString() for message in (metadata, *nodes)
    )


def write_trace(folder: Path, *ranks: Iterable[Any], name: str = "t", schema: str = "") -> str:
    """Write a trace with these nodes on its ranks; return the folder."""
    folder.mkdir(exist_ok=True)
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(encoded(nodes, schema))
    return str(folder)


def nodes_of(path: Path) -> Iterator[Any]:
    """Yield the nodes of a rank's file."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    at, first = 0, True
    while at < len(data):
        length = shift = 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if not first:
            yield Node.FromString(data[at : at + length])
        first = False
        at += length


def attributes(node: Any) -> dict[str, Any]:
    """Return the values of a node's attributes, whichever field they are in."""
    return {
        one.name: getattr(one, one.WhichOneof("value"))
        for one in node.attr
        if one.WhichOneof("value")
    }


def unpack(sample: str, folder: Path) -> Path:
    """Unpack a sample; return the folder that it is in."""
    source = DATA / "chakra" / f"{sample}.tar.gz"
    if not source.exists():
        source = EXAMPLES / "chakra" / f"{sample}.tar.gz"
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _length(message: Any) -> bytes:
    value = message.ByteSize()
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
