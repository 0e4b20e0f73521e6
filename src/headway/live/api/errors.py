"""Errors as HTTP responses: a status and one sentence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headway.domain.errors import HeadwayError
from headway.live import operator_log
from headway.live.api.responses import JsonResponse
from headway.live.daemon.errors import (
    ConflictError,
    NotFoundError,
    StorageError,
    UnavailableError,
)

_STATUS: dict[type[HeadwayError], int] = {
    HeadwayError: 400,
    NotFoundError: 404,
    ConflictError: 409,
    UnavailableError: 503,
    StorageError: 507,
}
_DESCRIPTIONS = {
    400: "The request is invalid.",
    401: "The token is missing or wrong.",
    404: "Not found, or deleted.",
    408: "The body did not arrive in time.",
    409: "The job has already ended, or another what-if request is being computed.",
    413: "The body is too large.",
    500: "The scheduler has a bug.",
    503: "The scheduler is shutting down, has too many subscribers, or has no forecast.",
    507: "The state cannot be written.",
}
_ERROR_SCHEMA = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "One sentence."}},
    "required": ["error"],
}


class ApiError(HeadwayError):
    """A request that the API itself refuses with an HTTP status."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of these error statuses."""
    content = {"application/json": {"schema": _ERROR_SCHEMA}}
    return {
        status: {"description": _DESCRIPTIONS[status], "content": content} for status in statuses
    }


def add_error_handlers(app: FastAPI) -> None:
    """Turn every exception into a JSON response."""
    for kind, status in _STATUS.items():
        app.exception_handler(kind)(_handler(status))

    @app.exception_handler(ApiError)
    async def _api(_: Request, error: ApiError) -> JsonResponse:
        return JsonResponse({"error": str(error)}, error.status)

    @app.exception_handler(RequestValidationError)
    async def _parameter(_: Request, error: RequestValidationError) -> JsonResponse:
        first = error.errors()[0]
        return JsonResponse({"error": f"{first['loc'][-1]}: {first['msg']}."}, 400)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JsonResponse:
        problem = f"{request.method} {request.url.path}: {error.detail}."
        return JsonResponse({"error": problem}, error.status_code)

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> JsonResponse:
        operator_log.failure("request failed", error, path=request.url.path)
        return JsonResponse({"error": "internal error; see the scheduler's log."}, 500)


def _handler(status: int) -> Callable[[Request, Exception], Awaitable[JsonResponse]]:
    async def handle(_: Request, error: Exception) -> JsonResponse:
        return JsonResponse({"error": str(error)}, status)

    return handle
