"""Forecasts, and the messages between the scheduler and the process that makes them.

A message is one line of JSON: a `Request`, then an `Answer`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headway.live.core.present_state import PresentState


class JobForecast(msgspec.Struct, frozen=True, rename={"job_id": "id"}):
    """When a job starts and ends, on the scheduler's clock; None if that is not known.

    `note` says why it is not known, or only a guess; it is empty otherwise.
    """

    job_id: str
    state: str
    start_ns: int | None
    finish_ns: int | None
    note: str = ""


class Forecast(msgspec.Struct, frozen=True):
    """What is going to happen under one policy."""

    made_ns: int
    policy: str
    average_left_s: float
    """The average time until a job is done, over those whose end is known."""
    last_left_s: float
    """The time until all are done."""
    jobs: tuple[JobForecast, ...]

    @classmethod
    def of(cls, made_ns: int, policy: str, jobs: tuple[JobForecast, ...]) -> Forecast:
        """Return the forecast of these jobs."""
        left_s = [(job.finish_ns - made_ns) / 1e9 for job in jobs if job.finish_ns is not None]
        return cls(made_ns, policy, sum(left_s) / max(1, len(left_s)), max(left_s, default=0), jobs)


class Common(msgspec.Struct, frozen=True, rename={"changed_s": "if_s"}):
    """The average time until a job is done, over the jobs that both of two forecasts let end.

    A job that only one of them has would move its average without any job being sooner or later.
    """

    jobs: int
    now_s: float
    changed_s: float

    @classmethod
    def of(cls, now: Forecast, changed: Forecast) -> Common:
        """Return the averages of two forecasts that were made at the same time."""
        ends = [
            {job.job_id: job.finish_ns for job in forecast.jobs if job.finish_ns is not None}
            for forecast in (now, changed)
        ]
        both = ends[0].keys() & ends[1].keys()
        left_s = [
            sum(end[job] - now.made_ns for job in both) / 1e9 / max(1, len(both)) for end in ends
        ]
        return cls(len(both), *left_s)


class Change(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What might be different: the body of `POST /v1/what-if`."""

    policy: str | None = None
    add_nodes: int | None = None
    network: str | dict[str, Any] | None = None
    """A name, or the table `[network]` of a network file."""
    submit: dict[str, Any] | None = None
    """A job, by `headway.experiments.what_if.hypothetical_job`."""


class Request(msgspec.Struct):
    """A question: what follows from a state, and what if something were different?"""

    state: PresentState
    change: Change | None = None


class Answer(msgspec.Struct, kw_only=True, rename={"changed": "if"}):
    """What the process says; there is either `now` or one of the problems.

    `cpu_s` is all CPU time that the process has used so far.
    """

    cpu_s: float
    now: Forecast | None = None
    changed: Forecast | None = None
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why there is no forecast of the present."""
    refused: str = ""
    """What is wrong with the change."""
