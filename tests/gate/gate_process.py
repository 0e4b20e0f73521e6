"""A gate in a process of its own, which a test can kill; it prints the calls of its handler.

    python gate_process.py PATH [--grants N]

grants the first N requests (all, by default) and holds the others.
"""

from __future__ import annotations

import argparse
import asyncio

from gate.threaded_gate import SECRET, Recorder
from headway.gate.address import GateAddress
from headway.gate.server import Gate


class Printer(Recorder):
    """Prints every call, and grants only the first requests."""

    def __init__(self, grants: int) -> None:
        super().__init__()
        self._left = grants

    def message_ready(
        self, job_id: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        self._left -= 1
        self.holding = self._left < 0
        print("held" if self.holding else "granted", request, message_bytes, flush=True)
        super().message_ready(job_id, attempt, request, message_bytes, unsent_bytes)

    def worker_attached(self, job_id: str, attempt: int, rank: int) -> None:
        print("attached", job_id, attempt, flush=True)

    def worker_lost(self, job_id: str, attempt: int, rank: int, hung: bool) -> None:
        print("lost", job_id, attempt, flush=True)

    def iteration_done(self, job_id: str, attempt: int, iterations: int, *times: int) -> None:
        print("iteration", iterations, *times, flush=True)


async def serve(path: str, grants: int) -> None:
    printer = Printer(grants)
    printer.gate = Gate(printer, SECRET)
    await printer.gate.start(GateAddress(path=path))
    print("listening", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--grants", type=int, default=10**9)
    given = parser.parse_args()
    asyncio.run(serve(given.path, given.grants))
