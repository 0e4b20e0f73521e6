"""Answers that go on: what a job prints, and changes as they happen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import Response
from starlette.types import Receive, Scope, Send

from headway.live.daemon.daemon import Daemon
from headway.live.daemon.hub import Hub, Listener
from headway.live.executors import Attempt
from headway.live.executors.log_tail import LogTail

CHUNK_BYTES = 64 * 1024
POLL_S = 0.2
SILENCE_S = 15.0
"""How long a stream of changes may be silent before it says that it is still there."""


async def log_of(daemon: Daemon, job: str, rank: int, follow: bool) -> AsyncIterator[bytes]:
    """Return what a rank of a job's latest attempt printed; with `follow` until the job is over."""
    number = daemon.record(job).attempts
    reader = LogTail(daemon.executor.log(Attempt(job, number), rank))
    try:
        while True:
            record = daemon.record(job)  # before reading, so that all that was printed is read
            if data := await asyncio.to_thread(reader.read, CHUNK_BYTES):
                yield data
            elif record.attempts > number:
                number += 1
                reader.close()
                reader = LogTail(daemon.executor.log(Attempt(job, number), rank))
            elif not follow or record.finished:
                return
            else:
                await asyncio.sleep(POLL_S)
    finally:
        reader.close()


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
