"""The HTTP API as an ASGI app; every request needs the scheduler's token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.gate import tokens
from headway.live.api.cluster_routes import add_cluster_routes
from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.errors import add_error_handlers, error_responses
from headway.live.api.job_routes import add_job_routes
from headway.live.api.responses import JsonResponse
from headway.live.daemon.daemon import Daemon
from headway.version import __version__

CORE_SHARE = 0.2
"""How much of a core the API uses on average while its clients keep it busy."""
BURST_S = 0.5
"""How much it may use at once."""
MAX_WAIT_S = 0.05
"""How long a request waits at the head of the queue, at most."""


def make_app(daemon: Daemon, token: str, settings: Mapping[str, Any]) -> ASGIApp:
    """Return a scheduler's API, which may run in another loop than the caller's.

    `GET /v1/status` includes these settings.
    """
    app = FastAPI(
        title="Headway",
        version=__version__,
        summary="A scheduler for distributed training jobs that share a network.",
        responses=error_responses(400, 401, 404, 500),
        # A redirect would go to whatever host the request names.
        redirect_slashes=False,
    )
    add_error_handlers(app)
    calls = DaemonCalls()
    add_job_routes(app, daemon, calls)
    add_cluster_routes(app, daemon, calls, settings)
    return _Paced(_TokenGuard(app, token))


class _Paced:
    """Lets requests wait once the API has used more than its share of a core.

    It runs in the process that grants messages, in another thread: what it uses, grants wait for.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._queue = asyncio.Lock()
        self._used_s = self._at_s = self._debt_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._queue:
            await asyncio.sleep(self._wait_s())
        await self._app(scope, receive, send)

    def _wait_s(self) -> float:
        """Return how long the next request waits; not for ever, whatever others have used."""
        used_s, now_s = time.thread_time(), time.monotonic()
        debt_s = self._debt_s + used_s - self._used_s - (now_s - self._at_s) * CORE_SHARE
        self._used_s, self._at_s = used_s, now_s
        self._debt_s = min(max(debt_s, -BURST_S), CORE_SHARE * MAX_WAIT_S)
        return max(0.0, self._debt_s / CORE_SHARE)


class _TokenGuard:
    """Answers 401 to every request without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        header = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        scheme, _, value = header.partition(" ")
        if scheme.lower() == "bearer" and tokens.same(value.strip(), self._token):
            await self._app(scope, receive, send)
            return
        problem = "the token is wrong." if header else "a token is required."
        headers = {"www-authenticate": "Bearer", "connection": "close"}
        await JsonResponse({"error": problem}, 401, headers)(scope, receive, send)
