"""One rank of a soak job: works, writes to the journal and dies where its plan says.

The scheduler runs `python job.py FOLDER PLAN` with a rank's environment. Rank 0 uses the gate as
`headway.torch` does; the other ranks only sleep. FOLDER holds the journal, to which every process
appends what it does (`Line` in check.py), and a file for every process, locked while it is alive.
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
COLLECTIVE_TIMEOUT_S = 20.0
FLOOD_FRAMES = 25_000
FLOOD_LINES = 40_000
JOURNAL = "journal"


class Process:
    """This process and its plan."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._job, self._attempt = os.environ["HEADWAY_JOB"], os.environ["HEADWAY_ATTEMPT"]
        self.rank = int(os.environ["RANK"])
        self._journal = os.open(folder / JOURNAL, os.O_WRONLY | os.O_APPEND)
        self._fate = plan["fates"].get(self._attempt, {})
        self._ignores_exit = False
        self.granted = 0
        if plan["stubborn"]:
            signal.signal(signal.SIGTERM, self._sigterm)
        self._lock_life(folder / "lives" / str(plan["number"]))

    def note(self, what: str, detail: object = "-") -> None:
        """Append a line to the journal, in one write."""
        number = self._plan["number"]
        line = f"{what} {number} {self._job} {self._attempt} {self.rank} {os.getpid()} "
        os.write(self._journal, f"{line}{time.monotonic_ns()} {detail}\n".encode())

    def reach(self, iteration: int, moment: str) -> None:
        """Do what the plan says for this moment of this iteration."""
        if moment == "between" and self.rank == 0 and iteration == self._plan["cancel_at"]:
            self.note("cancel")
        fate = self._fate
        if fate and fate["what"] == "stop" and fate["iteration"] == iteration:
            self._wait_for_stopped(moment)
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
        os.kill(victim, signal.SIGSTOP if fate["what"] == "stop" else signal.SIGKILL)

    def _wait_for_stopped(self, moment: str) -> None:
        """Wait for the rank that stops, as in a collective, until the collective's timeout."""
        if self.rank != self._fate["rank"] and moment == ("between" if self.rank else "sending"):
            time.sleep(COLLECTIVE_TIMEOUT_S)
            self.end(OWN_FAILURE)

    def end(self, code: int) -> None:
        """Write the exit code to the journal and exit; a stubborn process hangs after SIGTERM."""
        self.note("end", f"{code}/{self.granted}")
        while self._ignores_exit:
            time.sleep(1)
        sys.exit(code)

    def _sigterm(self, *_: object) -> None:
        self._ignores_exit = True

    def _lock_life(self, lives: Path) -> None:
        """Hold a lock while this process lives, and report locks held by other attempts."""
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
                        # Shared, because others may be checking at the same time.
                        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    except BlockingIOError:
                        self.note("overlap", path.name)


def work(process: Process, plan: dict[str, Any]) -> None:
    """Run all iterations; rank 0 requests each message."""
    session = None
    if process.rank == 0:
        from headway.worker.session import session_of

        session = session_of(0)
    if plan["floods"]:
        for number in range(FLOOD_LINES):
            print(number, "flood" * 20)
    if plan["floods"] and session is not None:
        from headway.gate.frames import Iteration

        for _ in range(FLOOD_FRAMES):
            session.client.report(Iteration(1, 0, 0, 0))
    for iteration in range(plan["iterations"]):
        process.reach(iteration, "between")
        time.sleep(plan["compute_s"])
        if session is None:
            time.sleep(plan["message_s"])
            continue
        request = session.client.message_ready(plan["message_bytes"], plan["message_bytes"])
        process.reach(iteration, "asking")
        process.granted += session.client.wait_for_grant(request)
        process.reach(iteration, "sending")
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
