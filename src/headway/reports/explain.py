"""Where a job's time went, and which jobs it waited for, from the timeline of a run.

A job's completion time is divided into parts that add up to it exactly, in nanoseconds:

- *queued*: from its arrival to its placement;
- *computing* and *waiting for its GPU*: the computing of an iteration lasts from its start to the
  end of its last backward task. The GPU of that task (the lowest number, if several end together)
  is the iteration's critical GPU: its forward and backward are computing, the rest is waiting;
- *waiting for admission*: from there to the start of the iteration's message, and from the end of
  a bucket to the start of the next;
- *sending alone* and *sending under contention*: the message's own time, with k = 1 and k > 1 where
  k is the maximum, over the rails of the message's GPUs, of the messages on the rail.

With a graph, the parts are those of each iteration's critical path, which `critical_path` finds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.graph import Graph
from headway.domain.records import BACKWARD, COMMUNICATION, FORWARD, NOBODY
from headway.reports.critical_path import Path, Spans, critical_path
from headway.reports.entry_times import EntryTime, entry_times
from headway.results.columns import PARALLEL
from headway.results.timeline.compiled import Integers
from headway.results.timeline.nodes import PlacedMessages, message_servers
from headway.results.timeline.recorded import RecordedRun

PARTS = (
    "queued",
    "computing",
    "waiting_for_gpu",
    "waiting_for_admission",
    "sending_alone",
    "sending_under_contention",
)
"""The parts of a completion time."""

MAX_OTHERS = 5
"""How many jobs an explanation names for each part."""


@dataclass(frozen=True, slots=True)
class Other:
    """A job that another job waited for, and for how long."""

    job_id: str
    ns: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a job's time went."""

    job_id: str
    arrival_ns: int
    start_ns: int
    finish_ns: int
    gpus: tuple[int, ...]
    servers: tuple[int, ...]
    iterations: int
    parts_ns: dict[str, int]
    """Each of PARTS; they add up to `jct_ns`."""
    others: dict[str, tuple[Other, ...]]
    """The jobs behind a part, at most five, with the most time first.

    `queued`: jobs that held GPUs meanwhile, in GPU time. `waiting_for_gpu`: jobs whose tasks ran on
    the critical GPUs; their times add up to the part. `waiting_for_admission` and
    `sending_under_contention`: jobs that had a message on the rails of this job's message
    meanwhile; several jobs can, so their times can add up to more. A job with a graph can be among
    them itself, if other messages of its own were in flight.
    """
    own_ns: dict[str, int] = field(default_factory=dict)
    """How much of a part is the doing of the job's own messages alone.

    That is the time of `waiting_for_admission` and `sending_under_contention` in which other
    messages of this job were on the rails of its message, and no message of another job.
    """
    entries: tuple[EntryTime, ...] = ()
    """The entries of a job's graph that are on critical paths, those with the most time first.

    Their times add up to all parts but `queued`. A job without a graph has none.
    """
    model: str = ""
    parallel: str = ""
    """How a job with a graph trains its model, if that is known."""

    @property
    def jct_ns(self) -> int:
        """The job's completion time."""
        return self.finish_ns - self.arrival_ns

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as `--json` writes them."""
        return {
            "job_id": self.job_id,
            "arrival_ns": self.arrival_ns,
            "start_ns": self.start_ns,
            "finish_ns": self.finish_ns,
            "jct_ns": self.jct_ns,
            "gpus": list(self.gpus),
            "servers": list(self.servers),
            "iterations": self.iterations,
            "model": self.model,
            "parallel": self.parallel,
            "parts_ns": self.parts_ns,
            "own_ns": self.own_ns,
            "others": {
                part: [{"job_id": other.job_id, "ns": other.ns} for other in others]
                for part, others in self.others.items()
            },
            "entries": [asdict(entry) for entry in self.entries],
        }


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Tasks, with a message once for each of its rails: the links of its GPUs to the network."""

    start_ns: Integers
    end_ns: Integers
    kind: Integers
    job: Integers
    node: Integers
    iteration: Integers
    gpu: Integers
    rail: Integers

    def where(self, chosen: NDArray[Any]) -> _Tasks:
        """Return the chosen tasks, ordered by their starts."""
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(self.start_ns[rows], kind="stable")]
        return self.take(rows)

    def take(self, rows: NDArray[np.intp]) -> _Tasks:
        """Return the tasks of these rows."""
        return _Tasks(*(getattr(self, name)[rows] for name in self.__slots__))

    @property
    def length_ns(self) -> Integers:
        """The duration of each task."""
        return self.end_ns - self.start_ns


