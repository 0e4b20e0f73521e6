"""Runs the processes of one measurement on this machine, and ends them together.

Each gets a pipe as standard input and exits when it closes, so that none outlives the command that
started it, however that ends. Rank 0 reports progress and the result on standard output.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from headway.domain.errors import HeadwayError, MachineError

_WAIT_S = 0.05
_GRACE_S = 2.0
"""Time for the other processes to end before they are killed."""


@dataclass(frozen=True, slots=True)
class Process:
    """A command to start, and its title in error messages."""

    title: str
    command: Sequence[str]
    environment: dict[str, str]


def run_all(processes: Sequence[Process], progress: Callable[[float], None]) -> Any:
    """Run all processes, the first of which is rank 0, and return the result it reports.

    Raises:
        MachineError: One of them failed; the others have been terminated.
    """
    with _started(processes) as running:
        return _followed(running, progress)


@dataclass(frozen=True, slots=True)
class _Running:
    title: str
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def failure(self) -> str:
        """Return a sentence about how it ended."""
        code = self.process.returncode
        if code < 0:
            return f"{self.title} was killed by {signal.Signals(-code).name}."
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1].removeprefix("headway: error: ") if lines else f"exited with {code}."
        return f"{self.title}: {reason}"


@contextmanager
def _started(processes: Sequence[Process]) -> Iterator[list[_Running]]:
    """Start processes; at the end of the `with` all of them have ended."""
    running: list[_Running] = []
    try:
        for number, process in enumerate(processes):
            errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
            popen = subprocess.Popen(
                process.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **process.environment},
                start_new_session=True,
            )
            running.append(_Running(process.title, popen, errors))
        yield running
    finally:
        for one in running:
            if one.process.stdin is not None:
                one.process.stdin.close()
        deadline = time.monotonic() + _GRACE_S
        for one in running:
            try:
                one.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
            if one.process.stdout is not None:
                one.process.stdout.close()
            one.errors.close()


def _followed(running: list[_Running], progress: Callable[[float], None]) -> Any:
    """Read the output of rank 0 until all processes have ended; return its result."""
    output = running[0].process.stdout
    assert output is not None
    result, rest, open_ = None, b"", True
    while True:
        ended = [one for one in running if one.process.poll() is not None]
        failed = [one for one in ended if one.process.returncode != 0]
        if failed:
            # A killed process is the cause; the others only lost their peer.
            raise MachineError(min(failed, key=lambda one: one.process.returncode > 0).failure())
        if len(ended) == len(running) and not open_:
            if result is None:
                raise MachineError("the processes ended without a result.")
            return result
        if not open_:
            time.sleep(_WAIT_S)
        elif select.select([output], [], [], _WAIT_S)[0]:
            chunk = os.read(output.fileno(), 1 << 16)
            open_ = bool(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "progress" in message:
                    progress(message["progress"])
                else:
                    result = message["result"]


@contextmanager
def taking_part() -> Iterator[Callable[[str, Any], None]]:
    """Take part as one of the processes; yields a function that reports `progress` or `result`."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Keeps what libraries print out of the results.
    try:
        yield lambda kind, value: print(json.dumps({kind: value}), file=output, flush=True)
    except HeadwayError as error:
        sys.exit(f"headway: error: {error}")


def _end_with_the_parent() -> None:
    os.read(0, 1)
    os._exit(1)
