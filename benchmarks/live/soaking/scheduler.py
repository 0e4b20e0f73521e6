"""The scheduler process of the soak, and the processes it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from scheduler_process import responding

from headway.live.api.client import Client

TIMEOUT_S = 60.0
NODES, SLOTS = 4, 4
DISK_MB = 512
_SETTINGS = f"""[serve]
folder = "state"
api_port = 0
policy = "spread+srsf:1"
lease_s = 1
end_stuck_after_s = 2

[executor]
kind = "local"
nodes = {NODES}
slots = {SLOTS}
memory_mb = 1024
"""


class SoakError(Exception):
    """The soak cannot continue: something happened that must not."""


class SchedulerProcess:
    """`headway serve` on a folder of its own, killed and restarted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.state = folder / "state"
        self._config = folder / "serve.toml"
        self._config.write_text(_SETTINGS)
        self.log = folder / "log"
        self.lives = self.kills = 0
        self.killed = False
        self.lost_database = self.small_disk = False
        self._timer: threading.Timer | None = None
        self.client: Client
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def gone(self) -> bool:
        """Whether it is not running; raise SoakError if it ended without being killed."""
        if self._process is None:
            return True
        code = self._process.poll()
        if code is not None and not self.killed:
            raise SoakError(f"the scheduler exited by itself, with code {code}")
        return code is not None

    def start(self, kill_after_s: float | None = None) -> bool:
        """Start it and wait until it responds; return False if it was killed before."""
        self.killed = False
        options = ["--adopt"] * self.lost_database
        self.lost_database = False
        with self.log.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headway", "serve", "--config", str(self._config), *options],
                stderr=stream,
                # Policies as plain Python start at once and decide the same.
                env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
                # Ctrl-C goes to the soak, which then stops it.
                start_new_session=True,
            )
        self.lives += 1
        if kill_after_s is not None:
            self.kill_in(kill_after_s)
        end_s = time.monotonic() + TIMEOUT_S
        while not self._responds():
            if self.gone:
                return False
            if time.monotonic() > end_s:
                raise SoakError("the scheduler does not respond")
            time.sleep(0.02)
        return True

    def _responds(self) -> bool:
        if (client := responding(self.state)) is None:
            return False
        self.client = client
        return True

    def kill_in(self, delay_s: float) -> None:
        """Kill it after a delay, whatever it is doing then."""

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
        """Wait until a scheduled kill has happened."""
        if self._timer is not None:
            self._timer.join()
        if self.killed and self._process is not None:
            self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM and wait until it has exited; jobs keep running."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(TIMEOUT_S)
        if code != 0:
            raise SoakError(f"the scheduler exited with code {code} after SIGTERM")

    def lose_database(self) -> None:
        """Delete the database of a scheduler that is stopped; the next one rebuilds its jobs."""
        for path in self.state.glob("state.db*"):
            path.unlink()
        self.lost_database = True

    def use_small_disk(self) -> None:
        """Put the state folder on a disk of its own, if that is possible."""
        self.state.mkdir(mode=0o700)
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "tmpfs"]
        done = subprocess.run([*words, str(self.state)], check=False, capture_output=True)
        self.small_disk = done.returncode == 0

    def fill_disk(self, duration_s: float) -> None:
        """Fill the disk for a while; jobs continue."""
        large = self.state / "large"
        with contextlib.suppress(OSError), large.open("wb", buffering=0) as stream:
            while stream.write(bytes(2**16)):
                pass
        time.sleep(duration_s)
        large.unlink()

    def unmount(self, keep: bool = False) -> None:
        """Remove the small disk, or with `keep` replace it by a folder with the same files."""
        if not self.small_disk:
            return
        if keep:
            subprocess.run(["cp", "-a", self.state, self._folder / "kept"], check=True)
        subprocess.run(["umount", "-l", self.state], check=True)
        if keep:
            (self._folder / "kept").rename(self.state)
        self.small_disk = False

    def clear(self) -> None:
        """Kill it and everything it has started."""
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        while left := leftover_processes(self._folder):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def memory_bytes(self) -> int:
        """Return its resident memory; 0 if it has been killed."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        """Return the number of its open files and sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def leftover_processes(folder: Path) -> list[int]:
    """Return the processes whose command line or environment mentions this folder."""
    found, name = [], os.fsencode(folder)
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            if name in text and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


def kill_shim(folder: Path) -> bool:
    """Kill the shim of an attempt's folder; return whether it was running."""
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
