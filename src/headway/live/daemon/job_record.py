"""A job as the scheduler saves it across restarts."""

from __future__ import annotations

import msgspec

from headway.live.core.events import JobSpec, Slot
from headway.live.core.job_state import FINISHED, JobState


class Prediction(msgspec.Struct, frozen=True):
    """When a job was predicted to finish, and when that was predicted; on the scheduler's clock."""

    made_ns: int
    finish_ns: int

    def error_share(self, ended_ns: int) -> float:
        """Return how far off it was, as a share of the time that was left when it was made."""
        return abs(self.finish_ns - ended_ns) / max(1, ended_ns - self.made_ns)


MAX_HISTORY = 20
"""Attempts that a record describes, the latest ones."""


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a job: where and when, and why it ended; `ended_*` are None until then."""

    number: int
    slots: tuple[Slot, ...]
    started_ns: int
    started_at: float
    ended_ns: int | None = None
    ended_at: float | None = None
    reason: str = ""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job; `_ns` is the scheduler's clock, `_at` the machine's, in seconds since 1970.

    `attempts` counts all attempts so far, `unstarted` those of them that never started; `slots` are
    the slots of the latest attempt, none while the job is queued; `started_*` is the first start;
    `reason` is why the last attempt ended, `history` describes the latest `MAX_HISTORY` attempts.
    `cancelled` is set as soon as the user asks for it, before the processes end. `first_prediction`
    is of the first forecast with the job's end, `half_prediction`, known once it has ended, of the
    one made closest to the half of its time from submission to end.
    """

    job_id: str
    spec: JobSpec
    state: JobState
    submitted_ns: int
    submitted_at: float
    attempts: int = 0
    unstarted: int = 0
    slots: tuple[Slot, ...] = ()
    iterations: int = 0
    reason: str = ""
    history: tuple[AttemptRecord, ...] = ()
    cancelled: bool = False
    started_ns: int | None = None
    started_at: float | None = None
    ended_ns: int | None = None
    ended_at: float | None = None
    first_prediction: Prediction | None = None
    half_prediction: Prediction | None = None

    @property
    def finished(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.state in FINISHED
