"""A real scheduler in a process of its own, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.live.api.client import Client, find
from waiting import PATIENCE_S, eventually

PRINTS = "import os, sys; print('rank', os.environ['RANK'], *sys.argv[1:])"
SLEEPS = "import time; time.sleep(600)"
APPENDS = "import os; open(os.environ['FILE'], 'a').write('x'); import time; time.sleep({seconds})"
"""Appends a character to a file, so that starts can be counted."""

FINISHED = ("done", "failed", "cancelled")


def python(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a script."""
    return [sys.executable, "-c", script, *arguments]


def fill(path: Path) -> None:
    """Fill the disk with a file."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass


class SchedulerProcess:
    """`headway serve` on a state folder; it can be killed and restarted."""

    def __init__(self, folder: Path, settings: str = "", *options: str, slots: int = 4) -> None:
        self.folder, self.options = folder, options
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.config = folder.with_name(f"{folder.name}.toml")
        self.config.write_text(
            f'[serve]\nfolder = "{folder}"\napi_port = 0\npolicy = "ff+srsf:1"\n{settings}\n'
            + ("" if "[executor]" in settings else f'[executor]\nkind = "local"\nslots = {slots}\n')
        )
        self.log = folder.with_name(f"{folder.name}.log")
        self.process = self.start()

    @property
    def client(self) -> Client:
        """A client that finds the scheduler as commands do."""
        return find(self.folder)

    @property
    def command(self) -> list[str]:
        """The command that starts it."""
        return [sys.executable, "-m", "headway", "serve", "--config", str(self.config)]

    def start(self) -> subprocess.Popen[bytes]:
        """Start it and wait until it responds."""
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                [*self.command, *self.options],
                stderr=stream,
                # Policies as plain Python start at once and decide the same.
                env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
            )
        eventually(lambda: self._responds() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        return self.process

    def _responds(self) -> bool:
        with contextlib.suppress(Exception):
            return bool(self.client.status())
        return False

    def kill(self) -> None:
        """Kill it without warning."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def submit(self, command: list[str], **values: Any) -> str:
        """Submit a job and return its id."""
        spec = {"command": command, "folder": "/", **values}
        return str(self.client.submit(spec)["job_id"])

    def wait_for(self, job: str, *states: str) -> dict[str, Any]:
        """Wait until a job is in one of these states."""

        def view() -> dict[str, Any] | None:
            found = self.client.job(job)
            return found if found["state"] in states else None

        found = eventually(view)
        assert found is not None
        return found

    def finish(self) -> None:
        """Cancel all jobs and stop, restarting first if it was killed."""
        if self.process.poll() is not None:
            self.start()
        for job in self.client.jobs():
            if job["state"] not in FINISHED:
                self.client.cancel(job["job_id"])
                self.wait_for(job["job_id"], *FINISHED)
        self.stop()

    def log_entries(self) -> list[dict[str, Any]]:
        """Return the entries of its operator log so far; a thread writes them a little later."""
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def wait_for_entries(self, count: int, **values: Any) -> list[dict[str, Any]]:
        """Wait until its operator log has this many entries with these values; return them all."""

        def found() -> list[dict[str, Any]]:
            entries = [one for one in self.log_entries() if values.items() <= one.items()]
            return entries if len(entries) >= count else []

        return eventually(found)


@contextlib.contextmanager
def running_scheduler(folder: Path, *arguments: str, slots: int = 4) -> Iterator[SchedulerProcess]:
    """Run a scheduler for the duration of a with block."""
    scheduler = SchedulerProcess(folder, *arguments, slots=slots)
    try:
        yield scheduler
    finally:
        scheduler.finish()
