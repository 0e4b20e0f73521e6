"""Why the scheduler refuses a request.

HeadwayError
├── InputError
│   ├── DamagedStateError   the state cannot be read
│   └── NoSchedulerError    no scheduler answers, perhaps for the moment
├── NotFoundError           no such job or node
├── ConflictError           the job's state does not allow it, or it is being done for another
├── UnavailableError        the scheduler is shutting down, or has no forecast
└── StorageError            the state cannot be written
"""

from __future__ import annotations

from pathlib import Path

from headway.domain.errors import HeadwayError, InputError


class DamagedStateError(InputError):
    """The database exists, but its content makes no sense."""

    def __init__(self, path: Path, problem: str) -> None:
        text = " ".join(problem.rstrip(".")[:200].split())  # it may quote what is in the database
        super().__init__(
            f"is damaged: {text}. Restore a copy of it, start with --adopt to "
            "rebuild its jobs from the event log and the processes that run, or with --forget to "
            "end these and begin anew.",
            source=str(path),
        )


class NoSchedulerError(InputError):
    """No scheduler is running, or it stopped before it answered."""


class NotFoundError(HeadwayError):
    """There is no such job or node."""


class ConflictError(HeadwayError):
    """The present state does not allow the request."""


class UnavailableError(HeadwayError):
    """The scheduler is shutting down and takes no new jobs, or has no forecast."""


class StorageError(HeadwayError):
    """A write to the state database failed, so the request is not acknowledged."""
