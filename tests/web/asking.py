"""Requests to ASGI apps without a server."""

from __future__ import annotations

import asyncio
from typing import Any

HOST = "127.0.0.1:4321"


class Answer:
    """An answer of an ASGI app."""

    def __init__(self, messages: list[Any]) -> None:
        self.status = messages[0]["status"]
        self.headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in messages[1:])

    @property
    def cookie(self) -> str:
        """The cookie that it sets, after a check that nothing else can read or send it."""
        value, *flags = self.headers["set-cookie"].split("; ")
        assert {flag.lower() for flag in flags} >= {"httponly", "samesite=strict", "path=/"}
        return str(value)


def make_scope(
    target: str, host: str = HOST, method: str = "GET", scheme: str = "http", **headers: str
) -> dict[str, Any]:
    """Return the scope of a request."""
    path, _, query = target.partition("?")
    given = {"host": host} | headers
    return {
        "type": "http",
        "method": method,
        "scheme": scheme,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
    }


async def ask_async(app: Any, target: str, **values: str) -> Answer:
    """Send a request without a body, and return the answer."""
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(make_scope(target, **values), receive, send)
    return Answer(messages)


def ask(app: Any, target: str, **values: str) -> Answer:
    """Do as `ask_async`, in a loop of its own."""
    return asyncio.run(ask_async(app, target, **values))
