"""The paper's jobs with other iterations: overlapped, or with a part left out.

A job of one GPU has no gradients to send, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial

from headway.domain.graph import Graph, Message
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.experiments.reproduction.runs import Change
from headway.workload.parallel import ParallelJobs

PAPER = "paper"
OVERLAPPED = "ddp"
ONE_BUCKET = "ddp:1000:first=1000"
"""More than the largest gradient, so that it is one message after the backward pass."""

BUCKETS = {
    "none": PAPER,
    "one": ONE_BUCKET,
    "100 MB": "ddp:100",
    "25 MB": OVERLAPPED,
    "10 MB": "ddp:10",
}
"""The size of a bucket, and the workload that has it; the first bucket is 1 MB."""

CUT = "cut"
"""The backward pass is cut as in OVERLAPPED, but the gradient is one message after it."""
NO_MESSAGES = "no messages"
NO_COMPUTING = "no computing"


def changes() -> dict[str, Change]:
    """Return how the workloads of the experiment are made from the paper's, by name."""
    parallel = ParallelJobs()
    texts = [text for text in BUCKETS.values() if text != PAPER]
    found: dict[str, Callable[[Job], Job]] = {
        text: partial(parallel.job, parallel=text) for text in texts
    }
    overlapped = found[OVERLAPPED]
    return {
        **{text: _each(change) for text, change in found.items()},
        CUT: _each(lambda job: _with_graph(overlapped(job), _sent_after)),
        NO_MESSAGES: _each(lambda job: _with_graph(found[ONE_BUCKET](job), _without_messages)),
        NO_COMPUTING: lambda workload: _of(
            workload, (replace(job, forward_ns=1, backward_ns=1) for job in workload)
        ),
    }


def _each(change: Callable[[Job], Job]) -> Change:
    return lambda workload: _of(
        workload, (job if job.gpus == 1 else change(job) for job in workload)
    )


def _of(workload: Workload, jobs: Iterable[Job]) -> Workload:
    return Workload(list(jobs), source=workload.source)


def _with_graph(job: Job, change: Callable[[Graph], Graph]) -> Job:
    assert job.graph is not None
    return replace(job, graph=change(job.graph))


@cache
def _sent_after(graph: Graph) -> Graph:
    """Return a graph with one message, after its last task, instead of its messages."""
    size = sum(message.buffer_bytes for message in graph.messages)
    everyone = range(graph.ranks)
    after = [graph.tasks[-1].name]
    return Graph(
        graph.ranks,
        graph.tasks,
        [Message("gradients", "all-reduce", [everyone], size, after=after)],
    )


@cache
def _without_messages(graph: Graph) -> Graph:
    return Graph(graph.ranks, graph.tasks)
