"""The forecasting process, seen from the scheduler."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from headway.live.api.helper_process import HelperProcess, whole_line
from headway.live.core.forecast import Answer

COMMAND = (sys.executable, "-P", "-m", "headway.experiments.forecaster")
"""A module above the scheduler in the layers of the code, so it is run and not imported."""
TIMEOUT_S = 300.0
"""A process that has not answered by then is killed."""
MAX_ANSWER_BYTES = 2**26


class ForecastProcess(HelperProcess):
    """A process that answers with forecasts."""

    @classmethod
    async def start(cls) -> ForecastProcess:
        """Start it, or raise MachineError."""
        return await cls.run(*COMMAND, line_bytes=MAX_ANSWER_BYTES)

    async def ask(self, request: bytes) -> Answer:
        """Send a request, a line of JSON, and return the answer; `cpu_s` is what it has cost.

        Raises:
            MachineError: It has ended, or does not answer. It is of no more use.
        """
        answer = await self.converse(request, _read, TIMEOUT_S)
        answer.cpu_s = self.spent_s(answer.cpu_s)
        return answer


async def _read(stream: asyncio.StreamReader) -> Answer:
    return msgspec.json.decode(await whole_line(stream), type=Answer)
