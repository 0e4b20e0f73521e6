"""Responses that continue: a job's output, and changes as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from fastapi import Response
from starlette.types import Receive, Scope, Send

from headway.live.daemon.change_feed import ChangeFeed, Subscription
from headway.live.daemon.daemon import Daemon
from headway.live.executors import Attempt
from headway.live.executors.log_tail import LogTail

CHUNK_BYTES = 64 * 1024
POLL_S = 0.2
MAX_READERS = 8
"""Threads that read logs."""
KEEP_ALIVE_S = 15.0
"""How long a stream of changes may be silent before a comment is sent."""


@functools.cache
def _readers() -> ThreadPoolExecutor:
    """Return the threads that read logs: a slow disk must not block other work in threads."""
    return ThreadPoolExecutor(MAX_READERS, "log reader")


async def stream_log(
    daemon: Daemon, job_id: str, rank: int, follow: bool, attempt: int | None = None
) -> AsyncIterator[bytes]:
    """Yield a rank's output of one attempt, or from the latest on; with `follow`, until the end."""
    loop = asyncio.get_running_loop()
    number = attempt or daemon.registry[job_id].attempts
    reader = LogTail(daemon.executor.log(Attempt(job_id, number), rank))
    try:
        while True:
            record = daemon.registry[job_id]  # before reading, so that no output is missed
            if data := await loop.run_in_executor(_readers(), reader.read, CHUNK_BYTES):
                yield data
            elif attempt is not None and record.attempts > number:
                return
            elif record.attempts > number:
                number += 1
                reader.close()
                reader = LogTail(daemon.executor.log(Attempt(job_id, number), rank))
            elif not follow or record.finished:
                return
            else:
                await asyncio.sleep(POLL_S)
    finally:
        reader.close()


class ChangeStream(Response):
    """Server-sent events, until the client disconnects or falls too far behind."""

    media_type = "text/event-stream"

    def __init__(
        self, feed: ChangeFeed, subscription: Subscription, first: bytes = b": changes follow\n\n"
    ) -> None:
        super().__init__(headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._feed, self._subscription, self._first = feed, subscription, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects, the subscription ends or sending fails."""
        await send(
            {"type": "http.response.start", "status": 200, "headers": self.raw_headers},
        )
        tasks = [
            asyncio.ensure_future(self._send_events(send)),
            asyncio.ensure_future(_disconnected(receive)),
            asyncio.ensure_future(self._subscription.dropped.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.unsubscribe(self._subscription)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_events(self, send: Send) -> None:
        event = self._first
        while True:
            await send({"type": "http.response.body", "body": event, "more_body": True})
            event = b": still here\n\n"
            with contextlib.suppress(TimeoutError):
                # `wait_for` would lose a cancellation that comes with the event.
                async with asyncio.timeout(KEEP_ALIVE_S):
                    event = await self._subscription.next()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
