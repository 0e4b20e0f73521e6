"""A workload: the jobs of one simulation, in the order of their indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError, shown
from headway.domain.job import Job
from headway.domain.limits import MAX_JOBS
from headway.domain.profiles import Profile


@dataclass(frozen=True, repr=False)
class Workload:
    """Jobs and their source, so that an error can name the line at fault."""

    jobs: tuple[Job, ...]
    source: str | None = None
    lines: tuple[int, ...] | None = None
    """The line of each job in the source."""
    columns: tuple[str, ...] | None = None
    """The columns of the source."""
    profiles: tuple[Profile, ...] = ()
    """Times measured on types of GPU, used in place of estimates from a job's own times."""

    def __init__(
        self,
        jobs: Sequence[Job],
        source: str | None = None,
        lines: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        profiles: Sequence[Profile] = (),
    ) -> None:
        object.__setattr__(self, "jobs", tuple(jobs))
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "lines", None if lines is None else tuple(lines))
        object.__setattr__(self, "columns", None if columns is None else tuple(columns))
        object.__setattr__(self, "profiles", tuple(profiles))
        if not self.jobs:
            raise InputError("there are no jobs; a workload needs at least one.", source=source)
        if len(self.jobs) > MAX_JOBS:
            raise InputError(
                f"there are {len(self.jobs):,} jobs; at most {MAX_JOBS:,} are allowed.",
                source=source,
            )
        first_with: dict[str, int] = {}
        for index, job in enumerate(self.jobs):
            if job.job_id in first_with:
                earlier = first_with[job.job_id]
                where = f"job {earlier}" if self.lines is None else f"line {self.lines[earlier]}"
                raise self.error(
                    index,
                    f"{shown(job.job_id)} is the id of {where} too; ids must differ.",
                    "job_id",
                )
            first_with[job.job_id] = index

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __getitem__(self, index: int) -> Job:
        return self.jobs[index]

    def __repr__(self) -> str:
        count = len(self.jobs)
        source = "" if self.source is None else f" from {self.source}"
        sizes = sorted({job.gpus for job in self.jobs})
        gpus = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        return (
            f"<Workload: {count:,} job{'s' * (count != 1)}{source}, with {gpus} "
            f"GPU{'s' * (sizes[-1] != 1)} each>"
        )

    @property
    def has_graphs(self) -> bool:
        """Whether an iteration of some job is a graph."""
        return any(job.graph is not None for job in self.jobs)

    def exclusive_jobs(self, cluster: Cluster) -> int:
        """Return how many jobs have their GPUs to themselves on a cluster."""
        return len(self.jobs) if cluster.exclusive else sum(job.exclusive for job in self.jobs)

    def find(self, job_id: str) -> Job:
        """Return the job with this id."""
        for job in self.jobs:
            if job.job_id == job_id:
                return job
        raise InputError(f"there is no job {shown(job_id)}.", source=self.source)

    def error(self, index: int, problem: str, field: str) -> InputError:
        """Return an error about a job that names its line."""
        job_id = self.jobs[index].job_id
        if self.lines is None:
            problem = f"job {shown(job_id)}: {problem}"
            return InputError(problem, field=field, source=self.source, job_id=job_id)
        column = None
        if self.columns is not None and field in self.columns:
            column = self.columns.index(field) + 1
        return InputError(
            problem,
            field=field,
            source=self.source,
            line=self.lines[index],
            column=column,
            job_id=job_id,
        )
