"""Routes for the cluster: status, nodes, policy, changes and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from prometheus_client.exposition import choose_encoder

from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.errors import ApiError, error_responses
from headway.live.api.request_body import body_schema, read_body
from headway.live.api.responses import JsonResponse
from headway.live.api.streams import ChangeStream
from headway.live.api.views import encoded_state, node_views, status_view
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.policy_trial import try_policy


class PolicyChoice(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /v1/policy`."""

    policy: str


def add_cluster_routes(
    app: FastAPI, daemon: Daemon, calls: DaemonCalls, settings: Mapping[str, Any]
) -> None:
    """Add the routes for everything but jobs."""
    trying = asyncio.Lock()  # One trial of a policy at a time.

    @app.get("/v1/status")
    async def _status() -> Response:
        """Describe the scheduler as a whole."""

        async def view() -> dict[str, Any]:
            return status_view(daemon, settings)

        return JsonResponse(await calls.shared("status", view))

    @app.get("/v1/nodes")
    async def _nodes() -> Response:
        """Describe every node: its slots, its messages in flight, and what waits there and why."""

        async def view() -> dict[str, Any]:
            return {"nodes": node_views(daemon)}

        return JsonResponse(await calls.shared("nodes", view))

    @app.get("/v1/state")
    async def _state() -> Response:
        """Return everything that a simulation needs to continue from the present."""
        return JsonResponse(await encoded_state(daemon, calls))

    @app.post("/v1/nodes/{node}/drain", responses=error_responses(507))
    async def _drain(node: str) -> Response:
        """Place no new jobs on a node."""
        await calls.run(lambda: daemon.drain(node, True))
        return JsonResponse({"node": node, "draining": True})

    @app.post("/v1/nodes/{node}/undrain", responses=error_responses(507))
    async def _undrain(node: str) -> Response:
        """Allow new jobs on a node again."""
        await calls.run(lambda: daemon.drain(node, False))
        return JsonResponse({"node": node, "draining": False})

    @app.get("/v1/policy")
    async def _policy() -> Response:
        """Return the current policy."""
        return JsonResponse({"policy": daemon.policy})

    @app.put(
        "/v1/policy",
        openapi_extra=body_schema(PolicyChoice),
        responses=error_responses(408, 413, 507),
    )
    async def _set_policy(request: Request) -> Response:
        """Switch to another policy."""
        try:
            choice = msgspec.json.decode(await read_body(request), type=PolicyChoice)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError(400, f'the body must be like {{"policy": "paper"}}: {error}.') from None
        async with trying:
            await try_policy(await calls.call(lambda: daemon.trial_of(choice.policy)))
            await calls.run(lambda: daemon.set_policy(choice.policy))
        return JsonResponse({"policy": daemon.policy})

    @app.get("/v1/events", responses=error_responses(503))
    async def _events() -> Response:
        """Stream changes of jobs, nodes, the policy and storage as server-sent events."""
        loop = asyncio.get_running_loop()
        subscription = await calls.call(lambda: daemon.feed.subscribe(loop))
        if subscription is None:
            raise ApiError(503, "too many clients are subscribed to changes.")
        return ChangeStream(daemon.feed, subscription)

    @app.get("/metrics")
    async def _metrics(request: Request) -> Response:
        """Return metrics for Prometheus."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        data = await calls.call(lambda: encode(daemon.metrics.registry))
        return Response(data, headers={"content-type": content_type})
