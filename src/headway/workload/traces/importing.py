"""Converts the files of a trace to a workload."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from headway.domain.errors import InputError, shown
from headway.domain.job import Job
from headway.domain.limits import MAX_BYTES, MAX_GPUS, scaled, whole
from headway.domain.workload import Workload
from headway.workload.traces.assignment import assigned
from headway.workload.traces.reading import source_name
from headway.workload.traces.records import SECOND_NS, WHOLE_GPU, RowLog, TraceJob
from headway.workload.traces.registry import Reader, reader_of

GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs to keep, and how to fill in what the trace lacks.

    Every job needs `memory_gb`, if given; `gpu_memory_gb` is the memory of a GPU, of which some
    traces give shares. The window of seconds counts from the trace's first job and excludes its
    end.

    If `exclusive`, jobs have their GPUs to themselves, but for those to which the trace gives a
    part of a GPU; otherwise they share GPUs whose memory holds them.
    """

    seed: int = 0
    memory_gb: float | None = None
    gpu_memory_gb: float = 16.0
    max_gpus: int | None = None
    from_s: float | None = None
    to_s: float | None = None
    first: int | None = None
    exclusive: bool = False

    def __post_init__(self) -> None:
        whole(self.seed, "seed", 0, 2**63 - 1)
        for name, value in (("memory_gb", self.memory_gb), ("gpu_memory_gb", self.gpu_memory_gb)):
            if value is not None:
                scaled(value, GIBIBYTE, name, 0, MAX_BYTES, "GB")
        if self.max_gpus is not None:
            whole(self.max_gpus, "max_gpus", 1, MAX_GPUS)
        if self.first is not None:
            whole(self.first, "first", 1, 2**63 - 1)
        for name, value in (("from", self.from_s), ("to", self.to_s)):
            if value is not None:
                scaled(value, SECOND_NS, name, 0, 2**62, "seconds")


@dataclass(frozen=True, slots=True)
class TraceImport:
    """A workload, and why other rows are not in it."""

    workload: Workload
    unusable: Counter[str]
    """Number of jobs that cannot be simulated, by reason."""
    not_chosen: Counter[str]
    """Number of jobs that the options leave out, by reason."""
    out_of_order: int
    """Number of jobs listed after a job that arrives later."""


def import_trace(
    form: str,
    files: Sequence[str],
    choice: Choice | None = None,
    *,
    strict: bool = False,
    progress: Callable[[float, int], None] | None = None,
) -> TraceImport:
    """Read a trace; with `strict`, the first unusable job is an error.

    Memory grows with the number of usable jobs, not with the size of the files.
    """
    choice = choice or Choice()
    read = reader_of(form)
    if not files:
        raise InputError("give at least one file.")
    log = RowLog(strict, progress)
    jobs, out_of_order, not_chosen = _kept(read, files, log, choice)
    jobs.sort(key=lambda job: job.arrival_ns)
    jobs = _window(jobs, choice, not_chosen)
    source = " + ".join(map(source_name, files))
    if not jobs:
        raise InputError(f"no jobs are left{_summary(log.dropped | not_chosen)}.", source=source)
    workload = Workload(list(_assigned(jobs, choice, source)), source)
    return TraceImport(workload, log.dropped, not_chosen, out_of_order)


def _kept(
    read: Reader, files: Sequence[str], log: RowLog, choice: Choice
) -> tuple[list[TraceJob], int, Counter[str]]:
    """Return the jobs in file order, and how many of them arrive before a preceding one."""
    jobs: list[TraceJob] = []
    not_chosen: Counter[str] = Counter()
    out_of_order, latest_ns = 0, None
    for job in read(files, log):
        if choice.max_gpus is not None and job.gpus > choice.max_gpus:
            not_chosen[f"more than {choice.max_gpus:,} GPUs"] += 1
            continue
        jobs.append(job)
        if latest_ns is not None and job.arrival_ns < latest_ns:
            out_of_order += 1
        else:
            latest_ns = job.arrival_ns
    return jobs, out_of_order, not_chosen


def _window(jobs: list[TraceJob], choice: Choice, not_chosen: Counter[str]) -> list[TraceJob]:
    """Return the first of the jobs that arrive in the window; `jobs` are sorted."""
    begin, end = 0, len(jobs)
    if choice.from_s is not None:
        begin = _count_before(jobs, choice.from_s)
    if choice.to_s is not None:
        end = max(begin, _count_before(jobs, choice.to_s))
    if end - begin < len(jobs):
        not_chosen["outside the window of time"] = len(jobs) - (end - begin)
    if choice.first is not None and end - begin > choice.first:
        not_chosen[f"after the first {choice.first:,}"] = end - begin - choice.first
        end = begin + choice.first
    return jobs[begin:end]


def _count_before(jobs: list[TraceJob], after_s: float) -> int:
    """Return how many jobs arrive less than `seconds` after the first."""
    if not jobs:
        return 0
    limit_ns = jobs[0].arrival_ns + round(after_s * SECOND_NS)
    return bisect_left(jobs, limit_ns, key=lambda job: job.arrival_ns)


def _assigned(jobs: list[TraceJob], choice: Choice, source: str) -> Iterator[Job]:
    """Yield the jobs of the workload; the first arrives at 0."""
    start_ns = jobs[0].arrival_ns
    memory_bytes = None if choice.memory_gb is None else round(choice.memory_gb * GIBIBYTE)
    gpu_memory_bytes = round(choice.gpu_memory_gb * GIBIBYTE)
    for job in jobs:
        arrival_ns = job.arrival_ns - start_ns
        try:
            found = assigned(job, arrival_ns, choice.seed, memory_bytes, gpu_memory_bytes)
            whole = job.gpu_milli in (None, WHOLE_GPU)
            yield replace(found, exclusive=choice.exclusive and whole)
        except InputError as error:
            raise InputError(
                f"job {shown(job.job_id)}: {error.problem}", field=error.field, source=source
            ) from None


def _summary(dropped: dict[str, int]) -> str:
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in dropped.items())
    return f" ({reasons})" if reasons else ""
