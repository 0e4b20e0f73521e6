"""JSON responses."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Response


class JsonResponse(Response):
    """A value as JSON, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the encoded value; bytes are encoded already."""
        return content if isinstance(content, bytes) else msgspec.json.encode(content)
