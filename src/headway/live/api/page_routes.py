"""The page of a live scheduler: signing in and out, and the stream of what it shows."""

from __future__ import annotations

import msgspec
from fastapi import FastAPI, Request, Response

from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.errors import ApiError, error_responses
from headway.live.api.live_pages import LivePages
from headway.live.api.responses import JsonResponse
from headway.live.api.streams import ChangeStream
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.state_store import ENDED_SESSIONS
from headway.web.guard import Links, PageGuard, Sessions, cookie, cookie_name, header
from headway.web.page_files import page_app

LINK_S = 60
"""How long a link can be used."""
SIGN_IN = "/v1/sign-in"


def page_guard(daemon: Daemon, token: str) -> PageGuard:
    """Return the guard around the page's files.

    Sessions are signed under the scheduler's token, so that they survive its restarts.
    """
    ended = msgspec.json.decode(daemon.store.meta.get(ENDED_SESSIONS, "{}"), type=dict[str, int])
    sessions = Sessions(token, ended)
    return PageGuard(page_app("live"), Links(LINK_S), sessions, "headway web", keep=True)


def add_page_routes(app: FastAPI, daemon: Daemon, calls: DaemonCalls, guard: PageGuard) -> None:
    """Add the routes for pages."""
    pages = LivePages(daemon)

    @app.post(SIGN_IN)
    async def _sign_in(request: Request) -> Response:
        """Return a link that opens the page, once and within a minute; pages cannot ask for it."""
        host = header(request.scope, "host")
        if not host or not host.isascii() or not host.isprintable() or set(host) & set("/?#@\\ "):
            raise ApiError(400, "the request must name the scheduler's address as its host.")
        return JsonResponse({"link": guard.links.make(request.scope["scheme"], host)})

    @app.post("/v1/sign-out", responses=error_responses(507))
    async def _sign_out(request: Request) -> Response:
        """End the session of the page that asks."""
        value, host = cookie(request.scope), header(request.scope, "host")
        if not guard.sessions.is_valid(value, host):
            raise ApiError(400, "only a page that is signed in can sign out.")
        guard.sessions.end(value)
        ended = msgspec.json.encode(guard.sessions.ended).decode()

        async def save() -> None:
            daemon.store.set(ENDED_SESSIONS, ended)
            await daemon.store.flush()

        await calls.run(save)
        response = JsonResponse({"signed_in": False})
        response.delete_cookie(cookie_name(host), httponly=True, samesite="strict")
        return response

    @app.get("/v1/live", responses=error_responses(503))
    async def _live() -> Response:
        """Stream what the page shows: a snapshot, then changes, at most four times a second."""
        stream = await pages.subscribe()
        if stream is None:
            raise ApiError(503, "too many pages are open.")
        return ChangeStream(daemon.pages, stream.subscription, stream.first)
