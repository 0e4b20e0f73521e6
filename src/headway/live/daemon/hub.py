"""Changes, told to whoever listens; one who does not keep up is let go."""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

MOST_WAITING_BYTES = 2**20
"""How far a listener may be behind."""
MOST_LISTENERS = 100


class Listener:
    """One who listens to changes, each of which is a server-sent event."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self.lost = asyncio.Event()
        """Set when the listener was let go."""

    def add(self, event: bytes) -> bool:
        """Take an event for later; False if the listener is too far behind."""
        self._waiting.append(event)
        self._bytes += len(event)
        self._news.set()
        return self._bytes <= MOST_WAITING_BYTES

    async def next(self) -> bytes:
        """Wait for the next event and return it."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        event = self._waiting.popleft()
        self._bytes -= len(event)
        return event


class Hub:
    """All listeners."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def join(self) -> Listener | None:
        """Return a new listener, or None when there are too many."""
        if len(self._listeners) >= MOST_LISTENERS:
            return None
        listener = Listener()
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Tell a listener nothing more."""
        self._listeners.discard(listener)
        listener.lost.set()

    def tell(self, kind: str, value: object) -> None:
        """Tell all listeners that a thing of some kind is now so, without waiting for any."""
        if not self._listeners:
            return
        event = b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(value))
        for listener in list(self._listeners):
            if not listener.add(event):
                self.leave(listener)

    def close(self) -> None:
        """Let all listeners go."""
        for listener in list(self._listeners):
            self.leave(listener)
