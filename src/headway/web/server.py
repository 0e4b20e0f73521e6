"""The page on loopback: its files, and the data of the runs that it shows."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Sequence

import msgspec
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.gate.sockets import bind_tcp
from headway.interrupts import ending_signals
from headway.web.browser import open_in_browser
from headway.web.guard import Links, PageGuard, Sessions
from headway.web.page_files import not_found, page_file, read_only
from headway.web.run_data import RunData

LOOPBACK = "127.0.0.1"
_SHUTDOWN_S = 1
_RUN = re.compile(r"/runs/(\d{1,6})(?:/parts/(\d{1,6}))?")
_EXPLANATION = re.compile(r"/runs/(\d{1,6})/jobs/(.+)", re.DOTALL)


class RunsApp:
    """An ASGI app that answers with the page and with blocks of runs."""

    def __init__(self, runs: Sequence[RunData]) -> None:
        self._runs = runs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = read_only(scope) or await self._answer(scope["path"])
        await answer(scope, receive, send)

    async def _answer(self, path: str) -> Response:
        if file := page_file(path, "runs"):
            return file
        if path == "/runs":
            listed = [{"number": number, "exact": True} for number in range(len(self._runs))]
            return Response(msgspec.json.encode(listed), media_type="application/json")
        if found := _EXPLANATION.fullmatch(path):
            return await self._explanation(int(found[1]), found[2])
        block = self._block(path)
        if block is None:
            return not_found()
        return Response(await run_in_threadpool(block), media_type="application/octet-stream")

    async def _explanation(self, number: int, job_id: str) -> Response:
        if number >= len(self._runs):
            return not_found()
        found = await run_in_threadpool(self._runs[number].explanation, job_id)
        if found is None:
            return not_found()
        return Response(msgspec.json.encode(found), media_type="application/json")

    def _block(self, path: str) -> Callable[[], bytes] | None:
        found = _RUN.fullmatch(path)
        if found is None or int(found[1]) >= len(self._runs):
            return None
        run = self._runs[int(found[1])]
        if found[2] is None:
            return lambda: run.overview
        return (lambda: run.part(int(found[2]))) if int(found[2]) < run.parts else None


def guarded(app: ASGIApp) -> PageGuard:
    """Return a guard around a page that lasts as long as this process."""
    return PageGuard(app, Links(), Sessions(secrets.token_hex(32)), "headway view")


class _Server(uvicorn.Server):
    """A server that leaves signals to `serve_runs`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave all signals alone."""
        yield


def serve_runs(
    runs: Sequence[RunData], port: int, announce: Callable[[str], None], browse: bool
) -> None:
    """Serve a page that shows these runs, on loopback, until SIGINT or SIGTERM.

    `announce` is called with the link to open; with `browse`, a browser opens it too.
    """
    with contextlib.closing(bind_tcp(LOOPBACK, port)) as listening:
        guard = guarded(RunsApp(runs))
        link = guard.links.make("http", f"{LOOPBACK}:{listening.getsockname()[1]}")
        config = uvicorn.Config(
            guard,
            access_log=False,
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            ws="none",
        )
        server = _Server(config)

        def stop() -> None:
            server.should_exit = True

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            for number in ending_signals():
                loop.add_signal_handler(number, stop)
            announce(link)
            if browse:
                await run_in_threadpool(open_in_browser, link)
            await server.serve([listening])

        listening.listen()
        asyncio.run(serve())
