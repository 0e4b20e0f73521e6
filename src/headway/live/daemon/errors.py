"""Why the scheduler refuses a request.

HeadwayError
├── NotFoundError      no such job or node
├── ConflictError      the job's state does not allow it
├── UnavailableError   the scheduler is shutting down
└── StorageError       the state cannot be written
"""

from __future__ import annotations

from headway.domain.errors import HeadwayError


class NotFoundError(HeadwayError):
    """There is no such job or node."""


class ConflictError(HeadwayError):
    """The job is in a state that does not allow the request."""


class UnavailableError(HeadwayError):
    """The scheduler is shutting down and takes no new jobs."""


class StorageError(HeadwayError):
    """A write to the state database failed and was not queued for another try."""
