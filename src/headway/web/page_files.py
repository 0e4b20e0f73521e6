"""The page's files over HTTP, the same for recorded runs and for a live cluster."""

from __future__ import annotations

import os
from typing import Literal

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.web.files import MEDIA_TYPES, PAGE, static_file, static_names

Source = Literal["live", "runs"]
"""Where the page gets its data: from a scheduler's `/v1/live`, or from `/runs`."""

_PAGES: dict[Source, str] = {"live": "live.html", "runs": PAGE}


def is_page_path(path: str) -> bool:
    """Return whether a path is that of the page or of one of its files."""
    return path == "/" or path.startswith("/static/")


def page_file(path: str, source: Source) -> Response | None:
    """Return the file at a path, or None if there is none."""
    name = _PAGES[source] if path == "/" else path.removeprefix("/static/")
    if name not in static_names() or path not in ("/", f"/static/{name}"):
        return None
    return Response(static_file(name), media_type=MEDIA_TYPES[os.path.splitext(name)[1]])


def page_app(source: Source) -> ASGIApp:
    """Return an app that answers with the page's files."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = read_only(scope) or page_file(scope["path"], source) or not_found()
        await answer(scope, receive, send)

    return app


def read_only(scope: Scope) -> Response | None:
    """Return the answer to a request that is not for reading."""
    if scope["method"] in ("GET", "HEAD"):
        return None
    return PlainTextResponse("The page can only be read.\n", 405, {"allow": "GET, HEAD"})


def not_found() -> Response:
    """Return the answer to a request for what is not there."""
    return PlainTextResponse("There is no such page.\n", 404)
