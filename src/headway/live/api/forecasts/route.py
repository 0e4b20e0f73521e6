"""The route `POST /v1/what-if`: forecasts as things are, and with a change."""

from __future__ import annotations

import msgspec
from fastapi import FastAPI, Request, Response

from headway.live.api.errors import error_responses
from headway.live.api.forecasts.service import ForecastService
from headway.live.api.request_body import read_body
from headway.live.api.responses import JsonResponse
from headway.live.api.submission import decoded
from headway.live.core.forecast import Change


def add_what_if_route(app: FastAPI, forecasts: ForecastService) -> None:
    """Add `POST /v1/what-if`."""
    schema = msgspec.json.schema_components([Change])[1]["Change"]
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}

    @app.post("/v1/what-if", openapi_extra=body, responses=error_responses(408, 409, 413, 503))
    async def _what_if(request: Request) -> Response:
        """Predict when jobs start and end: as things are, and with a change."""
        change = decoded(await read_body(request), Change)
        return JsonResponse(await forecasts.what_if(change))
