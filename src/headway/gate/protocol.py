"""The words between a worker and the gate, and their bytes.

A frame is its length (u32, little-endian, of all that follows), its kind (u8) and its fields, one
after the other: numbers of fixed width, text as its length in bytes (u16) and UTF-8. Workers import
this where only PyTorch is installed: nothing but the standard library.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeAlias

from headway.domain.limits import LONGEST_NS, MOST_BYTES, MOST_ITERATIONS

VERSION = 1
LARGEST_FRAME = 64 * 1024
"""Bytes after the length."""

MOST_OPEN = 2**12
"""Requests of a worker that have not ended; a worker with more makes no sense."""

MOST_REQUESTS = 2**63 - 1


class ProtocolError(ValueError):
    """Bytes that no gate and no worker sends."""


class Hello(NamedTuple):
    """A worker's first word: who it is, and the proof."""

    version: int
    job: str
    attempt: int
    rank: int
    token: str


class Ready(NamedTuple):
    """A worker asks whether it may start a message; see `live.events.MessageReady`."""

    request: int
    message_bytes: int
    unsent_bytes: int


class Done(NamedTuple):
    """A message has ended."""

    request: int


class Compute(NamedTuple):
    """A worker asks whether it may compute; see `live.events.ComputeReady`."""

    request: int


class Computed(NamedTuple):
    """A computation has ended."""

    request: int


class Iteration(NamedTuple):
    """So many iterations are done since the attempt began; 0 ns or bytes: unknown."""

    iterations: int
    forward_ns: int
    backward_ns: int
    gradient_bytes: int


class Bye(NamedTuple):
    """A worker ends as it should."""


class Pong(NamedTuple):
    """A worker is alive."""


class Welcome(NamedTuple):
    """The gate takes a worker."""


class Grant(NamedTuple):
    """A worker may start the message or the computation it asked about."""

    request: int


class Refused(NamedTuple):
    """The gate does not take a worker, and closes; the text is for people."""

    text: str


class Ping(NamedTuple):
    """The gate is alive, and asks whether the worker is."""


Message: TypeAlias = (
    Hello
    | Ready
    | Done
    | Iteration
    | Bye
    | Pong
    | Compute
    | Computed
    | Welcome
    | Grant
    | Refused
    | Ping
)

_LENGTH = Struct("<I")
_HEADER = Struct("<IB")
_TEXT = Struct("<H")
_HELLO = Struct("<HII")

_HELLO_KIND, _REFUSED_KIND = 1, 66
_FIXED: dict[int, tuple[type[Message], Struct, tuple[int, ...]]] = {
    2: (Ready, Struct("<QQQ"), (MOST_REQUESTS, MOST_BYTES, MOST_BYTES)),
    3: (Done, Struct("<Q"), (MOST_REQUESTS,)),
    4: (Iteration, Struct("<QQQQ"), (MOST_ITERATIONS, LONGEST_NS, LONGEST_NS, MOST_BYTES)),
    5: (Bye, Struct("<"), ()),
    6: (Pong, Struct("<"), ()),
    7: (Compute, Struct("<Q"), (MOST_REQUESTS,)),
    8: (Computed, Struct("<Q"), (MOST_REQUESTS,)),
    64: (Welcome, Struct("<"), ()),
    65: (Grant, Struct("<Q"), (MOST_REQUESTS,)),
    67: (Ping, Struct("<"), ()),
}
"""Messages without text by kind: their class, their fields, and the most each field may be."""

_KINDS = {cls: kind for kind, (cls, _, _) in _FIXED.items()}


def encode(message: Message) -> bytes:
    """Return a message as a frame."""
    kind = _KINDS.get(type(message))
    if kind is not None:
        _, fields, most = _FIXED[kind]
        _check(message, most)
        return _HEADER.pack(1 + fields.size, kind) + fields.pack(*message)
    if isinstance(message, Hello):
        numbers = (message.version, message.attempt, message.rank)
        _check(numbers, (2**16 - 1, 2**32 - 1, 2**32 - 1))
        return _frame(
            _HELLO_KIND, _HELLO.pack(*numbers) + _text(message.job) + _text(message.token)
        )
    assert isinstance(message, Refused)
    return _frame(_REFUSED_KIND, _text(message.text))


def decode(body: bytes) -> Message:
    """Return the message of a frame without its length."""
    known = _FIXED.get(body[0])
    if known is not None:
        cls, fields, most = known
        if len(body) != 1 + fields.size:
            raise ProtocolError(f"{len(body)} bytes make no {cls.__name__}")
        numbers = fields.unpack_from(body, 1)
        _check(numbers, most)
        return cls(*numbers)
    if body[0] == _HELLO_KIND:
        return _hello(body)
    if body[0] == _REFUSED_KIND:
        text, end = _read_text(body, 1)
        _check_end(body, end)
        return Refused(text)
    raise ProtocolError(f"there is no message of kind {body[0]}")


class Frames:
    """Puts frames together again from bytes that come in pieces."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes as they came."""
        self._bytes += data

    def take(self) -> Message | None:
        """Return the next message; None if more bytes are needed."""
        waiting = self._bytes
        if len(waiting) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(waiting)
        if not 0 < length <= LARGEST_FRAME:
            raise ProtocolError(f"a frame cannot have {length:,} bytes")
        end = _LENGTH.size + length
        if len(waiting) < end:
            return None
        body = bytes(waiting[_LENGTH.size : end])
        del waiting[:end]
        return decode(body)


def _check(numbers: tuple[int | str, ...], most: tuple[int, ...]) -> None:
    for number, bound in zip(numbers, most, strict=True):
        if not (isinstance(number, int) and 0 <= number <= bound):
            raise ProtocolError(f"{number} is not from 0 to {bound}")


def _frame(kind: int, fields: bytes) -> bytes:
    length = 1 + len(fields)
    if length > LARGEST_FRAME:
        raise ProtocolError(f"a frame cannot have {length:,} bytes")
    return _HEADER.pack(length, kind) + fields


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    if len(data) >= 2**16:
        raise ProtocolError("a text is longer than 65,535 bytes")
    return _TEXT.pack(len(data)) + data


def _read_text(body: bytes, start: int) -> tuple[str, int]:
    """Return the text at a place, and where it ends."""
    begin = start + _TEXT.size
    if len(body) < begin:
        raise ProtocolError("a text is cut off")
    end = begin + _TEXT.unpack_from(body, start)[0]
    if len(body) < end:
        raise ProtocolError("a text is cut off")
    try:
        return body[begin:end].decode(), end
    except UnicodeDecodeError:
        raise ProtocolError("a text is not UTF-8") from None


def _hello(body: bytes) -> Hello:
    if len(body) < 1 + _HELLO.size:
        raise ProtocolError("a hello is cut off")
    version, attempt, rank = _HELLO.unpack_from(body, 1)
    job, end = _read_text(body, 1 + _HELLO.size)
    token, end = _read_text(body, end)
    _check_end(body, end)
    return Hello(version, job, attempt, rank, token)


def _check_end(body: bytes, end: int) -> None:
    if len(body) != end:
        raise ProtocolError("there are bytes after the last field")
