"""The first iterations of a job without a graph as one DAG, for people to look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headway.domain.job import Job
from headway.text_table import printable

TaskKind = Literal["entry", "forward", "backward", "barrier", "all-reduce", "exit"]


@dataclass(frozen=True, slots=True)
class UnrolledTask:
    """A node of the DAG; `worker` is the index of a GPU within the job."""

    kind: TaskKind
    iteration: int | None = None
    worker: int | None = None

    @property
    def name(self) -> str:
        """A short label, such as `forward 0.3` for iteration 0 on the job's GPU 3."""
        numbers = [str(n) for n in (self.iteration, self.worker) if n is not None]
        return " ".join([self.kind, ".".join(numbers)]).strip()


@dataclass(frozen=True, slots=True)
class UnrolledJob:
    """The DAG of a job's first iterations (the paper's Fig. "DAG presentation").

    It has a virtual entry and exit. Each iteration is a forward and a backward task on every GPU, a
    barrier and one all-reduce, which precedes the forward tasks of the next iteration.
    """

    job: Job
    iterations: int

    def tasks(self) -> Iterator[UnrolledTask]:
        """Yield every task, predecessors first."""
        workers = range(self.job.gpus)
        yield UnrolledTask("entry")
        for i in range(self.iterations):
            yield from (UnrolledTask("forward", i, worker) for worker in workers)
            yield from (UnrolledTask("backward", i, worker) for worker in workers)
            yield UnrolledTask("barrier", i)
            yield UnrolledTask("all-reduce", i)
        yield UnrolledTask("exit")

    def edges(self) -> Iterator[tuple[UnrolledTask, UnrolledTask]]:
        """Yield every (predecessor, successor)."""
        source = UnrolledTask("entry")
        for i in range(self.iterations):
            barrier = UnrolledTask("barrier", i)
            for worker in range(self.job.gpus):
                forward, backward = (
                    UnrolledTask("forward", i, worker),
                    UnrolledTask("backward", i, worker),
                )
                yield source, forward
                yield forward, backward
                yield backward, barrier
            source = UnrolledTask("all-reduce", i)
            yield barrier, source
        yield source, UnrolledTask("exit")

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
