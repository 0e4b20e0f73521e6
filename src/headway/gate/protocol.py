"""Frames as bytes.

A frame is its length (u32, little-endian, of everything after it), its kind (u8) and its fields in
order: numbers of fixed width, text as its length in bytes (u16) and UTF-8.
"""

from __future__ import annotations

from struct import Struct

from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_ITERATIONS
from headway.gate import frames
from headway.gate.frames import Frame

VERSION = 2
OLDEST_VERSION = 1
"""Workers of this version do not send profiles; otherwise they speak the same protocol."""

MAX_FRAME_BYTES = 64 * 1024
"""The largest length of a frame: its kind and fields."""

MAX_OPEN_REQUESTS = 2**12
"""Requests of one worker that have not ended; the gate disconnects a worker with more."""

MAX_BUCKETS = 2**10
"""The buckets of a profile; with them its frame still fits a small socket buffer."""

MAX_REQUEST = 2**63 - 1
"""The largest number of a request."""

_LENGTH = Struct("<I")
_HEADER = Struct("<IB")
_TEXT = Struct("<H")
_HELLO = Struct("<HII")

_PROFILE, _BUCKET = Struct("<QQ"), Struct("<QQ")

_HELLO_KIND, _PROFILE_KIND, _REFUSED_KIND = 1, 9, 66
_FIXED: dict[int, tuple[type[Frame], Struct, tuple[int, ...]]] = {
    2: (frames.Ready, Struct("<QQQ"), (MAX_REQUEST, MAX_BYTES, MAX_BYTES)),
    3: (frames.Done, Struct("<Q"), (MAX_REQUEST,)),
    4: (frames.Iteration, Struct("<QQQQ"), (MAX_ITERATIONS, LONGEST_NS, LONGEST_NS, MAX_BYTES)),
    5: (frames.Bye, Struct("<"), ()),
    6: (frames.Pong, Struct("<"), ()),
    7: (frames.Compute, Struct("<Q"), (MAX_REQUEST,)),
    8: (frames.Computed, Struct("<Q"), (MAX_REQUEST,)),
    64: (frames.Welcome, Struct("<"), ()),
    65: (frames.Grant, Struct("<Q"), (MAX_REQUEST,)),
    67: (frames.Ping, Struct("<"), ()),
}
"""Frames without text, by kind: their class, their fields, and the largest value of each field."""

_KINDS = {cls: kind for kind, (cls, _, _) in _FIXED.items()}


class ProtocolError(ValueError):
    """Bytes that break the protocol."""


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    kind = _KINDS.get(type(frame))
    if kind is not None:
        _, fields, limits = _FIXED[kind]
        _check(frame, limits)
        return _HEADER.pack(1 + fields.size, kind) + fields.pack(*frame)
    if isinstance(frame, frames.Hello):
        numbers = (frame.version, frame.attempt, frame.rank)
        _check(numbers, (2**16 - 1, 2**32 - 1, 2**32 - 1))
        texts = _encode_text(frame.job_id) + _encode_text(frame.token)
        return _with_header(_HELLO_KIND, _HELLO.pack(*numbers) + texts)
    if isinstance(frame, frames.Profile):
        _check_profile(frame)
        times = _PROFILE.pack(frame.forward_ns, frame.optimizer_ns)
        buckets = [_BUCKET.pack(*bucket) for bucket in frame.buckets]
        return _with_header(_PROFILE_KIND, times + b"".join(buckets))
    assert isinstance(frame, frames.Refused)
    return _with_header(_REFUSED_KIND, _encode_text(frame.text))


def decode(body: bytes) -> Frame:
    """Return the frame whose bytes after the length are `body`."""
    known = _FIXED.get(body[0])
    if known is not None:
        cls, fields, limits = known
        if len(body) != 1 + fields.size:
            raise ProtocolError(f"a {cls.__name__} frame cannot have {len(body)} bytes")
        numbers = fields.unpack_from(body, 1)
        _check(numbers, limits)
        return cls(*numbers)
    if body[0] == _HELLO_KIND:
        return _decode_hello(body)
    if body[0] == _PROFILE_KIND:
        return _decode_profile(body)
    if body[0] == _REFUSED_KIND:
        text, end = _decode_text(body, 1)
        _check_end(body, end)
        return frames.Refused(text)
    raise ProtocolError(f"there is no frame of kind {body[0]}")


class FrameReader:
    """Assembles frames from bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes in the order in which they arrive."""
        self._buffer += data

    def next(self) -> Frame | None:
        """Return the next frame; None if its bytes are not complete."""
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(buffer)
        if not 0 < length <= MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame cannot have {length:,} bytes")
        end = _LENGTH.size + length
        if len(buffer) < end:
            return None
        body = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        return decode(body)


def _check(numbers: tuple[object, ...], limits: tuple[int, ...]) -> None:
    for number, limit in zip(numbers, limits, strict=True):
        if not (isinstance(number, int) and 0 <= number <= limit):
            raise ProtocolError(f"{number} is not from 0 to {limit}")


def _with_header(kind: int, fields: bytes) -> bytes:
    length = 1 + len(fields)
    if length > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame cannot have {length:,} bytes")
    return _HEADER.pack(length, kind) + fields


def _encode_text(text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    if len(data) >= 2**16:
        raise ProtocolError("a text is longer than 65,535 bytes")
    return _TEXT.pack(len(data)) + data


def _decode_text(body: bytes, start: int) -> tuple[str, int]:
    """Return the text that starts at an offset, and the offset of its end."""
    begin = start + _TEXT.size
    if len(body) < begin:
        raise ProtocolError("a text is truncated")
    end = begin + _TEXT.unpack_from(body, start)[0]
    if len(body) < end:
        raise ProtocolError("a text is truncated")
    try:
        return body[begin:end].decode(), end
    except UnicodeDecodeError:
        raise ProtocolError("a text is not UTF-8") from None


def _decode_hello(body: bytes) -> frames.Hello:
    if len(body) < 1 + _HELLO.size:
        raise ProtocolError("a Hello frame is truncated")
    version, attempt, rank = _HELLO.unpack_from(body, 1)
    job_id, end = _decode_text(body, 1 + _HELLO.size)
    token, end = _decode_text(body, end)
    _check_end(body, end)
    return frames.Hello(version, job_id, attempt, rank, token)


def _decode_profile(body: bytes) -> frames.Profile:
    start = 1 + _PROFILE.size
    if len(body) < start or (len(body) - start) % _BUCKET.size:
        raise ProtocolError(f"a Profile frame cannot have {len(body)} bytes")
    buckets = tuple(
        frames.MeasuredBucket(*numbers) for numbers in _BUCKET.iter_unpack(body[start:])
    )
    forward_ns, optimizer_ns = _PROFILE.unpack_from(body, 1)
    profile = frames.Profile(forward_ns, optimizer_ns, buckets)
    _check_profile(profile)
    return profile


def _check_profile(profile: frames.Profile) -> None:
    if not 0 < len(profile.buckets) <= MAX_BUCKETS:
        raise ProtocolError(f"a Profile frame cannot have {len(profile.buckets)} buckets")
    _check((profile.forward_ns, profile.optimizer_ns), (LONGEST_NS, LONGEST_NS))
    for bucket in profile.buckets:
        _check(bucket, (LONGEST_NS, MAX_BYTES))


def _check_end(body: bytes, end: int) -> None:
    if len(body) != end:
        raise ProtocolError("there are bytes after the last field")
