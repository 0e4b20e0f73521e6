"""Ray on the hosts of a testbed."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import testbed as testbeds
from live.executors.executor_process import ExecutorProcess
from live.executors.helpers import processes_with

ADDRESS = "10.77.0.1:6400"
ONE, TWO = "10.77.0.1", "10.77.0.2"


class RayOnTestbed:
    """Ray on the hosts of a testbed."""

    def __init__(self, bed: testbeds.Testbed, folder: str) -> None:
        token = Path(folder, "token")
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        self.bed, self._folder = bed, folder
        self._environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "TMPDIR": folder,
        }
        self.nodes: dict[int, subprocess.Popen[str]] = {}

    def start(self, host: int) -> None:
        """Start a Ray node on a host; host 1 is the head."""
        head = ["--head", "--port", "6400", "--include-dashboard", "false"]
        joins = ["--address", ADDRESS, "--num-gpus", "3"]  # Claimed: it has none.
        words = [*head, "--temp-dir", self._folder] if host == 1 else joins
        line = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", *words),
            *("--node-ip-address", self.bed.address(host), "--num-cpus", "2"),
            *("--object-store-memory", str(80 * 2**20), "--block"),
        ]
        node = self.nodes[host] = subprocess.Popen(
            testbeds.command(self.bed, host, line),
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,  # A local executor kills children in other sessions.
        )
        assert node.stdout is not None
        said = []
        for text in node.stdout:
            said.append(text)
            if "--block" in text:
                return
        pytest.fail("".join(said))

    def kill(self, host: int) -> None:
        """Lose a node as by a power cut: kill all processes on its host."""
        # Also those that were about to start; some end before they are killed.
        while inside := self._inside(host):
            for pid in inside:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.nodes.pop(host).communicate(timeout=60)

    def end(self) -> None:
        """End all nodes."""
        for node in self.nodes.values():
            node.send_signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.communicate(timeout=60)

    def processes_with(self, word: str) -> list[int]:
        """Return the processes of this cluster that have a word among their arguments."""
        inside = {pid for host in self.bed.numbers for pid in self._inside(host)}
        return [pid for pid in processes_with(word) if pid in inside]

    def _inside(self, host: int) -> list[int]:
        words = ["ip", "netns", "pids", self.bed.namespace(host)]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in out.split()]

    def left(self) -> list[Path]:
        """Return the files that agents have left on the nodes."""
        return list(Path(self._folder).glob("headway-*/shim.py"))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a `headway` command on host 1."""
        line = testbeds.command(self.bed, 1, [sys.executable, "-m", "headway", *words])
        return subprocess.run(
            line,
            env=self._environment | {"NUMBA_DISABLE_JIT": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def scheduler(self, folder: Path) -> ExecutorProcess:
        """Start an executor on host 1."""
        prefix = testbeds.command(self.bed, 1, [])
        return ExecutorProcess("ray", str(folder), ADDRESS, prefix=prefix, env=self._environment)


@contextlib.contextmanager
def running_ray() -> Iterator[RayOnTestbed]:
    """Run a cluster of two nodes for the duration of a with block."""
    bed = testbeds.Testbed(f"y{os.getpid()}", hosts=2, rate_mbit=200)
    testbeds.up(bed)
    try:
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
            made = RayOnTestbed(bed, folder)
            try:
                made.start(1)
                made.start(2)
                yield made
            finally:
                made.end()
    finally:
        testbeds.down(bed.name)
