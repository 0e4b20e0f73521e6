"""What a trace tells of a job, and why a row of it may be of no use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from headway.domain.errors import InputError, shown

SECOND_NS = 10**9


@dataclass(slots=True)
class TraceJob:
    """A job as its trace tells of it; times in ns on the trace's own clock.

    `iterations` and `model` are None where the trace does not tell them. `gpu_milli` is the share
    of each GPU that the job asks for, in thousandths, where the trace shares GPUs.
    """

    job_id: str
    arrival_ns: int
    duration_ns: int
    gpus: int
    iterations: int | None = None
    model: str | None = None
    gpu_milli: int | None = None


class Reason(StrEnum):
    """Why a job of a trace is left out, as users read it."""

    NO_GPU = "no GPU"
    NEVER_STARTED = "never started"
    NO_END = "no end: still running, or not logged"
    NO_TIME = "ran for no time"
    ENDS_FIRST = "ends before it starts"
    NEGATIVE = "a negative time"
    UNREADABLE = "a value that cannot be read"
    FIELDS = "wrong number of fields"
    DUPLICATE = "the id of an earlier job"
    UNKNOWN_TYPE = "a job type without a throughput"
    NOT_LISTED = "not in pai_job_table"


class UnusableError(Exception):
    """A row that is no job: why, what would be right, and the column at fault."""

    def __init__(self, reason: Reason, problem: str, field: str | None = None) -> None:
        super().__init__(problem)
        self.reason = reason
        self.problem = problem
        self.field = field


class Place(Protocol):
    """Where a row stands."""

    @property
    def source(self) -> str:
        """The file."""

    @property
    def line(self) -> int:
        """Its line, from 1."""

    def column(self, field: str) -> int | None:
        """Return the number of a column, from 1, if it has one."""


P = TypeVar("P", bound=Place)


@dataclass(frozen=True, slots=True)
class Spot:
    """A place without columns."""

    source: str
    line: int

    def column(self, field: str) -> int | None:
        """Return nothing."""
        return None


class RowLog:
    """Counts the rows that are left out, by reason; when strict, the first of them is an error."""

    def __init__(
        self, strict: bool = False, progress: Callable[[float, int], None] | None = None
    ) -> None:
        self.strict = strict
        self.progress = progress
        self.dropped: Counter[str] = Counter()
        self.rows = 0
        """Rows read so far, headers among them."""
        self._ids: set[str] = set()

    def is_new(self, job_id: str) -> bool:
        """Return whether no job had this id before; now one has."""
        before = len(self._ids)
        self._ids.add(job_id)
        return len(self._ids) > before

    def drop(self, place: Place, error: UnusableError) -> None:
        """Leave a row out."""
        if self.strict:
            column = None if error.field is None else place.column(error.field)
            raise InputError(
                error.problem,
                field=error.field,
                source=place.source,
                line=place.line,
                column=column,
            )
        self.dropped[error.reason] += 1


def converted(
    rows: Iterable[P], convert: Callable[[P], TraceJob], log: RowLog
) -> Iterator[TraceJob]:
    """Yield the job of each row that has one."""
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
    """Return the time from start to end in ns, if there is any."""
    if end_ns < start_ns:
        raise UnusableError(Reason.ENDS_FIRST, "must not be before the start.", field)
    return some_time(end_ns - start_ns, field)


def some_time(duration_ns: int, field: str) -> int:
    """Return a duration in ns, if it is one."""
    if duration_ns <= 0:
        raise UnusableError(Reason.NO_TIME, "a job must run for more than 0 s.", field)
    return duration_ns


def some_gpus(count: int, field: str) -> int:
    """Return a number of GPUs, if there are any."""
    if count < 1:
        raise UnusableError(Reason.NO_GPU, f"a job must have at least 1 GPU, not {count}.", field)
    return count
