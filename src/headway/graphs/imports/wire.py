"""Decodes protobuf's wire format, as far as Chakra's traces need it; every length is checked.

A message is a sequence of fields: a key (the field's number and its wire type), then the value.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.domain.errors import InputError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types in use; groups (3 and 4) are not."""

_WIDTH = {FIXED64: 8, FIXED32: 4}

Field = tuple[int, int, int, int]
"""A field's number, its wire type, and its value and 0, or where its bytes begin and end."""


class WireError(Exception):
    """The bytes are no protobuf message; the file's reader adds the file's name."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset
        self.problem = problem

    def at(self, source: str, end: int) -> InputError:
        """Return the error for the user; a message that is cut off at the file's end says so."""
        return InputError(self.problem, field=f"byte {self.offset:,} of {end:,}", source=source)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the whole number of up to 64 bits at an offset, and the offset behind it."""
    value = shift = 0
    start = at
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise WireError(start, "a number is longer than 64 bits.")
    raise WireError(start, "a number is cut off.")


def read_fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message between two offsets."""
    while at < end:
        start = at
        key = data[at]
        if key < 0x80:
            at += 1
        else:
            key, at = read_varint(data, at, end)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise WireError(start, "a field has the number 0.")
        if wire_type == VARINT:
            value, at = read_varint(data, at, end)
            yield number, VARINT, value, 0
        elif wire_type == BYTES:
            length, at = read_varint(data, at, end)
            if length > end - at:
                raise WireError(
                    start, f"a field of {length:,} bytes is cut off after {end - at:,}."
                )
            yield number, BYTES, at, at + length
            at += length
        elif wire_type in _WIDTH:
            width = _WIDTH[wire_type]
            if width > end - at:
                raise WireError(start, f"a field of {width} bytes is cut off after {end - at}.")
            yield number, wire_type, int.from_bytes(data[at : at + width], "little"), 0
            at += width
        else:
            raise WireError(start, f"a field has the unknown wire type {wire_type}.")


def read_packed(data: bytes, at: int, end: int) -> list[int]:
    """Return the varints of a packed field."""
    values = []
    while at < end:
        byte = data[at]
        if byte < 0x80:
            values.append(byte)
            at += 1
        else:
            value, at = read_varint(data, at, end)
            values.append(value)
    return values


def signed(value: int, bits: int = 64) -> int:
    """Return a number in two's complement as a signed one."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def zigzag(value: int) -> int:
    """Return the number that an sint32 or sint64 stands for."""
    return (value >> 1) ^ -(value & 1)