def explain(run: RecordedRun, job_id: str) -> Explanation:
    """Return where the time of a job went.

    Raises:
        InputError: There is no such job, or the timeline does not cover the whole run.
    """
    try:
        return _explain(run, job_id)
    except InputError as error:
        raise error.at(run.source) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _damaged(job_id).at(run.source) from error


def _explain(run: RecordedRun, job_id: str) -> Explanation:
    if not run.covers_all:
        raise InputError(
            f"covers only {run.window}; explaining needs the timeline of the whole run, recorded "
            "without --from and --to."
        )
    job_ids = run.jobs["job_id"].to_list()
    if job_id not in job_ids:
        raise InputError(f"there is no job {shown(job_id)}.{did_you_mean(job_id, job_ids)}")
    job = job_ids.index(job_id)
    times = ("arrival_ns", "start_ns", "finish_ns")
    arrival_ns, start_ns, finish_ns = (int(run.jobs[name][job]) for name in times)
    tasks = _tasks(run)
    graph, gpus = run.graphs[job], np.sort(run.jobs["gpus"][job].to_numpy())
    near = (tasks.start_ns < finish_ns) & (tasks.end_ns > start_ns)
    if graph is None:
        path = _plain_path(tasks.where(tasks.job == job), start_ns)
    else:
        path = critical_path(run, job, graph, gpus, start_ns)
    found = _Sending(Counter(), Counter(), Counter())
    alone_ns = np.zeros(len(path.messages.node), np.int64)
    messages = tasks.where(near & (tasks.kind == COMMUNICATION))
    for nodes, rails in _by_rails(graph, run.rail_of_gpu[gpus], np.unique(path.messages.node)):
        own, near_own = np.isin(path.messages.node, nodes), np.isin(messages.rail, rails)
        alone_ns[own] = found.add(messages.where(near_own), path.messages.where(own), job)
    parts = {
        "queued": start_ns - arrival_ns,
        "computing": int(path.tasks.length_ns.sum()),
        "waiting_for_gpu": int(path.tasks.waiting_ns.sum()),
        "waiting_for_admission": int(path.messages.waiting_ns.sum()),
        "sending_alone": int(alone_ns.sum()),
        "sending_under_contention": int((path.messages.length_ns - alone_ns).sum()),
    }
    if sum(parts.values()) != finish_ns - arrival_ns or min(parts.values()) < 0:
        raise _damaged(job_id)
    waited: Counter[int] = Counter()
    for gpu in np.unique(path.tasks.gpu):
        here = path.tasks.where(path.tasks.gpu == gpu)
        theirs = tasks.where(near & (tasks.gpu == gpu) & (tasks.job != job))
        waited += _overlaps(theirs, here.ready_ns, here.start_ns)
    others = {
        "queued": _held(run, arrival_ns, start_ns),
        "waiting_for_gpu": waited,
        "waiting_for_admission": found.waiting,
        "sending_under_contention": found.sending,
    }
    return Explanation(
        job_id=job_id,
        arrival_ns=arrival_ns,
        start_ns=start_ns,
        finish_ns=finish_ns,
        gpus=tuple(gpus.tolist()),
        servers=tuple(np.unique(run.server_of_gpu[gpus]).tolist()),
        iterations=int(run.jobs["iterations"][job]),
        parts_ns=parts,
        others={part: _most(shares, job_ids) for part, shares in others.items()},
        own_ns={
            part: found.own_ns[part]
            for part in ("waiting_for_admission", "sending_under_contention")
        },
        entries=() if graph is None else entry_times(graph, path, alone_ns),
        model=run.jobs["model"][job],
        parallel=(run.jobs[PARALLEL][job] or "") if PARALLEL in run.jobs.columns else "",
    )


def _damaged(job_id: str) -> InputError:
    return InputError(f"is damaged: the tasks of job {shown(job_id)} are inconsistent.")


