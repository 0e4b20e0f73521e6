"""The gate with broken, malicious and stalled peers: other workers are not affected."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.test_protocol import FRAMES
from gate.threaded_gate import (
    PROFILE,
    SECRET,
    RawConnection,
    ThreadedGate,
    hello,
    threaded_gate,
)
from headway.gate import connections, server
from headway.gate.frames import (
    Compute,
    Computed,
    Done,
    Frame,
    Grant,
    Iteration,
    Ping,
    Pong,
    Ready,
    Refused,
    Welcome,
)
from headway.gate.protocol import MAX_OPEN_REQUESTS, VERSION, FrameReader, encode
from headway.gate.tokens import job_token
from waiting import eventually


class Shared:
    """A gate with a good worker that must always be served."""

    def __init__(self, path: Path, running: ThreadedGate) -> None:
        self.path, self.running = path, running
        self.worker = RawConnection(path)
        self.worker.send(hello("good", 1))
        assert self.receive() == Welcome()
        self._request = 0

    def receive(self) -> Frame | None:
        """Return the next frame of the good worker; answer pings."""
        while (frame := self.worker.receive()) == Ping() and type(frame) is Ping:
            self.worker.send(encode(Pong()))
        return frame

    def check(self) -> None:
        """Check that a request of the good worker is granted."""
        self._request += 1
        self.worker.send(encode(Ready(self._request, 5, 5)))
        assert self.receive() == Grant(self._request)
        self.worker.send(encode(Done(self._request)))


@contextlib.contextmanager
def shared_gate() -> Iterator[Shared]:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        threaded_gate(unix=Path(folder, "gate")) as running,
    ):
        # No pings: the good worker answers them only inside `receive`.
        patch.setattr(connections, "PING_INTERVAL_S", 600.0)
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
def test_an_anonymous_connection_may_send_any_bytes(
    shared: Shared, data: bytes, closes: bool
) -> None:
    with RawConnection(shared.path) as raw:
        raw.send(data)
        if not closes:
            shared.check()
    shared.check()


@settings(max_examples=60)
@given(st.lists(FRAMES | st.binary(max_size=60), max_size=6))
def test_a_worker_may_send_anything(shared: Shared, words: list[Frame | bytes]) -> None:
    with RawConnection(shared.path) as raw:
        frames = [one if isinstance(one, bytes) else encode(one) for one in words]
        raw.send(hello("bad") + b"".join(frames))
        shared.check()
    shared.check()


def test_a_connection_may_end_in_the_middle_of_a_frame(shared: Shared) -> None:
    data = hello("cut") + encode(Ready(1, 1, 1)) + encode(Iteration(1, 2, 3, 4)) + encode(Done(1))
    for end in range(len(data)):
        with RawConnection(shared.path) as raw:
            raw.send(data[:end])
    shared.check()


def test_a_worker_of_the_version_before_is_welcome(shared: Shared) -> None:
    with RawConnection(shared.path) as raw:
        raw.send(hello("old", version=1) + encode(Ready(1, 1, 1)))
        assert raw.receive() == Welcome()
        assert raw.receive() == Grant(1)


def test_frames_may_come_byte_by_byte(shared: Shared) -> None:
    with RawConnection(shared.path) as raw:
        for byte in hello("slow") + encode(Ready(1, 1, 1)):
            raw.send(bytes([byte]))
        assert raw.receive() == Welcome()
        assert raw.receive() == Grant(1)


def test_random_changes_of_a_conversation_hurt_nobody(shared: Shared) -> None:
    draw = random.Random(0)
    talk = b"".join(encode(Ready(n, n, n)) + encode(Done(n)) for n in range(1, 20))
    for _ in range(100):
        data = bytearray(hello("fuzz") + talk)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        with RawConnection(shared.path) as raw:
            raw.send(bytes(data))
    shared.check()


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (hello(token=""), "token"),
        (hello(token=SECRET), "token"),
        (hello(token=job_token(SECRET, "j", 2)), "token"),
        (hello(token=job_token(SECRET, "k", 1)), "token"),
        (hello(token=job_token("another secret", "j", 1)), "token"),
        (hello(version=VERSION + 1), f"versions 1 to {VERSION}, not {VERSION + 1}"),
        (hello(version=0), f"versions 1 to {VERSION}, not 0"),
    ],
)
def test_an_invalid_hello_is_refused_with_a_reason(
    shared: Shared, frame: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REFUSAL_DELAY_S", 0.01)
    with RawConnection(shared.path) as raw:
        raw.send(frame)
        answer = raw.receive()
        assert isinstance(answer, Refused)
        assert reason in answer.text
        assert raw.receive() is None
    assert ("attached", "j", 1, 0) not in shared.running.recorder.calls


def test_a_connection_may_try_only_one_token(shared: Shared) -> None:
    with RawConnection(shared.path) as raw:
        raw.send(hello("guess", token="wrong") + hello("guess"))
        assert isinstance(raw.receive(), Refused)
        assert raw.receive() is None
    assert ("attached", "guess", 1, 0) not in shared.running.recorder.calls


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
def test_a_worker_that_breaks_the_protocol_is_disconnected(
    shared: Shared, frames: list[Frame]
) -> None:
    with RawConnection(shared.path) as raw:
        raw.send(hello("odd") + b"".join(encode(one) for one in frames))
        shared.running.wait_for_call("lost", "odd", 1, 0)
        while raw.receive() is not None:
            pass
        shared.running.recorder.calls.clear()


@pytest.mark.parametrize("frame", [Ready(1, 1, 1), Done(1), Iteration(1, 2, 3, 4), PROFILE])
def test_a_rank_other_than_0_may_only_ask_to_compute(shared: Shared, frame: Frame) -> None:
    with RawConnection(shared.path) as raw:
        raw.send(hello("rank", rank=3) + encode(Compute(1)) + encode(Computed(1)) + encode(frame))
        shared.running.wait_for_call("lost", "rank", 1, 3)
        while raw.receive() is not None:
            pass
    own = [one for one in shared.running.recorder.calls if one[1] == "rank"]
    assert [one[0] for one in own] == ["attached", "compute", "computed", "lost"]
    shared.running.recorder.calls.clear()


def test_a_connection_without_a_hello_is_closed(
    alone: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HELLO_TIMEOUT_S", 0.05)
    with RawConnection(alone.path) as raw:
        assert raw.receive() is None
    alone.check()


def test_a_worker_that_answers_no_pings_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PING_INTERVAL_S", 0.05)
    with threaded_gate(unix=tmp_path / "gate") as running, RawConnection(tmp_path / "gate") as raw:
        raw.send(hello())
        assert raw.receive() == Welcome()
        running.wait_for_call("lost", "j", 1, 0)
        heard = list(iter(raw.receive, None))
        assert [type(one) for one in heard] == [Ping] * connections.MAX_UNANSWERED_PINGS


@pytest.mark.parametrize("turns", range(4))
def test_sockets_that_were_just_accepted_are_closed_with_the_gate(
    tmp_path: Path, turns: int
) -> None:
    with threaded_gate(unix=tmp_path / "gate") as running, contextlib.ExitStack() as stack:

        async def connect_and_close() -> list[RawConnection]:
            """Close some turns of the loop later, when not all sockets are connections."""
            made = [stack.enter_context(RawConnection(tmp_path / "gate")) for _ in range(4)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await running.gate.close()
            return made

        for raw in running.wait(connect_and_close()):
            raw.socket.settimeout(2)
            assert raw.receive() is None


def test_a_gate_that_closes_calls_its_handler_no_more(tmp_path: Path) -> None:
    with (
        threaded_gate(unix=tmp_path / "gate") as running,
        RawConnection(tmp_path / "gate") as worker,
    ):
        worker.send(hello())
        assert worker.receive() == Welcome()

        async def send_and_close() -> None:
            worker.send(encode(Ready(1, 5, 5)))
            await running.gate.close()

        running.wait(send_and_close())
        assert running.recorder.kinds() == ["attached"]


async def answer_pings(path: Path, pings: int) -> list[type[Frame]]:
    """Connect as a worker and answer so many pings; return the kinds of all frames."""
    stream, writer = await asyncio.open_unix_connection(path)
    reader, kinds = FrameReader(), list[type[Frame]]()
    writer.write(hello())
    while len(kinds) <= pings and (data := await stream.read(65536)):
        reader.feed(data)
        while (frame := reader.next()) is not None:
            kinds.append(type(frame))
            if type(frame) is Ping:
                writer.write(encode(Pong()))
    writer.close()
    return kinds


def test_a_worker_that_answers_pings_stays_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PING_INTERVAL_S", 0.05)
    pings = 3 * connections.MAX_UNANSWERED_PINGS
    with threaded_gate(unix=tmp_path / "gate") as running:
        # In the gate's own loop: a thread on a busy machine would sometimes answer too late.
        kinds = running.wait(answer_pings(tmp_path / "gate", pings))
        running.wait_for_call("lost", "j", 1, 0)
        assert kinds == [Welcome] + [Ping] * (len(kinds) - 1)
        assert len(kinds) > pings
        assert running.recorder.kinds() == ["attached", "lost"]


def test_a_worker_that_stops_reading_is_disconnected(alone: Shared) -> None:
    with RawConnection(alone.path) as raw:
        raw.send(hello("deaf"))
        assert raw.receive() == Welcome()
        for start in range(1, 1_000_001, 100):
            numbers = range(start, start + 100)
            raw.send(b"".join(encode(Ready(n, 1, 1)) + encode(Done(n)) for n in numbers))
            if ("lost", "deaf", 1, 0) in alone.running.recorder.calls:
                break
            alone.check()
        alone.running.wait_for_call("lost", "deaf", 1, 0)
    alone.check()


@pytest.mark.parametrize("kind", ["ready", "compute"])
def test_a_worker_with_too_many_open_requests_is_disconnected(alone: Shared, kind: str) -> None:
    alone.running.recorder.holding = True
    with RawConnection(alone.path) as raw:
        raw.send(hello("greedy"))
        asked = range(1, MAX_OPEN_REQUESTS + 2)
        frames = [Ready(n, 1, 1) if kind == "ready" else Compute(n) for n in asked]
        raw.send(b"".join(encode(one) for one in frames))
        alone.running.wait_for_call("lost", "greedy", 1, 0)
    assert alone.running.recorder.kinds().count(kind) == MAX_OPEN_REQUESTS


def test_a_worker_that_floods_the_gate_does_not_starve_others(alone: Shared) -> None:
    with RawConnection(alone.path) as raw:
        raw.socket.setblocking(False)
        flood = hello("flood") + encode(Pong()) * 100_000
        sent = 0
        for _ in range(50):
            with contextlib.suppress(BlockingIOError):
                sent += raw.socket.send(flood[sent:])
            alone.check()
        assert sent > 0


def test_a_thousand_silent_connections_do_not_disturb_workers(alone: Shared) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    try:
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(RawConnection(alone.path)) for _ in range(1000)]
            for _ in range(100):
                alone.check()
            more = server.MAX_ANONYMOUS - len(silent) + 1
            silent += [stack.enter_context(RawConnection(alone.path)) for _ in range(more)]
            assert silent[0].receive() is None
            alone.check()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    eventually(lambda: alone.running.gate.connected == 1)
