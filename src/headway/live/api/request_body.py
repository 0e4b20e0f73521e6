"""Reads request bodies, which must be small and arrive soon."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import Request
from starlette.requests import ClientDisconnect

from headway.live.api.errors import ApiError

MAX_BODY_BYTES = 2**20
BODY_TIMEOUT_S = 10.0


def body_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return what OpenAPI says of a body that must be of a type."""
    schema = msgspec.json.schema_components([kind])[1][kind.__name__]
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}


async def read_body(request: Request) -> bytes:
    """Return a request's body, or raise ApiError if it is too large, too slow or incomplete."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY_BYTES:
                    raise ApiError(413, f"the body is larger than {MAX_BODY_BYTES:,} bytes.")
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s.") from None
    except ClientDisconnect:
        raise ApiError(400, "the body is incomplete.") from None
    return bytes(data)
