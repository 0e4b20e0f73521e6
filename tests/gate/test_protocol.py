"""Frames survive the wire however they are cut; other bytes are rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_ITERATIONS
from headway.gate.frames import (
    Bye,
    Compute,
    Computed,
    Done,
    Frame,
    Grant,
    Hello,
    Iteration,
    MeasuredBucket,
    Ping,
    Pong,
    Profile,
    Ready,
    Refused,
    Welcome,
)
from headway.gate.protocol import (
    MAX_BUCKETS,
    MAX_FRAME_BYTES,
    MAX_REQUEST,
    FrameReader,
    ProtocolError,
    decode,
    encode,
)


def up_to(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most) | st.just(most)


REQUESTS, BYTES = up_to(MAX_REQUEST), up_to(MAX_BYTES)
TEXTS = st.text(max_size=200)
NUMBERS = up_to(2**32 - 1)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, up_to(2**16 - 1), TEXTS, NUMBERS, NUMBERS, TEXTS),
    st.builds(Ready, REQUESTS, BYTES, BYTES),
    st.builds(Done, REQUESTS),
    st.builds(Iteration, up_to(MAX_ITERATIONS), up_to(LONGEST_NS), up_to(LONGEST_NS), BYTES),
    st.builds(
        Profile,
        up_to(LONGEST_NS),
        up_to(LONGEST_NS),
        st.lists(st.builds(MeasuredBucket, up_to(LONGEST_NS), BYTES), min_size=1, max_size=5).map(
            tuple
        ),
    ),
    st.builds(Grant, REQUESTS),
    st.builds(Compute, REQUESTS),
    st.builds(Computed, REQUESTS),
    st.builds(Refused, TEXTS),
    st.sampled_from([Bye(), Pong(), Welcome(), Ping()]),
)


def read_all(reader: FrameReader) -> list[Frame]:
    frames = []
    while (frame := reader.next()) is not None:
        frames.append(frame)
    return frames


@given(FRAMES)
def test_a_frame_is_decoded_as_it_was_encoded(frame: Frame) -> None:
    back = decode(encode(frame)[4:])
    assert back == frame
    assert type(back) is type(frame)


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(0, 400), max_size=8))
def test_frames_may_be_cut_anywhere(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(encode(frame) for frame in frames)
    reader, received, start = FrameReader(), [], 0
    for end in [*sorted(cuts), len(data)]:
        reader.feed(data[start:end])
        received += read_all(reader)
        start = max(start, end)
    assert received == frames
    assert [type(one) for one in received] == [type(one) for one in frames]


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_any_bytes_are_frames_or_a_protocol_error(pieces: list[bytes]) -> None:
    reader = FrameReader()
    try:
        for piece in pieces:
            reader.feed(piece)
            read_all(reader)
    except ProtocolError:
        pass


@given(FRAMES, st.data())
def test_a_frame_with_a_corrupt_byte_is_a_frame_or_a_protocol_error(
    frame: Frame, data: st.DataObject
) -> None:
    encoded = bytearray(encode(frame))
    index = data.draw(st.integers(4, len(encoded) - 1))
    encoded[index] = data.draw(st.integers(0, 255))
    try:
        back = decode(bytes(encoded[4:]))
    except ProtocolError:
        return
    assert encode(back) == encoded


@pytest.mark.parametrize("length", [0, MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_an_impossible_length_is_an_error_before_its_bytes_arrive(length: int) -> None:
    reader = FrameReader()
    reader.feed(length.to_bytes(4, "little"))
    with pytest.raises(ProtocolError, match=f"{length:,} bytes"):
        reader.next()


@pytest.mark.parametrize(
    "frame",
    [
        Ready(MAX_REQUEST + 1, 0, 0),
        Ready(0, MAX_BYTES + 1, 0),
        Done(-1),
        Compute(MAX_REQUEST + 1),
        Computed(-1),
        Iteration(MAX_ITERATIONS + 1, 0, 0, 0),
        Profile(0, 0, ()),
        Profile(LONGEST_NS + 1, 0, (MeasuredBucket(1, 1),)),
        Profile(0, 0, (MeasuredBucket(1, 1), MeasuredBucket(1, MAX_BYTES + 1))),
        Profile(0, 0, (MeasuredBucket(1, 1),) * (MAX_BUCKETS + 1)),
        Hello(2**16, "j", 0, 0, ""),
        Hello(1, "j", -1, 0, ""),
        Hello(1, "j" * 2**16, 0, 0, ""),
        Refused("ä" * (MAX_FRAME_BYTES // 2)),
    ],
)
def test_a_value_out_of_range_is_not_encoded(frame: Frame) -> None:
    with pytest.raises(ProtocolError):
        encode(frame)


def test_a_profile_is_whole_buckets_within_the_limits() -> None:
    encoded = encode(Profile(1, 2, (MeasuredBucket(3, 4),)))[4:]
    largest = Profile(1, 2, (MeasuredBucket(3, 4),) * MAX_BUCKETS)
    assert decode(encode(largest)[4:]) == largest
    too_many = encode(largest)[4:] + encoded[17:]
    for body in (encoded[:-1], encoded + b"\0", encoded[:17], encoded[:9], too_many):
        with pytest.raises(ProtocolError, match="Profile"):
            decode(body)
    with pytest.raises(ProtocolError, match="is not from 0"):
        decode(encoded[:17] + b"\xff" * 16)


def test_a_number_out_of_range_is_not_decoded() -> None:
    encoded = bytearray(encode(Ready(1, 2, 3)))
    encoded[-8:] = (MAX_BYTES + 1).to_bytes(8, "little")
    with pytest.raises(ProtocolError, match="is not from 0 to"):
        decode(bytes(encoded[4:]))
