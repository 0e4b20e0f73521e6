"""A job as the scheduler saves it across restarts."""

from __future__ import annotations

import msgspec

from headway.live.core.events import JobSpec, Slot
from headway.live.core.job_state import FINISHED, JobState


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job; `_ns` is the scheduler's clock, `_at` the machine's, in seconds since 1970.

    `attempts` counts all attempts so far, `unstarted` those of them that never started; `slots` are
    the slots of the current attempt; `started_*` is the first start; `reason` is why the last
    attempt ended. `cancelled` is set as soon as the user asks for it, before the processes end.
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
        """Whether the job is done, failed or cancelled."""
        return self.state in FINISHED
