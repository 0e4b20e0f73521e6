"""JSON responses."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Response

SYNC_TIMEOUT_S = 2.0
"""How long a response waits for the disk; a full one must not keep a job from being cancelled."""


class JsonResponse(Response):
    """A value as JSON, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the encoded value."""
        return msgspec.json.encode(content)
