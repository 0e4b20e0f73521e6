"""Requests to the process that reads the event log, and its answers."""

from __future__ import annotations

import msgspec


class PastRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What happened between two times?

    `now_ns` is the scheduler's time, `ahead_ns` how far it is behind the machine's;
    `log_is_written` says that the log is not behind.
    """

    from_ns: int
    to_ns: int
    now_ns: int
    ahead_ns: int
    log_is_written: bool


class PastAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many bytes follow; with a problem, none. `cpu_s` is what the process has used so far.

    `damage` says what is wrong with the runs that are left out.
    """

    bytes: int
    cpu_s: float
    problem: str
    damage: tuple[str, ...] = ()
