"""What the API answers when something cannot be done: one sentence, and HTTP's word for why."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headway.domain.errors import HeadwayError
from headway.live import operator_log
from headway.live.daemon.daemon import RefusedError
from headway.live.daemon.store import StorageError

_ERRORS = {
    400: "A mistake in the request.",
    401: "The token is missing or wrong.",
    404: "There is no such thing, or not any more.",
    408: "The body did not come in time.",
    409: "The job is over.",
    413: "The body is too large.",
    500: "The scheduler has a defect.",
    503: "The scheduler is ending, or too many listen.",
    507: "Nothing can be stored.",
}
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "One sentence."}},
    "required": ["error"],
}


class Json(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the value's bytes."""
        return msgspec.json.encode(content)


def errors_of(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe answers of these kinds."""
    content = {"application/json": {"schema": _ERROR}}
    return {status: {"description": _ERRORS[status], "content": content} for status in statuses}


def add_errors(app: FastAPI) -> None:
    """Answer every kind of error."""

    @app.exception_handler(RefusedError)
    async def _refused(_: Request, error: RefusedError) -> Json:
        return Json({"error": str(error)}, error.status)

    @app.exception_handler(StorageError)
    async def _storage(_: Request, error: StorageError) -> Json:
        return Json({"error": str(error)}, 507)

    @app.exception_handler(HeadwayError)
    async def _input(_: Request, error: HeadwayError) -> Json:
        return Json({"error": str(error)}, 400)

    @app.exception_handler(RequestValidationError)
    async def _parameter(_: Request, error: RequestValidationError) -> Json:
        first = error.errors()[0]
        return Json({"error": f"{first['loc'][-1]}: {first['msg']}."}, 400)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Json:
        problem = f"{request.method} {request.url.path}: {error.detail}."
        return Json({"error": problem}, error.status_code)

    @app.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> Json:
        operator_log.failure("a request failed", error, path=request.url.path)
        return Json({"error": "the scheduler has a defect; its log says more."}, 500)
