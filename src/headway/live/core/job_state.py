"""The states of a live job."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Where a job stands between its submission and its end."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
"""States with an attempt under way: processes of the job may exist."""

FINISHED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
"""States that a job never leaves."""