def _tasks(run: RecordedRun) -> _Tasks:
    """Return all tasks."""
    import polars

    compute, messages = run.tasks.filter(polars.col("gpu").is_not_null()), run.messages
    placed = PlacedMessages(run.graphs, run.rail_of_gpu)
    for job, gpus in enumerate(run.jobs["gpus"]):
        placed.place(job, np.sort(gpus.to_numpy()))
    of_message = placed.index_of(
        messages["job"].to_numpy(), messages["node"].fill_null(NOBODY).to_numpy()
    )
    row, rail = placed.servers.take(of_message).pairs()
    both = polars.concat([compute, messages[row]])
    return _Tasks(
        start_ns=both["start_ns"].to_numpy(),
        end_ns=both["end_ns"].to_numpy(),
        kind=both["kind"].to_physical().to_numpy(),
        job=both["job"].to_numpy(),
        node=both["node"].fill_null(NOBODY).to_numpy(),
        iteration=both["iteration"].to_numpy(),
        gpu=both["gpu"].fill_null(NOBODY).to_numpy(),
        rail=np.concatenate([run.rail_of_gpu[compute["gpu"].to_numpy()], rail]),
    )


def _plain_path(tasks: _Tasks, start_ns: int) -> Path:
    """Return the critical GPUs' tasks and the messages of a job without a graph."""
    forward, backward = tasks.where(tasks.kind == FORWARD), tasks.where(tasks.kind == BACKWARD)
    gpus, rails = np.unique(forward.gpu), np.unique(forward.rail)
    # The backward that ends last in each iteration, and the forward on the same GPU.
    order = np.lexsort((backward.gpu, -backward.end_ns, backward.iteration))
    backward = backward.take(order[:: len(gpus)])
    forward = forward.take(np.lexsort((forward.gpu, forward.iteration)))
    critical = np.arange(len(backward.gpu)) * len(gpus) + np.searchsorted(gpus, backward.gpu)
    forward = forward.take(critical)
    messages = tasks.where((tasks.kind == COMMUNICATION) & (tasks.rail == rails[0]))
    if (forward.gpu != backward.gpu).any():
        raise ValueError
    if len(messages.start_ns):
        first = np.searchsorted(messages.iteration, backward.iteration)
        after = np.searchsorted(messages.iteration, backward.iteration, side="right")
        if (first == after).any() or (first[1:] != after[:-1]).any():
            raise ValueError
        ready_ns = np.roll(messages.end_ns, 1)
        ready_ns[first] = backward.end_ns
        ended_ns = messages.end_ns[after - 1]
    else:
        ready_ns, ended_ns = messages.start_ns, backward.end_ns
    started_ns = np.concatenate([[start_ns], ended_ns[:-1]])
    return Path(
        Spans(
            ready_ns=np.concatenate([started_ns, forward.end_ns]),
            start_ns=np.concatenate([forward.start_ns, backward.start_ns]),
            end_ns=np.concatenate([forward.end_ns, backward.end_ns]),
            gpu=np.concatenate([forward.gpu, backward.gpu]),
            node=np.concatenate([forward.node, backward.node]),
            iteration=np.concatenate([forward.iteration, backward.iteration]),
        ),
        Spans(
            ready_ns,
            messages.start_ns,
            messages.end_ns,
            messages.gpu,
            messages.node,
            messages.iteration,
        ),
    )


def _by_rails(
    graph: Graph | None, rank_rails: Integers, nodes: Integers
) -> Iterator[tuple[list[int], Integers]]:
    """Yield messages that are on the same rails together, with these rails."""
    rails = message_servers(graph, rank_rails)
    first = NOBODY if graph is None else graph.expanded.tasks
    together: dict[bytes, list[int]] = defaultdict(list)
    for node in nodes.tolist():
        together[rails.of(node - first).tobytes()].append(node)
    for own in together.values():
        yield own, rails.of(own[0] - first)


