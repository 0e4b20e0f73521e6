"""A job as the scheduler remembers it, across restarts."""

from __future__ import annotations

import msgspec

from headway.live.core.events import JobSpec, Slot
from headway.live.core.job_state import FINISHED, JobState


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job; `_ns` on the scheduler's clock, `_at` the machine's, in seconds since 1970, to show.

    `attempts` counts those made so far, `unstarted` those of them that never started; `slots` is
    where the present one runs; `started_*` is the first start, `reason` what ended the last
    attempt. `cancelled`: its user does not want it any more.
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
    cancelled: bool = False
    started_ns: int | None = None
    started_at: float | None = None
    ended_ns: int | None = None
    ended_at: float | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.state in FINISHED
