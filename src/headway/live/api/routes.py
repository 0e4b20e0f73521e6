"""The HTTP API. Every request needs the scheduler's token; every error is one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.gate import tokens
from headway.live.api.errors import Json, add_errors, errors_of
from headway.live.api.streams import ChangeStream, log_of
from headway.live.api.submission import Submission, spec_from
from headway.live.daemon.daemon import Daemon, RefusedError
from headway.live.daemon.metrics import text_of
from headway.live.executors import Attempt
from headway.live.executors.attempt_folders import KEPT_FOLDERS
from headway.version import __version__

MOST_BODY_BYTES = 2**20
BODY_PATIENCE_S = 10.0
SAVING_S = 2.0
"""How long an answer waits for the disk; a full one must keep no job from its end."""

MOST_LISTED = 1000
_TURN = 50
"""Jobs that are described before others get their turn in the event loop."""


class PolicyChoice(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /v1/policy`."""

    policy: str


def make_app(daemon: Daemon, token: str, about: Mapping[str, Any]) -> ASGIApp:
    """Return the API of a scheduler; `about` is what its status says of its settings."""
    app = FastAPI(
        title="Headway",
        version=__version__,
        summary="A scheduler of distributed training jobs that share a network.",
        responses=errors_of(400, 401, 404, 500),
    )
    add_errors(app)
    _add_jobs(app, daemon)
    _add_cluster(app, daemon, about)
    return _Guard(app, token)


class _Guard:
    """Lets nobody in without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        scheme, _, value = given.partition(" ")
        if scheme.lower() == "bearer" and tokens.same(value.strip(), self._token):
            await self._app(scope, receive, send)
            return
        problem = "the token is wrong." if given else "a token is needed."
        headers = {"www-authenticate": "Bearer", "connection": "close"}
        await Json({"error": problem}, 401, headers)(scope, receive, send)


def _add_jobs(app: FastAPI, daemon: Daemon) -> None:
    schema = msgspec.json.schema_components([Submission])[1]["Submission"]
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}

    @app.get("/v1/jobs")
    async def _jobs(
        state: Annotated[str | None, Query(description="Only jobs in this state.")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = MOST_LISTED,
    ) -> Response:
        """List jobs, the unfinished first, then the latest."""
        records = [
            one
            for one in reversed(daemon.book.records.values())
            if state is None or one.state == state
        ]
        records.sort(key=lambda one: one.finished)
        listed = []
        for place, record in enumerate(records[:limit]):
            listed.append(_described(daemon, record.job_id))
            if place % _TURN == _TURN - 1:
                await asyncio.sleep(0)
        return Json({"jobs": listed, "left_out": max(0, len(records) - limit)})

    @app.get("/v1/jobs/{job}")
    async def _job(job: str) -> Response:
        """Describe a job; one that waits says why."""
        return Json(_described(daemon, job))

    @app.post(
        "/v1/jobs", status_code=201, openapi_extra=body, responses=errors_of(408, 413, 503, 507)
    )
    async def _submit(request: Request) -> Response:
        """Submit a job; when this answers, the job is on the disk."""
        record = await daemon.submit(spec_from(await _body(request)))
        return Json(_described(daemon, record.job_id), 201)

    @app.post("/v1/jobs/{job}/cancel", responses=errors_of(409))
    async def _cancel(job: str) -> Response:
        """End a job, politely at first."""
        daemon.cancel(job)
        await daemon.store.saved(SAVING_S)
        return Json(_described(daemon, job))

    @app.get("/v1/jobs/{job}/logs")
    async def _logs(
        job: str,
        rank: Annotated[int, Query(ge=0, description="Which process of the job.")] = 0,
        follow: Annotated[bool, Query(description="Go on until the job is over.")] = False,
    ) -> Response:
        """Return what a rank of the latest attempt has printed."""
        record = daemon.record(job)
        gpus = record.spec.gpus
        if rank >= gpus:
            raise RefusedError(400, f"rank: must be at most {gpus - 1}, not {rank}.")
        if record.finished and record.attempts:
            folder = daemon.executor.log(Attempt(job, record.attempts), rank).parent
            if not await asyncio.to_thread(folder.exists):
                raise RefusedError(
                    404,
                    f"the log of job {job} is not there any more: the latest {KEPT_FOLDERS:,} "
                    "attempts keep theirs.",
                )
        stream = log_of(daemon, job, rank, follow)
        return StreamingResponse(stream, media_type="application/octet-stream")


def _add_cluster(app: FastAPI, daemon: Daemon, about: Mapping[str, Any]) -> None:
    schema = msgspec.json.schema_components([PolicyChoice])[1]["PolicyChoice"]
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}

    @app.get("/v1/status")
    async def _status() -> Response:
        """Describe the scheduler as a whole."""
        return Json(_status_of(daemon, about))

    @app.get("/v1/nodes")
    async def _nodes() -> Response:
        """Describe every node: its slots, messages, and who waits there and why."""
        return Json({"nodes": _nodes_of(daemon)})

    @app.post("/v1/nodes/{node}/drain")
    async def _drain(node: str) -> Response:
        """Give a node no new jobs."""
        daemon.drain(node, True)
        await daemon.store.saved(SAVING_S)
        return Json({"node": node, "draining": True})

    @app.post("/v1/nodes/{node}/undrain")
    async def _undrain(node: str) -> Response:
        """Give a node jobs again."""
        daemon.drain(node, False)
        await daemon.store.saved(SAVING_S)
        return Json({"node": node, "draining": False})

    @app.get("/v1/policy")
    async def _policy() -> Response:
        """Return the policy that decides."""
        return Json({"policy": daemon.policy})

    @app.put("/v1/policy", openapi_extra=body, responses=errors_of(408, 413))
    async def _choose(request: Request) -> Response:
        """Let another policy decide from now on."""
        try:
            choice = msgspec.json.decode(await _body(request), type=PolicyChoice)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RefusedError(
                400, f'the body must be like {{"policy": "paper"}}: {error}.'
            ) from None
        await daemon.choose_policy(choice.policy)
        await daemon.store.saved(SAVING_S)
        return Json({"policy": daemon.policy})

    @app.get("/v1/events", responses=errors_of(503))
    async def _events() -> Response:
        """Stream changes of jobs, nodes and the policy as server-sent events."""
        listener = daemon.hub.join()
        if listener is None:
            raise RefusedError(503, "too many listen to changes already.")
        return ChangeStream(daemon.hub, listener)

    @app.get("/metrics")
    async def _metrics() -> Response:
        """Return figures for Prometheus."""
        return Response(_metrics_of(daemon), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _body(request: Request) -> bytes:
    """Return a request's body, which must be short and come soon."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_PATIENCE_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MOST_BODY_BYTES:
                    raise RefusedError(413, f"the body is larger than {MOST_BODY_BYTES:,} bytes.")
    except TimeoutError:
        raise RefusedError(408, f"the body did not come within {BODY_PATIENCE_S:g} s.") from None
    except ClientDisconnect:
        raise RefusedError(400, "the body was cut off.") from None
    return bytes(data)


