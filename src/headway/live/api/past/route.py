"""The route `GET /v1/past`: what happened in a stretch of time, from the event log."""

from __future__ import annotations

import re

from fastapi import FastAPI, Response

from headway.domain.limits import HORIZON_NS
from headway.live.api.errors import ApiError, error_responses
from headway.live.api.past.service import PastService, Stretch

_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)


def add_past_route(app: FastAPI, past: PastService) -> None:
    """Add `GET /v1/past`."""

    @app.get("/v1/past", responses=error_responses(503))
    async def _past(from_ns: str = "", to_ns: str = "") -> Response:
        """Return what happened between two times of the scheduler's clock, for pages."""
        asked = Stretch(_time_ns("from_ns", from_ns), _time_ns("to_ns", to_ns))
        if asked.from_ns >= asked.to_ns:
            raise ApiError(400, "from_ns must be less than to_ns.")
        return Response(await past.block(asked), media_type="application/octet-stream")


def _time_ns(name: str, given: str) -> int:
    if not _NUMBER.fullmatch(given) or abs(int(given)) > HORIZON_NS // 2:
        raise ApiError(400, f"{name} must be a time in nanoseconds, such as 60000000000.")
    return int(given)
