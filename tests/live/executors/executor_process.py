"""An executor in a process of its own, which a test can kill.

    python executor_process.py local FOLDER
    python executor_process.py ray FOLDER ADDRESS
    python executor_process.py slurm FOLDER ALLOCATION
    python executor_process.py slurm-batch FOLDER PARTITION

It reads commands and prints reports, one JSON object per line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headway.live.core.events import JobSpec, Slot
from headway.live.executors import Attempt, AttemptEnd, Executor, ExecutorNode
from headway.live.executors.local.executor import LocalExecutor
from headway.live.executors.slurm.cluster import SlurmSettings
from headway.live.executors.slurm.executor import SlurmExecutor
from live.executors.helpers import GRACE_S, NODES, make_slots
from waiting import PATIENCE_S

POLL_S = 1.0


class ExecutorProcess:
    """The process, as the test sees it."""

    def __init__(
        self, *words: str, prefix: Sequence[str] = (), env: Mapping[str, str] = os.environ
    ) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(Path(__file__)), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**env, "PYTHONPATH": os.pathsep.join(sys.path)},  # for the modules of tests
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self.reports: list[dict[str, Any]] = []
        self._ends = 0  # that `next_end` has returned

    def send(self, **command: Any) -> None:
        """Send a command."""
        self._input.write(json.dumps(command) + "\n")
        self._input.flush()

    def next_report(self, kind: str) -> Any:
        """Return the value of the next report of this kind."""
        for line in self._output:
            report = json.loads(line)
            self.reports.append(report)
            if report["kind"] == kind:
                return report["value"]
        raise AssertionError(f"it ended without {kind}: {self.reports}")

    def launch(self, attempt: Attempt, spec: JobSpec, *slots: str) -> None:
        """Start an attempt on slots like `n1:0`."""
        self.send(
            do="launch",
            attempt=msgspec.to_builtins(attempt),
            spec=msgspec.to_builtins(spec),
            slots=msgspec.to_builtins(make_slots(*slots)),
        )
        self.next_report("launched")

    def next_end(self) -> AttemptEnd:
        """Return the next end of an attempt, which may have been reported during a command."""
        ends = [report["value"] for report in self.reports if report["kind"] == "ended"]
        found = ends[self._ends] if len(ends) > self._ends else self.next_report("ended")
        self._ends += 1
        return msgspec.convert(found, AttemptEnd)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self._wait()

    def close(self) -> None:
        """End it in good order."""
        self._input.close()
        self._wait()

    def _wait(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self.process.wait(PATIENCE_S)
        self._output.close()

    def __enter__(self) -> ExecutorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.close()


class _PrintingHandler:
    def attempt_ended(self, end: AttemptEnd) -> None:
        _report("ended", end)

    def attempt_waits(self, attempt: Attempt, why: str) -> None:
        _report("waits", why)

    def node_up(self, node: ExecutorNode) -> None:
        _report("node up", node)

    def node_lost(self, name: str) -> None:
        _report("node lost", name)

    def node_drained(self, name: str, draining: bool) -> None:
        _report("node drained" if draining else "node undrained", name)

    def executor_lost(self, problem: str) -> None:
        _report("executor lost", problem)


def _report(kind: str, value: Any = None) -> None:
    line = json.dumps({"kind": kind, "value": msgspec.to_builtins(value)})
    os.write(_REPORTS, f"{line}\n".encode())


def _make_executor(words: Sequence[str]) -> Executor:
    if words[0] == "local":
        return LocalExecutor(Path(words[1]), NODES, GRACE_S)
    if words[0] == "slurm":
        settings = SlurmSettings(allocation=words[2], poll_s=POLL_S)
        return SlurmExecutor(settings, Path(words[1]), GRACE_S)
    if words[0] == "slurm-batch":
        settings = SlurmSettings(batch=True, partition=words[2], poll_s=POLL_S)
        return SlurmExecutor(settings, Path(words[1]), GRACE_S)
    from headway.live.executors.ray.executor import RayExecutor

    return RayExecutor(words[2], Path(words[1]), GRACE_S)


async def _serve(words: Sequence[str]) -> None:
    executor = _make_executor(words)
    _report("nodes", list(await executor.start(_PrintingHandler())))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        if command["do"] == "recover":
            known = msgspec.convert(command["known"], list[Attempt])
            _report("running", list(await executor.recover(known)))
            continue
        attempt = msgspec.convert(command["attempt"], Attempt)
        if command["do"] == "launch":
            spec = msgspec.convert(command["spec"], JobSpec)
            slots = msgspec.convert(command["slots"], list[Slot])
            await executor.launch(attempt, spec, slots, {})
            _report("launched")
        else:
            await executor.stop(attempt)
    await executor.close()


if __name__ == "__main__":
    # What others print, such as Ray from threads of its own, must not come between reports.
    _REPORTS = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_serve(sys.argv[1:]))
