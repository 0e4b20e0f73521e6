"""Runs `headway serve` in a process of its own, for benchmarks."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.domain.errors import InputError, MachineError
from headway.live.api.client import Client, find

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.1


@contextlib.contextmanager
def running_scheduler(folder: Path, settings: str, *options: str) -> Iterator[Client]:
    """Run a scheduler on a state folder, with jobs stopped at the end; its log is FOLDER.log."""
    config, log = folder.with_suffix(".toml"), folder.with_suffix(".log")
    config.write_text(settings)
    command = [sys.executable, "-m", "headway", "serve", "--stop-jobs", "--config", str(config)]
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, *options], stderr=stream)
    try:
        wait_until(
            lambda: process.poll() is not None or responding(folder) is not None,
            START_TIMEOUT_S,
            "the scheduler did not start",
        )
        client = responding(folder)
        if client is None:
            raise MachineError(f"the scheduler did not start: {log.read_text()[-1000:]}")
        yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)


def responding(folder: Path) -> Client | None:
    """Return a client for the scheduler that runs on a state folder, if it responds."""
    try:
        client = find(folder)
        client.status()
    except InputError:
        return None
    return client


def wait_until(condition: Callable[[], object], timeout_s: float, problem: str) -> None:
    """Wait until a condition is true; raise MachineError with this problem after the timeout."""
    if not becomes_true(condition, timeout_s):
        raise MachineError(f"{problem} within {timeout_s:g} s.")


def becomes_true(condition: Callable[[], object], timeout_s: float) -> bool:
    """Poll a condition; return whether it became true before the timeout."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
