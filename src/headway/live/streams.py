"""Answers that go on: what a job prints, and changes as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from fastapi import Response
from starlette.types import Receive, Scope, Send

from headway.live.daemon import Daemon
from headway.live.executors import Attempt
from headway.live.hub import Hub, Listener

CHUNK_BYTES = 64 * 1024
POLL_S = 0.2
SILENCE_S = 15.0
"""How long a stream of changes may be silent before it says that it is still there."""


async def log_of(daemon: Daemon, job: str, rank: int, follow: bool) -> AsyncIterator[bytes]:
    """Return what a rank of a job's latest attempt printed; with `follow` until the job is over."""
    number = daemon.record(job).attempts
    reader = Reader(daemon.executor.log(Attempt(job, number), rank))
    try:
        while True:
            record = daemon.record(job)  # before reading, so that all that was printed is read
            if data := await asyncio.to_thread(reader.read):
                yield data
            elif record.attempts > number:
                number += 1
                reader.close()
                reader = Reader(daemon.executor.log(Attempt(job, number), rank))
            elif not follow or record.finished:
                return
            else:
                await asyncio.sleep(POLL_S)
    finally:
        reader.close()


class Reader:
    """Reads a log as it grows, from its beginning: what is in `NAME.1`, then what is in `NAME`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: list[BinaryIO] = []
        self._begun = False

    def read(self) -> bytes:
        """Return what comes next, or nothing if that is all so far."""
        if not self._begun:
            self._begun = self._open(self._path.with_name(f"{self._path.name}.1"))
            self._begun |= self._open(self._path)
        while self._files:
            if data := self._files[0].read(CHUNK_BYTES):
                return data
            if len(self._files) == 1 and (self._is_current() or not self._open(self._path)):
                break
            self._files.pop(0).close()
        return b""

    def close(self) -> None:
        """Close all files."""
        while self._files:
            self._files.pop().close()

    def _open(self, path: Path) -> bool:
        try:
            self._files.append(path.open("rb"))
        except OSError:
            return False
        return True

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._files[0].fileno()), self._path.stat())
        except OSError:
            return True


class ChangeStream(Response):
    """Server-sent events, until the reader goes or falls too far behind."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, listener: Listener) -> None:
        super().__init__(headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._hub, self._listener = hub, listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until one of three ends: the reader's, the listener's, the server's."""
        await send(
            {"type": "http.response.start", "status": 200, "headers": self.raw_headers},
        )
        ends = [
            asyncio.ensure_future(self._send(send)),
            asyncio.ensure_future(_gone(receive)),
            asyncio.ensure_future(self._listener.lost.wait()),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hub.leave(self._listener)
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        event = b": changes follow\n\n"
        while True:
            await send({"type": "http.response.body", "body": event, "more_body": True})
            event = b": still here\n\n"
            with contextlib.suppress(TimeoutError):
                event = await asyncio.wait_for(self._listener.next(), SILENCE_S)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
