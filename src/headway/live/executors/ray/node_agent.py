"""The Ray actor that runs the ranks of an attempt on one node.

It is sent to the node by value, with the modules that it imports: the standard library suffices.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headway.gate.environment import GATE_CERTIFICATE
from headway.live.executors.log_tail import LogTail
from headway.live.executors.node_tools import (
    FOLDER_VARIABLE,
    OVERDUE_S,
    PYTHON,
    SHIM_LOST,
    kill_remaining,
    read_outcome,
    write_plan,
)
from headway.live.executors.rendezvous import first_free_port
from headway.live.executors.shim import LEASH
from headway.ray_session import interface_of

_CHUNK_BYTES = 1 << 22


class NodeAgent:
    """Runs a shim, which runs the ranks; both end when the actor does, however that happens."""

    def __init__(self, shim_source: str, address: str) -> None:
        self._address = address
        self._folder = Path(tempfile.mkdtemp(prefix="headway-"))
        (self._folder / "shim.py").write_text(shim_source)
        self._shim: subprocess.Popen[bytes] | None = None
        self._abandoned = False
        self._ranks: list[int] = []
        self._tails: dict[int, LogTail] = {}
        self._reports = 0
        self._output: dict[int, bytes] = {}
        self._port = 0
        self._kill_at_s = float("inf")

    def first_free_port(self, ports: list[int]) -> int:
        """Return the first port that is free on this node."""
        return first_free_port(self._address, ports)

    def start(self, plan: dict[str, Any], certificate: str = "") -> None:
        """Start the ranks of this node; a no-op if they were started or the agent is abandoned."""
        if self._shim is not None or self._abandoned:
            return
        interface = interface_of(self._address)
        if interface is not None:
            # The network that Ray uses, whatever the node's host name resolves to.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        os.environ[FOLDER_VARIABLE] = str(self._folder)
        if certificate:
            path = self._folder / "gate.pem"
            path.touch(0o600)
            path.write_text(certificate)
            for rank_plan in plan["ranks"]:
                rank_plan["environment"][GATE_CERTIFICATE] = str(path)
        self._port = plan["port"]
        write_plan(self._folder, plan)
        self._ranks = [rank_plan["rank"] for rank_plan in plan["ranks"]]
        # This node's Python: PYTHON holds the path of the scheduler's.
        words = [sys.executable, *PYTHON[1:], str(self._folder / "shim.py"), str(self._folder)]
        # SIGTERM stays blocked until the shim has its handler.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            self._shim = subprocess.Popen(
                [*words, LEASH],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self, grace_s: float) -> None:
        """Ask the shim to end all ranks; it is killed if it takes too long."""
        if self.is_running():
            assert self._shim is not None
            self._shim.send_signal(signal.SIGTERM)
            self._kill_at_s = min(self._kill_at_s, time.monotonic() + grace_s + OVERDUE_S)

    def is_running(self) -> bool:
        """Return whether the shim runs."""
        return self._shim is not None and self._shim.poll() is None

    def report(self, received: int) -> dict[str, Any]:
        """Return whether the ranks were started, their new output, and finally the outcome.

        `received` is the number of the latest report that the scheduler has received, 0 if none: a
        report that was lost is repeated, and a new scheduler gets all output that is left.

        A scheduler asks only after it has started the ranks. One that finds them not started has
        taken over from one that was killed before; a late `start` of that one must have no effect.
        """
        self._abandoned = self._shim is None
        outcome = None
        if self._shim is not None and self._shim.poll() is not None:
            outcome = read_outcome(self._folder)
            if outcome is None:
                kill_remaining(self._folder)
                outcome = SHIM_LOST
        elif self._shim is not None and time.monotonic() > self._kill_at_s:
            self._shim.kill()
        if received == 0:
            self._restart_output()
        if received == self._reports:
            self._output = {rank: tail.read(_CHUNK_BYTES) for rank, tail in self._tails.items()}
            self._reports += 1
        else:
            outcome = None
        if any(len(data) == _CHUNK_BYTES for data in self._output.values()):
            outcome = None
        return {
            "number": self._reports,
            "port": self._port,
            "started": self._shim is not None,
            "outcome": outcome,
            "output": self._output,
        }

    def release(self) -> None:
        """End the shim, and remove the files on this node."""
        if self._shim is not None and self._shim.stdin is not None:
            self._shim.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _restart_output(self) -> None:
        for tail in self._tails.values():
            tail.close()
        self._tails = {rank: LogTail(self._folder / f"rank-{rank}.log") for rank in self._ranks}
        self._reports = 0
