"""A real scheduler in a process of its own, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.live.api.client import Client, find

PATIENCE_S = 60.0

PRINTS = "import os, sys; print('rank', os.environ['RANK'], *sys.argv[1:])"
SLEEPS = "import time; time.sleep(60)"
COUNTS = "import os; open(os.environ['FILE'], 'a').write('x'); import time; time.sleep({seconds})"
"""Leaves a mark in a file, so that starts can be counted."""


def python(script: str, *words: str) -> list[str]:
    """Return the command that runs a script."""
    return [sys.executable, "-c", script, *words]


def fill(path: Path) -> None:
    """Fill the disk with a file."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass


def until(true: Callable[[], Any]) -> Any:
    """Wait until something is so, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found


class Served:
    """A scheduler on a state folder, which can be killed and started again."""

    def __init__(self, folder: Path, settings: str = "", *options: str, slots: int = 4) -> None:
        self.folder, self._options = folder, options
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._config = folder.with_name(f"{folder.name}.toml")
        self._config.write_text(
            f'[serve]\nfolder = "{folder}"\napi_port = 0\npolicy = "ff+srsf:1"\n{settings}\n'
            + ("" if "[executor]" in settings else f'[executor]\nkind = "local"\nslots = {slots}\n')
        )
        self.notices = folder.with_name(f"{folder.name}.log")
        self.process = self.start()

    @property
    def client(self) -> Client:
        """The command line's way to it."""
        return find(self.folder)

    @property
    def command(self) -> list[str]:
        """What starts it."""
        return [sys.executable, "-m", "headway", "serve", "--config", str(self._config)]

    def start(self) -> subprocess.Popen[bytes]:
        """Start it and wait until it answers."""
        (self.folder / "address.json").unlink(missing_ok=True)
        with self.notices.open("ab") as stream:
            self.process = subprocess.Popen(
                [*self.command, *self._options],
                stderr=stream,
                # Policies as plain Python start at once, and decide the same.
                env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
            )
        until(lambda: (self.folder / "address.json").exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.notices.read_text()
        until(self._answers)
        return self.process

    def _answers(self) -> bool:
        with contextlib.suppress(Exception):
            return bool(self.client.status())
        return False

    def kill(self) -> None:
        """Kill it without warning."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ask it to end; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def submit(self, command: list[str], **values: Any) -> str:
        """Submit a job and return its name."""
        spec = {"command": command, "folder": "/", **values}
        return str(self.client.submit(spec)["job_id"])

    def reaches(self, job: str, *states: str) -> dict[str, Any]:
        """Wait until a job is in one of these states."""

        def there() -> dict[str, Any] | None:
            found = self.client.job(job)
            return found if found["state"] in states else None

        found: dict[str, Any] = until(there)
        return found

    def finish(self) -> None:
        """End it and every job of it, however it stands."""
        if self.process.poll() is not None:
            self.start()
        for job in self.client.jobs():
            if job["state"] not in ("done", "failed", "cancelled"):
                self.client.cancel(job["job_id"])
                self.reaches(job["job_id"], "done", "failed", "cancelled")
        self.end()

    def told(self) -> list[dict[str, Any]]:
        """Return its notices."""
        return [json.loads(line) for line in self.notices.read_text().splitlines()]


@contextlib.contextmanager
def served(folder: Path, *arguments: str, slots: int = 4) -> Iterator[Served]:
    """Serve while this lasts."""
    one = Served(folder, *arguments, slots=slots)
    try:
        yield one
    finally:
        one.finish()
