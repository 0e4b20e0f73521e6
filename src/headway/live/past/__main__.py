"""A process that reads the event log of a running scheduler, and answers what happened when.

It reads requests from standard input, a line of JSON each, and answers on standard output: a line
of JSON, then as many bytes as this says. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from headway.domain.errors import InputError
from headway.live.past.log import LogReader
from headway.live.past.requests import PastAnswer, PastRequest
from headway.live.past.stretch import stretch

MAX_ROWS = 2_000_000
"""Messages, and reports of iterations, that are kept: the latest."""
MAX_BYTES = 2**30
"""Memory, beyond which the process fails: a log that needs more has no past to show."""
WRITTEN_NS = 1_000_000_000
"""Events that are older are in the log."""
NICENESS = 19


class PastReader:
    """Answers requests about one log, read again as far as it has grown."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._reader: LogReader | None = None

    @property
    def damage(self) -> list[str]:
        """What is wrong with the runs that are left out."""
        return [] if self._reader is None else self._reader.damage

    def answer(self, request: PastRequest) -> bytes:
        """Return a stretch of the past."""
        if self._reader is None:
            self._reader = LogReader(
                self._log,
                most_rows=MAX_ROWS,
                present_ahead_ns=request.ahead_ns,
                skip_damage=True,
            )
        reader = self._reader
        try:
            reader.read()
        except InputError:
            reader.close()
            self._reader = None
            raise
        activity, ahead_ns = reader.activity, reader.ahead_ns
        until_ns = activity.now_ns - ahead_ns
        if request.log_is_written:
            until_ns = max(until_ns, request.now_ns - WRITTEN_NS)
        return stretch(activity, ahead_ns, request.from_ns, request.to_ns, until_ns)


def main(log: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    reader = PastReader(log)
    for line in requests:
        block, problem = b"", ""
        try:
            block = reader.answer(msgspec.json.decode(line, type=PastRequest))
        except InputError as error:
            problem = str(error)
        answer = PastAnswer(
            bytes=len(block),
            cpu_s=time.process_time(),
            problem=problem,
            damage=tuple(reader.damage),
        )
        answers.write(msgspec.json.encode(answer) + b"\n" + block)
        answers.flush()


if __name__ == "__main__":
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
