"""A training job, and its task graph for people to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.gpus import V100
from headway.domain.limits import (
    HORIZON_NS,
    LONGEST_NS,
    MAX_BYTES,
    MAX_GPUS,
    MAX_ITERATIONS,
    whole,
)
from headway.domain.models import MAX_BATCH, PAPER_PROFILES, ProfileSet
from headway.domain.profiles import batch_size_of, model_names, profile_at
from headway.text_table import printable


@dataclass(frozen=True, slots=True)
class Job:
    """One data-parallel training job: n GPUs, I iterations of forward, backward, all-reduce.

    `forward_ns` and `backward_ns` are its times on the type of GPU `measured_on`, at its own
    `batch_size` (the mini-batch of one GPU; None if that of its model's profile, or unknown). They
    are `estimated` if scaled from a measurement at another batch size.
    """

    job_id: str
    arrival_ns: int
    gpus: int
    iterations: int
    forward_ns: int
    backward_ns: int
    gradient_bytes: int
    memory_bytes: int
    model: str = ""
    batch_size: int | None = None
    estimated: bool = False
    measured_on: str = V100.name

    def __post_init__(self) -> None:
        if not self.job_id:
            raise InputError("must not be empty.", field="job_id")
        whole(self.arrival_ns, "arrival_ns", 0, HORIZON_NS)
        whole(self.gpus, "gpus", 1, MAX_GPUS)
        whole(self.iterations, "iterations", 1, MAX_ITERATIONS)
        whole(self.forward_ns, "forward_ns", 1, LONGEST_NS)
        whole(self.backward_ns, "backward_ns", 1, LONGEST_NS)
        whole(self.gradient_bytes, "gradient_bytes", 0, MAX_BYTES)
        whole(self.memory_bytes, "memory_bytes", 0, MAX_BYTES)
        if self.batch_size is not None:
            whole(self.batch_size, "batch_size", 1, MAX_BATCH)
        if not isinstance(self.measured_on, str) or not self.measured_on:
            raise InputError(
                f"must be a non-empty string, not {shown(self.measured_on)}.", field="measured_on"
            )
        if self.arrival_ns + self.iterations * (self.forward_ns + self.backward_ns) > HORIZON_NS:
            raise InputError(
                "too many: computation alone would end after the simulator's last instant "
                f"({HORIZON_NS:,} ns, 146 years).",
                field="iterations",
            )

    @classmethod
    def of_model(
        cls,
        model: str,
        *,
        job_id: str,
        arrival_ns: int,
        gpus: int,
        iterations: int,
        profiles: Sequence[ProfileSet] = PAPER_PROFILES,
    ) -> Job:
        """Make a job that trains one of the known models."""
        found = profile_at(model, None, profiles)
        if found is None:
            known = did_you_mean(model, model_names(profiles))
            raise InputError(f"unknown model '{model}'.{known}", field="model")
        profile, _ = found
        usual = profile.batch_size == batch_size_of(model, None)
        return cls(
            job_id=job_id,
            arrival_ns=arrival_ns,
            gpus=gpus,
            iterations=iterations,
            forward_ns=profile.forward_ns,
            backward_ns=profile.backward_ns,
            gradient_bytes=profile.gradient_bytes,
            memory_bytes=profile.memory_bytes,
            model=model,
            batch_size=None if usual else profile.batch_size,
            measured_on=profile.gpu,
        )

    def graph(self, iterations: int = 2) -> JobGraph:
        """Return the DAG of the job's first iterations."""
        return JobGraph(self, min(iterations, self.iterations))


TaskKind = Literal["entry", "forward", "backward", "barrier", "all-reduce", "exit"]


@dataclass(frozen=True, slots=True)
class Task:
    """A node of the graph; `worker` is the index of a GPU within the job."""

    kind: TaskKind
    iteration: int | None = None
    worker: int | None = None

    @property
    def name(self) -> str:
        """A short label, such as `forward 0.3` for iteration 0 on the job's GPU 3."""
        numbers = [str(n) for n in (self.iteration, self.worker) if n is not None]
        return " ".join([self.kind, ".".join(numbers)]).strip()


@dataclass(frozen=True, slots=True)
class JobGraph:
    """The job's DAG (the paper's Fig. "DAG presentation").

    It has a virtual entry and exit. Each iteration is a forward and a backward task on every GPU, a
    barrier and one all-reduce, which precedes the forward tasks of the next iteration.
    """

    job: Job
    iterations: int

    def tasks(self) -> Iterator[Task]:
        """Yield every task, predecessors first."""
        workers = range(self.job.gpus)
        yield Task("entry")
        for i in range(self.iterations):
            yield from (Task("forward", i, worker) for worker in workers)
            yield from (Task("backward", i, worker) for worker in workers)
            yield Task("barrier", i)
            yield Task("all-reduce", i)
        yield Task("exit")

    def edges(self) -> Iterator[tuple[Task, Task]]:
        """Yield every (predecessor, successor)."""
        source = Task("entry")
        for i in range(self.iterations):
            barrier = Task("barrier", i)
            for worker in range(self.job.gpus):
                forward, backward = Task("forward", i, worker), Task("backward", i, worker)
                yield source, forward
                yield forward, backward
                yield backward, barrier
            source = Task("all-reduce", i)
            yield barrier, source
        yield source, Task("exit")

    def to_dot(self) -> str:
        """Render for Graphviz."""
        lines = ["digraph job {", "  rankdir=LR;", "  node [shape=box];"]
        lines += [
            f'  "{task.name}" [shape=circle, label=""];'
            for task in self.tasks()
            if task.kind == "barrier"
        ]
        lines += [f'  "{before.name}" -> "{after.name}";' for before, after in self.edges()]
        return "\n".join([*lines, "}"]) + "\n"

    def to_text(self) -> str:
        """Render for a terminal: one row per GPU, iterations from left to right."""
        job = self.job
        compute = f"─[forward {job.forward_ns / 1e6:g} ms]─[backward {job.backward_ns / 1e6:g} ms]─"
        message = f"─[all-reduce {job.gradient_bytes / 2**20:g} MB]─"
        barrier, fan_out = ("┤", "├") if job.gpus > 1 else ("│", "")
        more = job.iterations - self.iterations
        rows = [f"job {printable(job.job_id)}: GPUs {job.gpus:,}, iterations {job.iterations:,}"]
        for worker in range(job.gpus):
            inner = worker == (job.gpus - 1) // 2
            step = compute + barrier + (message if inner else " " * len(message))
            row = f"GPU {worker:<3} {'(entry)' if inner else ' ' * 7}" + fan_out.join(
                [step] * self.iterations
            )
            if inner:
                row += f" … {more:,} more … " if more else "─"
                row += "(exit)"
            rows.append(row.rstrip())
        return "\n".join(rows) + "\n"
