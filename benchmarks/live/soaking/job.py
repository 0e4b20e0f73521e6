"""One process of a job of the soak: works, notes that in the ledger, dies where its plan says.

python job.py FOLDER PLAN, started by the scheduler with a rank's variables. Rank 0 asks the
gate as `headway.torch` does; the others only take their time. FOLDER holds the ledger, with a line
for whatever a process does (`Line` in check.py), and a file for every process, which that locks as
long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

OWN_FAILURE = 3
LEDGER = "ledger"


class Process:
    """This process's place in the soak."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._job, self._attempt = os.environ["HEADWAY_JOB"], os.environ["HEADWAY_ATTEMPT"]
        self.rank = int(os.environ["RANK"])
        self._ledger = os.open(folder / LEDGER, os.O_WRONLY | os.O_APPEND)
        self._fate = plan["fates"].get(self._attempt, {})
        self._unending = False
        self.granted = 0
        if plan["stubborn"]:
            signal.signal(signal.SIGTERM, self._stay)
        self._be_seen(folder / "lives" / str(plan["number"]))

    def note(self, what: str, detail: object = "-") -> None:
        """Append a line to the ledger, in one write."""
        number = self._plan["number"]
        line = f"{what} {number} {self._job} {self._attempt} {self.rank} {os.getpid()} "
        os.write(self._ledger, f"{line}{time.monotonic_ns()} {detail}\n".encode())

    def pass_by(self, iteration: int, moment: str) -> None:
        """Do what the plan has for this moment of this iteration."""
        if moment == "between" and self.rank == 0 and iteration == self._plan["cancel_at"]:
            self.note("cancel")
        fate = self._fate
        if not fate or (fate["rank"], fate["iteration"]) != (self.rank, iteration):
            return
        if self.rank == 0 and fate["moment"] != moment:
            return
        if fate["what"] == "exit":
            self.end(OWN_FAILURE)
        victim = os.getpid()
        if fate["what"] == "shim":
            victim = os.getppid()
            if b"shim.py" not in Path(f"/proc/{victim}/cmdline").read_bytes():
                return
        self.note(f"kill-{fate['what']}", moment)
        os.kill(victim, signal.SIGKILL)

    def end(self, code: int) -> None:
        """Say how this went, and end; a process that was asked to end and is stubborn does not."""
        self.note("end", f"{code}/{self.granted}")
        while self._unending:
            time.sleep(1)
        sys.exit(code)

    def _stay(self, *_: object) -> None:
        self._unending = True

    def _be_seen(self, lives: Path) -> None:
        """Hold a lock as long as this process lives, and tell whether another attempt's is held."""
        lives.mkdir(exist_ok=True)
        mine = f"{self._attempt}.{self.rank}"
        self._lock = os.open(lives / mine, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.note("overlap", mine)
        for path in lives.iterdir():
            if path.name.partition(".")[0] != self._attempt:
                with contextlib.closing(path.open()) as other:
                    try:
                        # Shared: others may be looking at the same time.
                        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    except BlockingIOError:
                        self.note("overlap", path.name)


def work(process: Process, plan: dict[str, Any]) -> None:
    """Do all iterations; rank 0 asks before each message."""
    session = None
    if process.rank == 0:
        from headway.worker.session import session_of

        session = session_of(0)
    for iteration in range(plan["iterations"]):
        process.pass_by(iteration, "between")
        time.sleep(plan["compute_s"])
        if session is None:
            time.sleep(plan["message_s"])
            continue
        request = session.client.message_ready(plan["message_bytes"], plan["message_bytes"])
        process.pass_by(iteration, "asking")
        process.granted += session.client.wait_for_grant(request)
        process.pass_by(iteration, "sending")
        time.sleep(plan["message_s"])
        session.client.message_done(request)
        session.iteration_done(int(plan["compute_s"] * 1e9), 1, plan["message_bytes"])


def main() -> None:
    plan = json.loads(sys.argv[2])
    process = Process(Path(sys.argv[1]), plan)
    process.note("start")
    work(process, plan)
    process.end(0)


if __name__ == "__main__":
    main()
