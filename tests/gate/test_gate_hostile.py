"""The gate among strangers, liars and workers that stand still: the others never notice."""

from __future__ import annotations

import contextlib
import random
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.gates import SECRET, Raw, Running, eventually, hello, running_gate
from gate.test_protocol import MESSAGES
from headway.gate import connections, server
from headway.gate.protocol import (
    MOST_OPEN,
    VERSION,
    Compute,
    Computed,
    Done,
    Grant,
    Iteration,
    Message,
    Ping,
    Pong,
    Ready,
    Refused,
    Welcome,
    encode,
)
from headway.gate.tokens import job_token


class Shared:
    """A gate with a worker that must always be served, for many tries."""

    def __init__(self, path: Path, running: Running) -> None:
        self.path, self.running = path, running
        self.worker = Raw(path)
        self.worker.say(hello("good", 1))
        assert self.heard() == Welcome()
        self._request = 0

    def heard(self) -> Message | None:
        """Return what the good worker hears next, but for pings, which it answers."""
        while (message := self.worker.hear()) == Ping() and type(message) is Ping:
            self.worker.say(encode(Pong()))
        return message

    def check(self) -> None:
        """Let the good worker ask, and be answered."""
        self._request += 1
        self.worker.say(encode(Ready(self._request, 5, 5)))
        assert self.heard() == Grant(self._request)
        self.worker.say(encode(Done(self._request)))


@contextlib.contextmanager
def shared_gate() -> Iterator[Shared]:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        running_gate(unix=Path(folder, "gate")) as running,
    ):
        # The good worker answers pings only while a test lets it: none come.
        patch.setattr(connections, "BEAT_S", 600.0)
        shared = Shared(Path(folder, "gate"), running)
        with shared.worker:
            yield shared


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with shared_gate() as made:
        yield made


@pytest.fixture
def alone() -> Iterator[Shared]:
    with shared_gate() as made:
        yield made


@settings(max_examples=60)
@given(st.binary(max_size=300), st.booleans())
def test_a_stranger_may_send_any_bytes(shared: Shared, data: bytes, closes: bool) -> None:
    with Raw(shared.path) as raw:
        raw.say(data)
        if not closes:
            shared.check()
    shared.check()


@settings(max_examples=60)
@given(st.lists(MESSAGES | st.binary(max_size=60), max_size=6))
def test_a_worker_may_say_anything(shared: Shared, words: list[Message | bytes]) -> None:
    with Raw(shared.path) as raw:
        frames = [one if isinstance(one, bytes) else encode(one) for one in words]
        raw.say(hello("bad") + b"".join(frames))
        shared.check()
    shared.check()


def test_frames_may_be_cut_in_half_and_left(shared: Shared) -> None:
    data = hello("cut") + encode(Ready(1, 1, 1)) + encode(Iteration(1, 2, 3, 4)) + encode(Done(1))
    for end in range(len(data)):
        with Raw(shared.path) as raw:
            raw.say(data[:end])
    shared.check()


def test_frames_may_come_byte_by_byte(shared: Shared) -> None:
    with Raw(shared.path) as raw:
        for byte in hello("slow") + encode(Ready(1, 1, 1)):
            raw.say(bytes([byte]))
        assert raw.hear() == Welcome()
        assert raw.hear() == Grant(1)


