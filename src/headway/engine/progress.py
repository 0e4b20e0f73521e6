"""How far a run has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come: the part of its compute tasks, simulated time, time in the engine.

    `tasks` are compute tasks and messages; those that were skipped had no event of their own, and
    some of these were estimated. `instants` are those that the engine went through. Of a sampled
    simulation `fraction` is that of all its runs, the rest is of the one that reports.
    """

    fraction: float
    now_s: float
    wall_s: float
    tasks: int
    skipped_tasks: int
    estimated_tasks: int
    instants: int