@dataclass(slots=True)
class _Sending:
    """What is found of the messages on the critical path."""

    waiting: Counter[int]
    sending: Counter[int]
    """How long each job had messages on the same rails, before and after their admissions."""
    own_ns: Counter[str]
    """For how long only the job itself had others there, in each of these two parts."""

    def add(self, near: _Tasks, own: Spans, job: int) -> Integers:
        """Add messages that are on the same rails; `near` holds all messages there.

        Returns how long each is the only one on all its rails.
        """
        theirs = near.where(near.job != job)
        self._add_overlaps(theirs, own)
        their_waiting_ns = _overlap_ns(theirs, own.ready_ns, own.start_ns)
        their_sending_ns = _overlap_ns(theirs, own.start_ns, own.end_ns)
        all_waiting_ns = 0
        # Messages of one node never overlap each other.
        for node in np.unique(own.node):
            spans = own.where(own.node == node)
            other = (near.job != job) | (near.node != node)
            self._add_overlaps(near.where(other & (near.job == job)), spans)
            all_waiting_ns += _overlap_ns(near.where(other), spans.ready_ns, spans.start_ns)
        alone_ns = _alone_ns(near, own)
        contended_ns = int((own.length_ns - alone_ns).sum())
        self.own_ns["waiting_for_admission"] += all_waiting_ns - their_waiting_ns
        self.own_ns["sending_under_contention"] += contended_ns - their_sending_ns
        return alone_ns

    def _add_overlaps(self, others: _Tasks, own: Spans) -> None:
        self.waiting += _overlaps(others, own.ready_ns, own.start_ns)
        self.sending += _overlaps(others, own.start_ns, own.end_ns)


def _alone_ns(on_rails: _Tasks, messages: Spans) -> Integers:
    """Return how long each message is the only one on all its rails."""
    instants = np.unique(np.concatenate([on_rails.start_ns, on_rails.end_ns]))
    most = np.zeros(len(instants), np.int64)
    for rail in np.unique(on_rails.rail):
        here = on_rails.where(on_rails.rail == rail)
        begun = np.searchsorted(here.start_ns, instants, side="right")
        ended = np.searchsorted(np.sort(here.end_ns), instants, side="right")
        most = np.maximum(most, begun - ended)
    lone = most[:-1] == 1
    total = np.concatenate([[0], np.cumsum(np.where(lone, np.diff(instants), 0))])
    until = total[np.searchsorted(instants, messages.end_ns)]
    alone_ns: Integers = until - total[np.searchsorted(instants, messages.start_ns)]
    return alone_ns


def _overlaps(tasks: _Tasks, from_ns: Integers, to_ns: Integers) -> Counter[int]:
    """Return for how long of some spans each job had at least one of these tasks running."""
    return Counter(
        {
            job: _overlap_ns(tasks.where(tasks.job == job), from_ns, to_ns)
            for job in np.unique(tasks.job).tolist()
        }
    )


def _overlap_ns(tasks: _Tasks, from_ns: Integers, to_ns: Integers) -> int:
    """Return for how long of some spans at least one of these tasks, ordered by starts, runs."""
    if len(tasks.job) == 0:
        return 0
    start_ns, end_ns = _union(tasks)
    before_ns = [_before(start_ns, end_ns, instants) for instants in (from_ns, to_ns)]
    return int((before_ns[1] - before_ns[0]).sum())


def _union(tasks: _Tasks) -> tuple[Integers, Integers]:
    """Return the spans in which at least one of some tasks runs; they are ordered by starts."""
    latest_ns = np.maximum.accumulate(tasks.end_ns)
    first = np.concatenate([[True], tasks.start_ns[1:] > latest_ns[:-1]])
    return tasks.start_ns[first], latest_ns[np.append(np.flatnonzero(first)[1:] - 1, -1)]


def _before(start_ns: Integers, end_ns: Integers, time_ns: Integers) -> Integers:
    """Return how much of a sequence of disjoint spans lies before each instant."""
    total = np.concatenate([[0], np.cumsum(end_ns - start_ns)])
    begun = np.searchsorted(start_ns, time_ns, side="right")
    last_ns = np.concatenate([[0], end_ns])[begun]
    before: Integers = total[begun] - np.maximum(0, last_ns - time_ns)
    return before


def _held(run: RecordedRun, from_ns: int, to_ns: int) -> Counter[int]:
    """Return the GPU time for which each job held GPUs between two instants."""
    start_ns, finish_ns = run.jobs["start_ns"].to_numpy(), run.jobs["finish_ns"].to_numpy()
    overlap_ns = np.minimum(finish_ns, to_ns) - np.maximum(start_ns, from_ns)
    held_ns = np.maximum(0, overlap_ns) * run.jobs["gpu_count"].to_numpy()
    return Counter({int(job): int(held_ns[job]) for job in np.flatnonzero(held_ns)})


def _most(shares: Counter[int], job_ids: list[str]) -> tuple[Other, ...]:
    """Return the jobs with the largest shares."""
    order = sorted((job for job in shares if shares[job] > 0), key=lambda job: (-shares[job], job))
    return tuple(Other(job_ids[job], shares[job]) for job in order[:MAX_OTHERS])
