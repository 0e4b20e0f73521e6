"""The HTTP API and the page as an ASGI app; requests need the token, or a signed-in page."""

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
from headway.live.api.forecasts.route import add_what_if_route
from headway.live.api.forecasts.service import ForecastService
from headway.live.api.job_routes import add_job_routes
from headway.live.api.page_routes import SIGN_IN, add_page_routes, page_guard
from headway.live.api.past.route import add_past_route
from headway.live.api.past.service import PastService
from headway.live.api.responses import JsonResponse
from headway.live.daemon.daemon import Daemon
from headway.version import __version__
from headway.web.guard import PageGuard, cookie, header, with_headers
from headway.web.page_files import is_page_path

CORE_SHARE = 0.2
"""How much of a core the API uses on average while its clients keep it busy."""
BURST_S = 0.5
"""How much it may use at once."""
MAX_WAIT_S = 0.05
"""How long a request waits at the head of the queue, at most."""


def make_app(
    daemon: Daemon,
    token: str,
    settings: Mapping[str, Any],
    calls: DaemonCalls,
    forecasts: ForecastService,
    past: PastService,
) -> ASGIApp:
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
    add_job_routes(app, daemon, calls)
    add_cluster_routes(app, daemon, calls, settings)
    add_what_if_route(app, forecasts)
    add_past_route(app, past)
    page = page_guard(daemon, token)
    add_page_routes(app, daemon, calls, page)
    return _Paced(_Guard(app, page, token))


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


class _Guard:
    """Hands on requests with the token, and those of a signed-in page that are for pages."""

    def __init__(self, app: ASGIApp, page: PageGuard, token: str) -> None:
        self._app, self._page, self._token = app, page, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        given = header(scope, "authorization")
        if not given and is_page_path(scope["path"]):
            await self._page(scope, receive, send)
        elif not given and cookie(scope) and _is_for_pages(scope["path"]):
            refusal = self._page.refusal(scope)
            app = self._app if refusal is None else _error(refusal.why, refusal.status)
            await app(scope, receive, with_headers(send))
        else:
            await (self._refusal(given) or self._app)(scope, receive, send)

    def _refusal(self, given: str) -> ASGIApp | None:
        scheme, _, value = given.partition(" ")
        if scheme.lower() == "bearer" and tokens.same(value.strip(), self._token):
            return None
        return _error("the token is wrong." if given else "a token is required.", 401)


def _is_for_pages(path: str) -> bool:
    """Return whether a path of the API is open to pages; these cannot sign in others."""
    return path == "/metrics" or (path.startswith("/v1/") and path != SIGN_IN)


def _error(problem: str, status: int) -> ASGIApp:
    headers = {"connection": "close"}  # Idle connections of strangers are not kept.
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JsonResponse({"error": problem}, status, headers)
