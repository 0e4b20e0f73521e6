"""The steps of every event: decide, grant, log, save, act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headway.live import operator_log
from headway.live.core.core import Core
from headway.live.core.events import AnyEvent, AnyInstruction, MessageReady, Tick
from headway.live.daemon.daemon import Daemon
from headway.live.executors import ExecutorNode
from live.daemon.in_process import FakeExecutor, make_spec, running_daemon
from waiting import eventually_async

MB = 2**20


class RecordingGate:
    """A gate without workers that records grants and refusals."""

    connected = 0

    def __init__(self) -> None:
        self.granted: list[tuple[str, int]] = []
        self.refused: list[tuple[str, str]] = []
        self.on_grant: Callable[[], None] = lambda: None

    def grant(self, job_id: str, attempt: int, request: int, rank: int = 0) -> bool:
        self.granted.append((job_id, request))
        self.on_grant()
        return True

    def refuse(self, job_id: str, attempt: int, text: str, rank: int | None = None) -> None:
        self.refused.append((job_id, text))


def use(folder: Path, work: Callable[[Daemon, RecordingGate], Coroutine[Any, Any, None]]) -> Daemon:
    """Run some work with two jobs that share both nodes of a daemon."""

    async def main() -> Daemon:
        executor = FakeExecutor()
        executor.nodes = [ExecutorNode(name, "127.0.0.1", 1, 2**30) for name in ("n1", "n2")]
        async with running_daemon(folder, executor) as daemon:
            daemon.grants.gate = gate = RecordingGate()
            for _ in range(2):
                await daemon.submit(make_spec(gpus=2, memory_bytes=MB))
            await eventually_async(lambda: daemon.registry.counts()["running"] == 2)
            await work(daemon, gate)
        return daemon

    return asyncio.run(main())


def count(daemon: Daemon, histogram: str) -> float | None:
    return daemon.metrics.registry.get_sample_value(f"headway_{histogram}_seconds_count")


def test_immediate_grants_and_waits_are_measured_apart(tmp_path: Path) -> None:
    async def work(daemon: Daemon, gate: RecordingGate) -> None:
        daemon.gate_events.message_ready("1", 1, 7, MB, MB)
        daemon.gate_events.message_ready("2", 1, 8, MB, MB)
        assert gate.granted == [("1", 7)]
        assert (count(daemon, "gate_latency"), count(daemon, "admission_wait")) == (1, 0)
        daemon.gate_events.message_done("1", 1, 7)
        assert gate.granted == [("1", 7), ("2", 8)]
        assert (count(daemon, "gate_latency"), count(daemon, "admission_wait")) == (1, 1)

    use(tmp_path, work)


def test_a_request_of_a_lost_worker_is_not_measured(tmp_path: Path) -> None:
    async def work(daemon: Daemon, gate: RecordingGate) -> None:
        daemon.gate_events.message_ready("1", 1, 7, MB, MB)
        daemon.gate_events.message_ready("2", 1, 8, MB, MB)
        daemon.gate_events.worker_lost("2", 1, 0)
        daemon.gate_events.message_done("1", 1, 7)
        assert gate.granted == [("1", 7)]
        assert count(daemon, "admission_wait") == 0

    use(tmp_path, work)


def test_grants_go_out_before_the_event_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(daemon: Daemon, gate: RecordingGate) -> None:
        order: list[str] = []
        monkeypatch.setattr(daemon.log, "add", lambda _: order.append("log"))
        gate.on_grant = lambda: order.append("grant")
        daemon.gate_events.message_ready("1", 1, 7, MB, MB)
        assert order == ["grant", "log"]

    use(tmp_path, work)


def test_nonsense_that_is_ignored_is_not_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(daemon: Daemon, gate: RecordingGate) -> None:
        logged: list[bytes] = []
        monkeypatch.setattr(daemon.log, "add", logged.append)
        for _ in range(1000):
            daemon.gate_events.iteration_done("1", 1, 1, 0, 0, 0)
            daemon.gate_events.message_done("2", 1, 9)
        assert len(logged) == 1
        assert b"IterationDone" in logged[0]

    use(tmp_path, work)


def test_an_event_raised_while_another_is_handled_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(daemon: Daemon, gate: RecordingGate) -> None:
        logged: list[bytes] = []
        monkeypatch.setattr(daemon.log, "add", logged.append)
        gate.on_grant = lambda: daemon.gate_events.worker_lost("1", 1, 0)
        daemon.gate_events.message_ready("1", 1, 7, MB, MB)
        assert [b"MessageReady" in logged[0], b"WorkerLost" in logged[1]] == [True, True]

    use(tmp_path, work)


def test_requests_are_granted_even_if_the_core_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []
    monkeypatch.setattr(operator_log, "failure", lambda event, _, of: failures.append(of))
    handle = Core.handle

    def fail(core: Core, event: AnyEvent) -> list[AnyInstruction]:
        if isinstance(event, MessageReady | Tick):
            raise RuntimeError("a bug")
        return handle(core, event)

    async def work(daemon: Daemon, gate: RecordingGate) -> None:
        monkeypatch.setattr(Core, "handle", fail)
        daemon.gate_events.message_ready("1", 1, 7, MB, MB)
        daemon.pipeline.handle(Tick(at_ns=daemon.clock.now_ns()))
        assert gate.granted == [("1", 7)]
        monkeypatch.setattr(Core, "handle", handle)

    use(tmp_path, work)
    assert failures == ["MessageReady", "Tick"]


def test_a_worker_of_an_attempt_that_is_over_is_released_and_a_stray_rank_refused(
    tmp_path: Path,
) -> None:
    async def work(daemon: Daemon, gate: RecordingGate) -> None:
        daemon.gate_events.worker_attached("1", 1, 5)
        daemon.gate_events.worker_attached("9", 1, 0)
        assert gate.refused == [
            ("1", "the job has no slot for rank 5"),
            ("9", "this attempt is over"),
        ]

    use(tmp_path, work)
