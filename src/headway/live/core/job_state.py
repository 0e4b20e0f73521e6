"""The states of a live job and the table of transitions between them.

`LiveJob.apply` is the only code that changes a job's state, and it follows `TRANSITIONS`.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class JobState(StrEnum):
    """The stages of a job from its submission to its end."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
"""States with an attempt in progress: processes of the job may exist."""

FINISHED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
"""Final states."""


class Trigger(StrEnum):
    """What can change a job's state."""

    LAUNCH = "launch"
    RESTORE = "restore"
    START = "start"
    STOP = "stop"
    RETRY = "retry"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


TRANSITIONS = MappingProxyType(
    {
        # The placement policy gave the job slots: an attempt begins.
        (JobState.QUEUED, Trigger.LAUNCH): JobState.STARTING,
        # A scheduler that restarted found the job's attempt running.
        (JobState.QUEUED, Trigger.RESTORE): JobState.RUNNING,
        # Without an attempt there is nothing to stop.
        (JobState.QUEUED, Trigger.CANCEL): JobState.CANCELLED,
        # All processes of the attempt have been started.
        (JobState.STARTING, Trigger.START): JobState.RUNNING,
        # The user cancelled the job, or it lost a slot: its processes are told to end.
        (JobState.STARTING, Trigger.STOP): JobState.STOPPING,
        (JobState.RUNNING, Trigger.STOP): JobState.STOPPING,
        # All processes of a stopped attempt have ended, and the user does not want another.
        (JobState.STOPPING, Trigger.CANCEL): JobState.CANCELLED,
        # The attempt exited with code 0, if only just before it was to be stopped. A short job may
        # exit before the report of its start arrives.
        (JobState.STARTING, Trigger.SUCCEED): JobState.DONE,
        (JobState.RUNNING, Trigger.SUCCEED): JobState.DONE,
        (JobState.STOPPING, Trigger.SUCCEED): JobState.DONE,
        # The attempt failed or was stopped, and no retries are left.
        (JobState.STARTING, Trigger.FAIL): JobState.FAILED,
        (JobState.RUNNING, Trigger.FAIL): JobState.FAILED,
        (JobState.STOPPING, Trigger.FAIL): JobState.FAILED,
        # The attempt failed or was stopped with retries left, or it never started.
        (JobState.STARTING, Trigger.RETRY): JobState.QUEUED,
        (JobState.RUNNING, Trigger.RETRY): JobState.QUEUED,
        (JobState.STOPPING, Trigger.RETRY): JobState.QUEUED,
    }
)
