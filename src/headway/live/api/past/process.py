"""The process that reads the event log, seen from the scheduler."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from headway.live.api.helper_process import HelperProcess, whole_line
from headway.live.past.requests import PastAnswer, PastRequest

COMMAND = (sys.executable, "-P", "-m", "headway.live.past")
TIMEOUT_S = 120.0
"""A process that has not answered by then is killed."""
MAX_LINE_BYTES = 2**16
MAX_BLOCK_BYTES = 2**25


class PastProcess(HelperProcess):
    """A process that answers with stretches of the past."""

    @classmethod
    async def start(cls, log: Path) -> PastProcess:
        """Start it, or raise MachineError."""
        return await cls.run(*COMMAND, str(log), line_bytes=MAX_LINE_BYTES)

    async def ask(self, request: PastRequest) -> tuple[PastAnswer, bytes]:
        """Return the answer, with `cpu_s` of this request alone, and its block.

        Raises:
            MachineError: It has ended, or does not answer. It is of no more use.
        """
        answer, block = await self.converse(msgspec.json.encode(request), _read, TIMEOUT_S)
        return msgspec.structs.replace(answer, cpu_s=self.spent_s(answer.cpu_s)), block


async def _read(stream: asyncio.StreamReader) -> tuple[PastAnswer, bytes]:
    answer = msgspec.json.decode(await whole_line(stream), type=PastAnswer)
    if not 0 <= answer.bytes <= MAX_BLOCK_BYTES:
        raise ValueError(f"answered with {answer.bytes:,} bytes")
    return answer, await stream.readexactly(answer.bytes)
