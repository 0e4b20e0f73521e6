"""Executors in tests: a watcher that remembers, and a scheduler-like process that can be killed.

Run as a program it starts an executor and does what it reads, a line of JSON each; it prints what
happens the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headway.live.core.events import JobSpec, Slot
from headway.live.executors import Attempt, Ended, Executor, Node
from headway.live.executors.local import LocalExecutor, LocalNode

PATIENCE_S = 60.0
GRACE_S = 0.5
QUICK = (sys.executable, "-I", "-S", "-u", "-c")
"""A Python that starts at once."""

NODES = (LocalNode("n1", 4, 2**30), LocalNode("n2", 4, 2**30))


class Diary:
    """Remembers what an executor tells."""

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self.nodes: list[str] = []

    def attempt_ended(self, ended: Ended) -> None:
        self.ended.append(ended)

    def node_came(self, node: Node) -> None:
        self.nodes.append(f"+{node.name}")

    def node_lost(self, name: str) -> None:
        self.nodes.append(f"-{name}")

    async def end_of(self, attempt: Attempt) -> Ended:
        """Return how an attempt ended, once it has."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for ended in self.ended:
                    if ended.attempt == attempt:
                        return ended
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def local(
    folder: Path, nodes: Sequence[LocalNode] = NODES, grace_s: float = GRACE_S
) -> AsyncIterator[tuple[LocalExecutor, Diary]]:
    """Start an executor of this machine; it lets go at the end."""
    executor, diary = LocalExecutor(folder, nodes, grace_s), Diary()
    await executor.start(diary)
    try:
        yield executor, diary
    finally:
        await executor.close()


def job(code: str, *words: str, **others: Any) -> JobSpec:
    """Return a job that runs Python code."""
    return JobSpec(command=(*QUICK, code, *words), **others)


def slots(*places: str) -> list[Slot]:
    """Return slots from words like `n1:0`."""
    return [Slot(node, int(slot)) for node, _, slot in (place.partition(":") for place in places)]


async def eventually(holds: Any) -> bool:
    """Wait until something holds; False when that takes far too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.01)
            return True
    return False


def having(word: str) -> list[int]:
    """Return the processes that have a word among their arguments, past the code under test."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return sorted(set(found) - {os.getpid()})


class Scheduler:
    """A process with an executor in it."""

    def __init__(self, *words: str, prefix: Sequence[str] = (), env: Any = None) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(Path(__file__)), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._asks, self._tells = self.process.stdin, self.process.stdout
        self.heard: list[dict[str, Any]] = []

    def tell(self, **words: Any) -> None:
        """Say what to do."""
        self._asks.write(json.dumps(words) + "\n")
        self._asks.flush()

    def hear(self, kind: str) -> Any:
        """Return the next that it tells of this kind."""
        for line in self._tells:
            if not line.startswith("{"):
                continue  # Ray prints too.
            told = json.loads(line)
            self.heard.append(told)
            if told["kind"] == kind:
                return told["value"]
        raise AssertionError(f"it ended without {kind}: {self.heard}")

    def launch(self, attempt: Attempt, spec: JobSpec, *places: str) -> None:
        """Start an attempt."""
        self.tell(
            do="launch",
            attempt=msgspec.to_builtins(attempt),
            spec=msgspec.to_builtins(spec),
            slots=msgspec.to_builtins(slots(*places)),
        )
        self.hear("launched")

    def ended(self) -> Ended:
        """Return the next end of an attempt."""
        return msgspec.convert(self.hear("ended"), Ended)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self._close()

    def leave(self) -> None:
        """End it as it should be."""
        self._asks.close()
        self._close()

    def _close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._asks.close()
        self.process.wait(PATIENCE_S)
        self._tells.close()

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.leave()


class _Telling:
    def attempt_ended(self, ended: Ended) -> None:
        _say("ended", ended)

    def node_came(self, node: Node) -> None:
        _say("came", node)

    def node_lost(self, name: str) -> None:
        _say("lost", name)


def _say(kind: str, value: Any = None) -> None:
    print(json.dumps({"kind": kind, "value": msgspec.to_builtins(value)}), flush=True)


def _executor(words: Sequence[str]) -> Executor:
    if words[0] == "local":
        return LocalExecutor(Path(words[1]), NODES, GRACE_S)
    from headway.live.executors.ray import RayExecutor

    return RayExecutor(words[2], Path(words[1]), GRACE_S)


async def _serve(words: Sequence[str]) -> None:
    executor = _executor(words)
    _say("nodes", list(await executor.start(_Telling())))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        told = json.loads(line)
        if told["do"] == "recover":
            known = msgspec.convert(told["known"], list[Attempt])
            _say("running", list(await executor.recover(known)))
            continue
        attempt = msgspec.convert(told["attempt"], Attempt)
        if told["do"] == "launch":
            spec = msgspec.convert(told["spec"], JobSpec)
            await executor.launch(attempt, spec, msgspec.convert(told["slots"], list[Slot]), {})
            _say("launched")
        else:
            await executor.stop(attempt)
    await executor.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1:]))
