"""The scheduler of the soak as a process, and everything that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from headway.domain.errors import InputError
from headway.live.api.client import Client, find

PATIENCE_S = 60.0
NODES, SLOTS = 4, 4
_SETTINGS = f"""[serve]
folder = "state"
api_port = 0
policy = "spread+srsf:1"

[executor]
kind = "local"
nodes = {NODES}
slots = {SLOTS}
memory_mb = 1024
"""


class SoakError(Exception):
    """Something that must not happen."""


class Daemon:
    """`headway serve` on a folder of its own, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.state = folder / "state"
        self._config = folder / "serve.toml"
        self._config.write_text(_SETTINGS)
        self.notices = folder / "notices"
        self.lives = self.kills = 0
        self.killed = False
        self._timer: threading.Timer | None = None
        self.client: Client
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self._process is not None
        return self._process.pid

    @property
    def gone(self) -> bool:
        """Whether it has ended, or has never begun; raise if nobody killed it."""
        if self._process is None:
            return True
        code = self._process.poll()
        if code is not None and not self.killed:
            raise SoakError(f"the scheduler ended by itself, with {code}")
        return code is not None

    def start(self, kill_after_s: float | None = None) -> bool:
        """Start it and wait until it answers; False if it was killed before."""
        (self.state / "address.json").unlink(missing_ok=True)
        self.killed = False
        with self.notices.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headway", "serve", "--config", str(self._config)],
                stderr=stream,
                # Policies as plain Python start at once, and decide the same.
                env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
                # Ctrl-C is for the soak, which then ends it.
                start_new_session=True,
            )
        self.lives += 1
        if kill_after_s is not None:
            self.kill_in(kill_after_s)
        end_s = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self.gone:
                return False
            if time.monotonic() > end_s:
                raise SoakError("the scheduler does not answer")
            time.sleep(0.02)
        return True

    def _answers(self) -> bool:
        if not (self.state / "address.json").exists():
            return False
        try:
            self.client = find(self.state)
            self.client.status()
        except InputError:
            return False
        return True

    def kill_in(self, delay_s: float) -> None:
        """Kill it in a while, whatever is being asked of it then."""

        def kill() -> None:
            self.killed = True
            assert self._process is not None
            self._process.kill()
            self.kills += 1

        self._timer = threading.Timer(delay_s, kill)
        self._timer.start()

    @property
    def doomed(self) -> bool:
        """Whether it is going to be killed, or has been."""
        return self.killed or (self._timer is not None and self._timer.is_alive())

    def wait_for_kill(self) -> None:
        """Wait until a kill that was announced has happened."""
        if self._timer is not None:
            self._timer.join()
        if self.killed and self._process is not None:
            self._process.wait()

    def end(self) -> None:
        """Ask it to end, and wait for that; jobs go on."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(PATIENCE_S)
        if code != 0:
            raise SoakError(f"the scheduler ended with {code} when it was asked to end")

    def clear(self) -> None:
        """End it and all that it has started, at once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        while left := remains(self._folder):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def memory_bytes(self) -> int:
        """Return how much memory it has resident; nothing if it has been killed."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        """Return how many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def remains(folder: Path) -> list[int]:
    """Return the processes that were started for this folder: all have its name somewhere."""
    found, name = [], os.fsencode(folder)
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            told = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            if name in told and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


def kill_shim(folder: Path) -> bool:
    """Kill the shim of an attempt's folder if it has begun; tell whether it was there to kill."""
    try:
        pid = int((folder / "lock").read_bytes())
        process = os.pidfd_open(pid)
    except (OSError, ValueError):
        return False
    try:
        if os.fsencode(folder) not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(process)
    return True
