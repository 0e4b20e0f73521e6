"""How far a run has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    fraction: float
    now_s: float
    tasks: int
    skipped_tasks: int
