"""A feed of changes for API clients; a subscriber that falls too far behind is dropped."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

import msgspec

MAX_BACKLOG_BYTES = 2**20
"""Unread bytes at which a subscriber is dropped."""
MAX_SUBSCRIBERS = 100


class Subscription:
    """One subscriber's queue of server-sent events; the subscriber may have another loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[bytes] = deque()
        # Each is changed by one thread only.
        self._added_bytes = self._taken_bytes = 0
        self._available = asyncio.Event()
        self.dropped = asyncio.Event()
        """Set once the subscription has ended."""

    def add(self, event: bytes) -> bool:
        """Queue an event; return False if the subscriber is too far behind."""
        self._events.append(event)
        self._added_bytes += len(event)
        self._tell(self._available)
        return self._added_bytes - self._taken_bytes <= MAX_BACKLOG_BYTES

    def drop(self) -> None:
        """End the subscription."""
        self._tell(self.dropped)

    async def next(self) -> bytes:
        """Return the next event, waiting for it if necessary; for the subscriber."""
        while not self._events:
            self._available.clear()
            if not self._events:
                await self._available.wait()
        event = self._events.popleft()
        self._taken_bytes += len(event)
        return event

    def _tell(self, event: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # The subscriber's loop is closed.
            self._loop.call_soon_threadsafe(event.set)


def encode_event(kind: str, data: bytes) -> bytes:
    """Return a server-sent event with one line of data."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


class ChangeFeed:
    """Publishes changes to all subscribers without ever waiting for one of them."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self.published = 0
        """Changes so far, whether or not there are subscribers."""

    def subscribe(self, loop: asyncio.AbstractEventLoop) -> Subscription | None:
        """Return a new subscription for a subscriber in a loop, or None if there are too many."""
        if len(self._subscriptions) >= MAX_SUBSCRIBERS:
            return None
        subscription = Subscription(loop)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        self._subscriptions.discard(subscription)
        subscription.drop()

    def __bool__(self) -> bool:
        """Whether there are subscribers."""
        return bool(self._subscriptions)

    def publish(self, kind: str, value: object) -> None:
        """Send the new value of something to all subscribers."""
        self.published += 1
        if self:
            self.send(encode_event(kind, msgspec.json.encode(value)))

    def send(self, event: bytes) -> None:
        """Send an encoded event to all subscribers."""
        for subscription in list(self._subscriptions):
            if not subscription.add(event):
                self.unsubscribe(subscription)

    def close(self) -> None:
        """End all subscriptions."""
        for subscription in list(self._subscriptions):
            self.unsubscribe(subscription)
