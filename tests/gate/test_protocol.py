"""Frames: what is sent is what comes, however it is cut; anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.limits import LONGEST_NS, MOST_BYTES, MOST_ITERATIONS
from headway.gate.protocol import (
    LARGEST_FRAME,
    MOST_REQUESTS,
    Bye,
    Compute,
    Computed,
    Done,
    Frames,
    Grant,
    Hello,
    Iteration,
    Message,
    Ping,
    Pong,
    ProtocolError,
    Ready,
    Refused,
    Welcome,
    decode,
    encode,
)


def up_to(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most) | st.just(most)


REQUESTS, BYTES = up_to(MOST_REQUESTS), up_to(MOST_BYTES)
TEXTS = st.text(max_size=200)
NUMBERS = up_to(2**32 - 1)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, up_to(2**16 - 1), TEXTS, NUMBERS, NUMBERS, TEXTS),
    st.builds(Ready, REQUESTS, BYTES, BYTES),
    st.builds(Done, REQUESTS),
    st.builds(Iteration, up_to(MOST_ITERATIONS), up_to(LONGEST_NS), up_to(LONGEST_NS), BYTES),
    st.builds(Grant, REQUESTS),
    st.builds(Compute, REQUESTS),
    st.builds(Computed, REQUESTS),
    st.builds(Refused, TEXTS),
    st.sampled_from([Bye(), Pong(), Welcome(), Ping()]),
)


def taken(frames: Frames) -> list[Message]:
    messages = []
    while (message := frames.take()) is not None:
        messages.append(message)
    return messages


@given(MESSAGES)
def test_a_message_comes_as_it_was_sent(message: Message) -> None:
    frame = encode(message)
    back = decode(frame[4:])
    assert back == message
    assert type(back) is type(message)


@given(st.lists(MESSAGES, max_size=8), st.lists(st.integers(0, 400), max_size=8))
def test_frames_may_be_cut_anywhere(messages: list[Message], cuts: list[int]) -> None:
    data = b"".join(encode(message) for message in messages)
    frames, heard, start = Frames(), [], 0
    for end in [*sorted(cuts), len(data)]:
        frames.feed(data[start:end])
        heard += taken(frames)
        start = max(start, end)
    assert heard == messages
    assert [type(one) for one in heard] == [type(one) for one in messages]


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_any_bytes_are_a_message_or_refused(pieces: list[bytes]) -> None:
    frames = Frames()
    try:
        for piece in pieces:
            frames.feed(piece)
            taken(frames)
    except ProtocolError:
        pass


@given(MESSAGES, st.data())
def test_a_frame_with_a_wrong_byte_is_a_message_or_refused(
    message: Message, data: st.DataObject
) -> None:
    frame = bytearray(encode(message))
    place = data.draw(st.integers(4, len(frame) - 1))
    frame[place] = data.draw(st.integers(0, 255))
    try:
        back = decode(bytes(frame[4:]))
    except ProtocolError:
        return
    assert encode(back) == frame


@pytest.mark.parametrize("length", [0, LARGEST_FRAME + 1, 2**32 - 1])
def test_an_impossible_length_is_refused_before_its_bytes_come(length: int) -> None:
    frames = Frames()
    frames.feed(length.to_bytes(4, "little"))
    with pytest.raises(ProtocolError, match=f"{length:,} bytes"):
        frames.take()


@pytest.mark.parametrize(
    "message",
    [
        Ready(MOST_REQUESTS + 1, 0, 0),
        Ready(0, MOST_BYTES + 1, 0),
        Done(-1),
        Compute(MOST_REQUESTS + 1),
        Computed(-1),
        Iteration(MOST_ITERATIONS + 1, 0, 0, 0),
        Hello(2**16, "j", 0, 0, ""),
        Hello(1, "j", -1, 0, ""),
        Hello(1, "j" * 2**16, 0, 0, ""),
        Refused("ä" * (LARGEST_FRAME // 2)),
    ],
)
def test_what_does_not_fit_is_not_sent(message: Message) -> None:
    with pytest.raises(ProtocolError):
        encode(message)


def test_numbers_beyond_the_schedulers_are_refused() -> None:
    frame = bytearray(encode(Ready(1, 2, 3)))
    frame[-8:] = (MOST_BYTES + 1).to_bytes(8, "little")
    with pytest.raises(ProtocolError, match="is not from 0 to"):
        decode(bytes(frame[4:]))
