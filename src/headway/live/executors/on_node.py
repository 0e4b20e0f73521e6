"""What Headway does on a node itself, beside the shim: with the standard library alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headway.live.executors.ports import first_free
from headway.live.executors.shim import LEASH, RESERVED_BYTES
from headway.live.executors.tail import Tail
from headway.ray_session import interface_of

PYTHON = (sys.executable, "-I", "-S")
"""A Python without anything installed: a shim needs none of it, and starts the sooner."""

SHIM_LOST = (137, "its shim was killed")
"""Code and reason of an attempt whose shim cannot say them any more."""

OVERDUE_S = 5.0
"""How long after the grace a shim that was asked to end may still be there."""

CERTIFICATE_VARIABLE = "HEADWAY_GATE_CERT"
"""Names the file of the certificate that a worker trusts."""

FOLDER_VARIABLE = "HEADWAY_ATTEMPT_FOLDER"
"""Tells the processes of an attempt, and their children, from all others."""

_LOOK_BYTES = 1 << 22
_POLL_S = 0.02


def prepare(folder: Path, plan: dict[str, Any]) -> None:
    """Write what a shim is to do, and reserve room for its last word: the disk may be full then."""
    (folder / "ended.part").write_bytes(b" " * RESERVED_BYTES)
    (folder / "plan.json").write_text(json.dumps(plan))


def ended(folder: Path) -> tuple[int, str] | None:
    """Return the exit code of an attempt and the reason, unless it has not ended by itself."""
    try:
        told = json.loads((folder / "ended.json").read_bytes())
        return int(told["code"]), str(told["reason"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def gpu_memories_bytes() -> list[int]:
    """Return the memory of each GPU of this machine, as nvidia-smi numbers them."""
    words = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
        return [int(line) * 2**20 for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def end_remains(folder: Path) -> None:
    """Kill every process of the attempt with this folder, until none is left."""
    deadline_s = time.monotonic() + OVERDUE_S
    wanted = f"{FOLDER_VARIABLE}={folder}".encode()
    while time.monotonic() < deadline_s:
        found = False
        for path in Path("/proc").glob("[0-9]*/environ"):
            # Those of others cannot be read, and are none of ours.
            with contextlib.suppress(OSError):
                process = os.pidfd_open(int(path.parent.name))
                try:
                    if wanted in path.read_bytes().split(b"\0"):
                        found = True
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                finally:
                    os.close(process)
        if not found:
            return
        time.sleep(_POLL_S)


class Keeper:
    """One node's share of an attempt on Ray: an actor that keeps the shim on a leash.

    The shim and its ranks end when the actor does, however that ends.
    """

    def __init__(self, source: str, address: str) -> None:
        self._address = address
        self._folder = Path(tempfile.mkdtemp(prefix="headway-"))
        (self._folder / "shim.py").write_text(source)
        self._shim: subprocess.Popen[bytes] | None = None
        self._given_up = False
        self._ranks: list[int] = []
        self._tails: dict[int, Tail] = {}
        self._answers = 0
        self._output: dict[int, bytes] = {}
        self._port = 0
        self._kill_at_s = float("inf")

    def first_free(self, ports: list[int]) -> int:
        """Return a port that is free on this node."""
        return first_free(self._address, ports)

    def start(self, plan: dict[str, Any], certificate: str = "") -> None:
        """Start the ranks of this node; the second time, or when it was given up, nothing."""
        if self._shim is not None or self._given_up:
            return
        interface = interface_of(self._address)
        if interface is not None:
            # The network that Ray uses, whatever the node's name stands for.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        os.environ[FOLDER_VARIABLE] = str(self._folder)
        if certificate:
            path = self._folder / "gate.pem"
            path.touch(0o600)
            path.write_text(certificate)
            for one in plan["ranks"]:
                one["environment"][CERTIFICATE_VARIABLE] = str(path)
        self._port = plan["port"]
        prepare(self._folder, plan)
        self._ranks = [one["rank"] for one in plan["ranks"]]
        # This node's Python; what stands in the module is the scheduler's.
        words = [sys.executable, *PYTHON[1:], str(self._folder / "shim.py"), str(self._folder)]
        # SIGTERM waits until the shim can take it.
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
        """Ask the shim to end everything; one that does not is killed."""
        if self._shim is not None and self._shim.poll() is None:
            self._shim.send_signal(signal.SIGTERM)
            self._kill_at_s = min(self._kill_at_s, time.monotonic() + grace_s + OVERDUE_S)

    def look(self, kept: int) -> dict[str, Any]:
        """Return whether it was started, what ranks have printed since, and at last how it ended.

        `kept` is the number of the latest answer that the scheduler has kept, 0 if none: an answer
        that was lost on the way is given again, and a new scheduler gets all that is left.

        Schedulers look when they have started it. One that finds it not started has taken over from
        one that was killed before, whose word may still be on its way: it counts no more.
        """
        self._given_up = self._shim is None
        verdict = None
        if self._shim is not None and self._shim.poll() is not None:
            verdict = ended(self._folder)
            if verdict is None:
                end_remains(self._folder)
                verdict = SHIM_LOST
        elif self._shim is not None and time.monotonic() > self._kill_at_s:
            self._shim.kill()
        if kept == 0:
            self._begin_output()
        if kept == self._answers:
            self._output = {rank: tail.read(_LOOK_BYTES) for rank, tail in self._tails.items()}
            self._answers += 1
        else:
            verdict = None
        if any(len(data) == _LOOK_BYTES for data in self._output.values()):
            verdict = None
        return {
            "number": self._answers,
            "port": self._port,
            "started": self._shim is not None,
            "ended": verdict,
            "output": self._output,
        }

    def leave(self) -> None:
        """Let go of the leash, and remove what is on the node."""
        if self._shim is not None and self._shim.stdin is not None:
            self._shim.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _begin_output(self) -> None:
        for tail in self._tails.values():
            tail.close()
        self._tails = {rank: Tail(self._folder / f"rank-{rank}.log") for rank in self._ranks}
        self._answers = 0
