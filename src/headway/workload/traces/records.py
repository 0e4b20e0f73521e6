"""Jobs as traces record them, and the reasons why a row is unusable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from headway.domain.errors import InputError, shown
from headway.domain.limits import text

SECOND_NS = 10**9

WHOLE_GPU = 1000
"""A GPU, in thousandths."""


@dataclass(slots=True)
class TraceJob:
    """A job as its trace records it; times in ns on the trace's own clock.

    `iterations` and `model` are None if the trace lacks them. `gpu_milli` is the share of each GPU
    that the job requests, in thousandths, in traces that share GPUs.
    """

    job_id: str
    arrival_ns: int
    duration_ns: int
    gpus: int
    iterations: int | None = None
    model: str | None = None
    gpu_milli: int | None = None

    def __post_init__(self) -> None:
        for name in ("job_id", "model"):
            try:
                text(getattr(self, name) or "", name)
            except InputError as error:
                raise UnusableError(Reason.UNREADABLE, error.problem, name) from None


class Reason(StrEnum):
    """Why a job of a trace is left out, as shown to users."""

    NO_GPU = "no GPU"
    NEVER_STARTED = "never started"
    NO_END = "no end time: still running, or not logged"
    NO_TIME = "ran for no time"
    ENDS_FIRST = "ends before it starts"
    NEGATIVE = "negative time"
    UNREADABLE = "invalid value"
    FIELDS = "wrong number of fields"
    DUPLICATE = "duplicate id"
    UNKNOWN_TYPE = "no throughput for the job type"
    NOT_LISTED = "not in pai_job_table"


class UnusableError(Exception):
    """An unusable row: the reason, what would be right, and the column at fault."""

    def __init__(self, reason: Reason, problem: str, field: str | None = None) -> None:
        super().__init__(problem)
        self.reason = reason
        self.problem = problem
        self.field = field


class Location(Protocol):
    """The file and line of a row."""

    @property
    def source(self) -> str:
        """The file."""

    @property
    def line(self) -> int:
        """The line, from 1."""

    def column(self, field: str) -> int | None:
        """Return the number of a column, from 1, if it has one."""


P = TypeVar("P", bound=Location)


@dataclass(frozen=True, slots=True)
class FileLine:
    """A location without columns."""

    source: str
    line: int

    def column(self, field: str) -> int | None:
        """Return None."""
        return None


class RowLog:
    """Counts rows that are left out, by reason; if strict, the first one is an error."""

    def __init__(
        self, strict: bool = False, progress: Callable[[float, int], None] | None = None
    ) -> None:
        self.strict = strict
        self.progress = progress
        self.dropped: Counter[str] = Counter()
        self.rows = 0
        """Number of rows read so far, including headers."""
        self._ids: set[str] = set()

    def is_new(self, job_id: str) -> bool:
        """Return whether an id is new, and record it."""
        before = len(self._ids)
        self._ids.add(job_id)
        return len(self._ids) > before

    def drop(self, location: Location, error: UnusableError) -> None:
        """Leave a row out."""
        if self.strict:
            column = None if error.field is None else location.column(error.field)
            raise InputError(
                error.problem,
                field=error.field,
                source=location.source,
                line=location.line,
                column=column,
            )
        self.dropped[error.reason] += 1


def converted(
    rows: Iterable[P], convert: Callable[[P], TraceJob], log: RowLog
) -> Iterator[TraceJob]:
    """Yield the job of each usable row."""
    for row in rows:
        try:
            job = convert(row)
            if not log.is_new(job.job_id):
                problem = f"{shown(job.job_id)} is the id of an earlier job too; ids must differ."
                raise UnusableError(Reason.DUPLICATE, problem)
        except UnusableError as error:
            log.drop(row, error)
        else:
            yield job


def ran_for(start_ns: int, end_ns: int, field: str) -> int:
    """Return the time from start to end in ns, or raise if it is not positive."""
    if end_ns < start_ns:
        raise UnusableError(Reason.ENDS_FIRST, "must not be before the start.", field)
    return some_time(end_ns - start_ns, field)


def check_ran(started: bool, ended: bool, start_field: str, end_field: str) -> None:
    """Raise if a job has no start, or no end."""
    if not started:
        raise UnusableError(Reason.NEVER_STARTED, "must be a time.", start_field)
    if not ended:
        raise UnusableError(Reason.NO_END, "must be a time.", end_field)


def some_time(duration_ns: int, field: str) -> int:
    """Return a duration in ns, or raise if it is not positive."""
    if duration_ns <= 0:
        raise UnusableError(Reason.NO_TIME, "a job must run for more than 0 s.", field)
    return duration_ns


def some_gpus(count: int, field: str) -> int:
    """Return a number of GPUs, or raise if it is not positive."""
    if count < 1:
        raise UnusableError(Reason.NO_GPU, f"a job must have at least 1 GPU, not {count}.", field)
    return count
