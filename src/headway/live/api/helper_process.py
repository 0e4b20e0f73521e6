"""Helper processes of the API: each answers one request, a line of JSON, at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, TypeVar

from headway.domain.errors import MachineError

Answer = TypeVar("Answer")


class HelperProcess:
    """A running process; it ends with its standard input, so at the latest with the scheduler."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._used_s = 0.0

    @classmethod
    async def run(cls, *command: str, line_bytes: int) -> Self:
        """Start a process whose lines have at most this length, or raise MachineError."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=line_bytes,
                # Ctrl-C is for the scheduler. In a session of its own an executor would take it for
                # what is left of a job.
                process_group=0,
            )
        except OSError as error:
            raise MachineError(f"cannot be started: {error.strerror or error}") from None
        return cls(process)

    async def converse(
        self,
        request: bytes,
        read: Callable[[asyncio.StreamReader], Awaitable[Answer]],
        timeout_s: float,
    ) -> Answer:
        """Send a request and return the answer that `read` takes from the process's output.

        Raises:
            MachineError: It has ended, or does not answer. It is of no more use.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                # If it has ended already, reading its output says so.
                with contextlib.suppress(ConnectionError):
                    stdin.write(request + b"\n")
                    await stdin.drain()
                return await read(stdout)
        except EOFError:
            raise MachineError(f"ended with code {await self._process.wait()}") from None
        except TimeoutError:
            raise MachineError(f"did not answer within {timeout_s:g} s") from None
        except (OSError, ValueError) as error:
            raise MachineError(f"failed: {error}") from None

    def spent_s(self, total_s: float) -> float:
        """Return the CPU time since the last call, given the process's total."""
        spent_s, self._used_s = total_s - self._used_s, total_s
        return spent_s

    def cpu_s(self) -> float | None:
        """Return the CPU time that it has used so far; None if it has ended."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return None
        # Its own and that of its children, after the name, which may have spaces and brackets.
        ticks = stat.rpartition(")")[2].split()[11:15]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    async def close(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


async def whole_line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or raise EOFError."""
    line = await stream.readline()
    if not line:
        raise EOFError
    return line
