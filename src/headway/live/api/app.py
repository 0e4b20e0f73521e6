"""The HTTP API as an ASGI app; every request needs the scheduler's token."""

from __future__ import annotations

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
    return _TokenGuard(app, token)


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