def test_random_changes_of_a_conversation_hurt_nobody(shared: Shared) -> None:
    draw = random.Random(0)
    talk = b"".join(encode(Ready(n, n, n)) + encode(Done(n)) for n in range(1, 20))
    for _ in range(100):
        data = bytearray(hello("fuzz") + talk)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        with Raw(shared.path) as raw:
            raw.say(bytes(data))
    shared.check()


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (hello(token=""), "token"),
        (hello(token=SECRET), "token"),
        (hello(token=job_token(SECRET, "j", 2)), "token"),
        (hello(token=job_token(SECRET, "k", 1)), "token"),
        (hello(token=job_token("another secret", "j", 1)), "token"),
        (hello(version=VERSION + 1), f"version {VERSION}, not {VERSION + 1}"),
    ],
)
def test_whoever_proves_nothing_is_told_so_and_closed(
    shared: Shared, frame: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REFUSAL_S", 0.01)
    with Raw(shared.path) as raw:
        raw.say(frame)
        answer = raw.hear()
        assert isinstance(answer, Refused)
        assert reason in answer.text
        assert raw.hear() is None
    assert ("attached", "j", 1, 0) not in shared.running.recorder.heard


def test_one_connection_has_one_guess(shared: Shared) -> None:
    with Raw(shared.path) as raw:
        raw.say(hello("guess", token="wrong") + hello("guess"))
        assert isinstance(raw.hear(), Refused)
        assert raw.hear() is None
    assert ("attached", "guess", 1, 0) not in shared.running.recorder.heard


@pytest.mark.parametrize(
    "frames",
    [
        [Welcome()],
        [Grant(1)],
        [Ready(1, 1, 1), Ready(1, 1, 1)],
        [Compute(1), Compute(1)],
        [Ready(1, 1, 1), Compute(1)],
        [Compute(1), Ready(1, 1, 1)],
    ],
)
def test_a_worker_that_says_what_none_says_is_let_go(shared: Shared, frames: list[Message]) -> None:
    with Raw(shared.path) as raw:
        raw.say(hello("odd") + b"".join(encode(one) for one in frames))
        assert shared.running.hears("lost", "odd", 1, 0)
        while raw.hear() is not None:
            pass
        shared.running.recorder.heard.clear()


@pytest.mark.parametrize("frame", [Ready(1, 1, 1), Done(1), Iteration(1, 2, 3, 4)])
def test_a_rank_other_than_0_speaks_of_computations_alone(shared: Shared, frame: Message) -> None:
    with Raw(shared.path) as raw:
        raw.say(hello("rank", rank=3) + encode(Compute(1)) + encode(Computed(1)) + encode(frame))
        assert shared.running.hears("lost", "rank", 1, 3)
        while raw.hear() is not None:
            pass
    own = [one for one in shared.running.recorder.heard if one[1] == "rank"]
    words = [one[0] for one in own]
    assert words == ["attached", "compute", "computed", "lost"]
    shared.running.recorder.heard.clear()


def test_a_stranger_that_says_nothing_is_let_go(
    alone: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HELLO_S", 0.05)
    with Raw(alone.path) as raw:
        assert raw.hear() is None
    alone.check()


def test_a_worker_that_gives_no_sign_of_life_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BEAT_S", 0.05)
    with running_gate(unix=tmp_path / "gate") as running, Raw(tmp_path / "gate") as raw:
        raw.say(hello())
        assert raw.hear() == Welcome()
        assert running.hears("lost", "j", 1, 0)
        heard = list(iter(raw.hear, None))
        assert [type(one) for one in heard] == [Ping] * connections.SILENT_BEATS


def test_a_worker_that_answers_pings_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BEAT_S", 0.05)
    with running_gate(unix=tmp_path / "gate") as running, Raw(tmp_path / "gate") as raw:
        raw.say(hello())
        assert raw.hear() == Welcome()
        for _ in range(3 * connections.SILENT_BEATS):
            assert type(raw.hear()) is Ping
            raw.say(encode(Pong()))
        assert running.recorder.words() == ["attached"]


def test_a_worker_that_stops_reading_is_let_go(alone: Shared) -> None:
    with Raw(alone.path) as raw:
        raw.say(hello("deaf"))
        assert raw.hear() == Welcome()
        for start in range(1, 1_000_001, 100):
            numbers = range(start, start + 100)
            raw.say(b"".join(encode(Ready(n, 1, 1)) + encode(Done(n)) for n in numbers))
            if ("lost", "deaf", 1, 0) in alone.running.recorder.heard:
                break
            alone.check()
        assert alone.running.hears("lost", "deaf", 1, 0)
    alone.check()


@pytest.mark.parametrize("word", ["ready", "compute"])
def test_a_worker_that_asks_without_end_is_let_go(alone: Shared, word: str) -> None:
    alone.running.recorder.holding = True
    with Raw(alone.path) as raw:
        raw.say(hello("greedy"))
        asked = range(1, MOST_OPEN + 2)
        frames = [Ready(n, 1, 1) if word == "ready" else Compute(n) for n in asked]
        raw.say(b"".join(encode(one) for one in frames))
        assert alone.running.hears("lost", "greedy", 1, 0)
    assert alone.running.recorder.words().count(word) == MOST_OPEN


def test_a_flood_of_one_worker_leaves_room_for_others(alone: Shared) -> None:
    with Raw(alone.path) as raw:
        raw.socket.setblocking(False)
        flood = hello("flood") + encode(Pong()) * 100_000
        sent = 0
        for _ in range(50):
            with contextlib.suppress(BlockingIOError):
                sent += raw.socket.send(flood[sent:])
            alone.check()
        assert sent > 0


def test_a_thousand_silent_connections_disturb_nobody(alone: Shared) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    try:
        with contextlib.ExitStack() as stack:
            strangers = [stack.enter_context(Raw(alone.path)) for _ in range(1000)]
            for _ in range(100):
                alone.check()
            more = server.MOST_STRANGERS - len(strangers) + 1
            strangers += [stack.enter_context(Raw(alone.path)) for _ in range(more)]
            assert strangers[0].hear() is None
            alone.check()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert eventually(lambda: alone.running.gate.connected == 1)