def _described(daemon: Daemon, job: str) -> dict[str, Any]:
    record = daemon.record(job)
    why = "" if record.finished else daemon.core.why(job)
    if not record.finished and record.state != "running" and daemon.store.problem:
        why = f"nothing can be stored: {daemon.store.problem}"
    elif obstacle := daemon.attempts.obstacle(Attempt(job, record.attempts)):
        why = f"{obstacle}; it is tried again soon."
    view: dict[str, Any] = msgspec.to_builtins(record)
    if not record.finished and (known := daemon.core.job(job)) is not None:
        view["iterations"] = known.iterations  # the record's are some seconds old
    return view | {"why": why}


def _nodes_of(daemon: Daemon) -> list[dict[str, Any]]:
    listed = []
    for view in daemon.core.nodes():
        node: dict[str, Any] = msgspec.to_builtins(view)
        for message in node["waiting"]:
            message["why"] = daemon.core.why(message["job_id"])
        known = daemon.nodes.get(view.node)
        listed.append(node | {"address": known.address if known else ""})
    return listed


def _status_of(daemon: Daemon, about: Mapping[str, Any]) -> dict[str, Any]:
    counts = daemon.core.counts
    return {
        "version": __version__,
        **about,
        "policy": daemon.policy,
        "clock_s": round(daemon.clock.now_ns() / 1e9, 3),
        "jobs": daemon.book.counts(),
        "nodes": len(daemon.nodes),
        "slots": sum(node.gpus for node in daemon.nodes.values()),
        "workers": 0 if daemon.gate is None else daemon.gate.connected,
        "events": counts.events,
        "ignored_events": counts.ignored,
        "grants": counts.grants,
        "policy_problem": daemon.core.rules.failure,
        "storage_problem": daemon.store.problem,
        "log_problem": daemon.events.problem,
    }


def _metrics_of(daemon: Daemon) -> str:
    counts, nodes = daemon.core.counts, daemon.core.nodes()
    return text_of(
        daemon.metrics,
        jobs=daemon.book.counts(),
        messages={node.node: len(node.messages) for node in nodes},
        waiting={node.node: len(node.waiting) for node in nodes},
        totals={
            "events": counts.events,
            "ignored_events": counts.ignored,
            "grants": counts.grants,
            "turns": counts.turns,
        },
        storage_works=not daemon.store.problem,
    )
