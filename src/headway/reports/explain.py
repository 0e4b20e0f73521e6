"""Where a job's time went, and which jobs it waited for, from the timeline of a run.

A job's completion time is divided into parts that add up to it exactly, in nanoseconds:

- *queued*: from its arrival to its placement;
- *computing* and *waiting for its GPU*: the computing of an iteration lasts from its start to the
  end of its last backward task. The GPU of that task (the lowest number, if several end together)
  is the iteration's critical GPU: its forward and backward are computing, the rest is waiting;
- *waiting for admission*: from there to the start of the iteration's message, and from the end of
  a bucket to the start of the next;
- *sending alone* and *sending under contention*: the message's own time, with k = 1 and k > 1 where
  k is the maximum, over the job's servers, of the messages on the server.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.records import BACKWARD, COMMUNICATION, FORWARD, NOBODY
from headway.results.timeline.compiled import Integers
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
    `sending_under_contention`: jobs whose messages were on its servers meanwhile; several can be in
    flight at once, so their times can add up to more.
    """

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
            "parts_ns": self.parts_ns,
            "others": {
                part: [{"job_id": other.job_id, "ns": other.ns} for other in others]
                for part, others in self.others.items()
            },
        }


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Tasks, with a message once for each of its servers."""

    start_ns: Integers
    end_ns: Integers
    kind: Integers
    job: Integers
    iteration: Integers
    gpu: Integers
    server: Integers

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


@dataclass(frozen=True, slots=True)
class _Own:
    """The tasks of the explained job, by iteration and by message."""

    gpus: Integers
    servers: Integers
    started_ns: Integers
    """When each iteration started."""
    forward: _Tasks
    backward: _Tasks
    """The two tasks on each iteration's critical GPU."""
    ready_ns: Integers
    messages: _Tasks
    """When each message was ready, and the messages, once each."""


def explain(run: RecordedRun, job_id: str) -> Explanation:
    """Return where the time of a job went.

    Raises:
        InputError: There is no such job, or the timeline does not cover the whole run.
    """
    try:
        return _explain(run, job_id)
    except InputError as error:
        raise error.at(run.source) from None
    except (ArithmeticError, IndexError, ValueError) as error:
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
    own = _own(tasks.where(tasks.job == job), start_ns)
    near = (tasks.start_ns < finish_ns) & (tasks.end_ns > start_ns)
    on_servers = tasks.where(
        near & (tasks.kind == COMMUNICATION) & np.isin(tasks.server, own.servers)
    )

    computing_ns = own.forward.length_ns + own.backward.length_ns
    alone_ns = _alone_ns(on_servers, own.messages)
    parts = {
        "queued": start_ns - arrival_ns,
        "computing": int(computing_ns.sum()),
        "waiting_for_gpu": int((own.backward.end_ns - own.started_ns - computing_ns).sum()),
        "waiting_for_admission": int((own.messages.start_ns - own.ready_ns).sum()),
        "sending_alone": alone_ns,
        "sending_under_contention": int(own.messages.length_ns.sum()) - alone_ns,
    }
    if sum(parts.values()) != finish_ns - arrival_ns or min(parts.values()) < 0:
        raise _damaged(job_id)
    waited: Counter[int] = Counter()
    for gpu in np.unique(own.backward.gpu):
        here = own.backward.gpu == gpu
        theirs = tasks.where(near & (tasks.gpu == gpu) & (tasks.job != job))
        waited += _overlaps(theirs, own.started_ns[here], own.forward.start_ns[here])
        waited += _overlaps(theirs, own.forward.end_ns[here], own.backward.start_ns[here])
    theirs = _once(on_servers.where(on_servers.job != job))
    others = {
        "queued": _held(run, arrival_ns, start_ns),
        "waiting_for_gpu": waited,
        "waiting_for_admission": _overlaps(theirs, own.ready_ns, own.messages.start_ns),
        "sending_under_contention": _overlaps(theirs, own.messages.start_ns, own.messages.end_ns),
    }
    return Explanation(
        job_id=job_id,
        arrival_ns=arrival_ns,
        start_ns=start_ns,
        finish_ns=finish_ns,
        gpus=tuple(own.gpus.tolist()),
        servers=tuple(own.servers.tolist()),
        iterations=len(own.backward.gpu),
        parts_ns=parts,
        others={part: _most(shares, job_ids) for part, shares in others.items()},
    )


def _damaged(job_id: str) -> InputError:
    return InputError(f"is damaged: the tasks of job {shown(job_id)} are inconsistent.")


def _tasks(run: RecordedRun) -> _Tasks:
    """Return all tasks."""
    import polars

    compute = run.tasks.filter(polars.col("gpu").is_not_null())
    messages = run.messages.explode("servers")
    both = polars.concat([compute.drop("servers"), messages.drop("servers")])
    gpu = compute["gpu"].to_numpy()
    server = np.concatenate([run.server_of_gpu[gpu], messages["servers"].to_numpy()])
    return _Tasks(
        start_ns=both["start_ns"].to_numpy(),
        end_ns=both["end_ns"].to_numpy(),
        kind=both["kind"].to_physical().to_numpy(),
        job=both["job"].to_numpy(),
        iteration=both["iteration"].to_numpy(),
        gpu=both["gpu"].fill_null(NOBODY).to_numpy(),
        server=server,
    )


def _own(tasks: _Tasks, start_ns: int) -> _Own:
    """Arrange the tasks of the job by iteration and by message."""
    forward, backward = tasks.where(tasks.kind == FORWARD), tasks.where(tasks.kind == BACKWARD)
    gpus, servers = np.unique(forward.gpu), np.unique(forward.server)
    # The backward that ends last in each iteration, and the forward on the same GPU.
    order = np.lexsort((backward.gpu, -backward.end_ns, backward.iteration))
    backward = backward.take(order[:: len(gpus)])
    forward = forward.take(np.lexsort((forward.gpu, forward.iteration)))
    critical = np.arange(len(backward.gpu)) * len(gpus) + np.searchsorted(gpus, backward.gpu)
    forward = forward.take(critical)
    # Every iteration has the same number of messages.
    messages = tasks.where((tasks.kind == COMMUNICATION) & (tasks.server == servers[0]))
    buckets, remainder = divmod(len(messages.start_ns), len(backward.gpu))
    if remainder or (forward.gpu != backward.gpu).any():
        raise ValueError
    if buckets:
        ready_ns = np.roll(messages.end_ns, 1)
        ready_ns[::buckets] = backward.end_ns
        ended_ns = messages.end_ns[buckets - 1 :: buckets]
    else:
        ready_ns, ended_ns = messages.start_ns, backward.end_ns
    started_ns = np.concatenate([[start_ns], ended_ns[:-1]])
    return _Own(gpus, servers, started_ns, forward, backward, ready_ns, messages)


def _alone_ns(on_servers: _Tasks, messages: _Tasks) -> int:
    """Return how long messages are the only ones on all their servers."""
    if not len(messages.start_ns):
        return 0
    instants = np.unique(np.concatenate([on_servers.start_ns, on_servers.end_ns]))
    most = np.zeros(len(instants), np.int64)
    for server in np.unique(on_servers.server):
        here = on_servers.where(on_servers.server == server)
        begun = np.searchsorted(here.start_ns, instants, side="right")
        ended = np.searchsorted(np.sort(here.end_ns), instants, side="right")
        most = np.maximum(most, begun - ended)
    lone = most[:-1] == 1
    total = np.concatenate([[0], np.cumsum(np.where(lone, np.diff(instants), 0))])
    until = total[np.searchsorted(instants, messages.end_ns)]
    return int((until - total[np.searchsorted(instants, messages.start_ns)]).sum())


def _once(messages: _Tasks) -> _Tasks:
    """Return each message once, whatever its number of servers."""
    order = np.lexsort((messages.start_ns, messages.job))
    job, start_ns = messages.job[order], messages.start_ns[order]
    again = (job[1:] == job[:-1]) & (start_ns[1:] == start_ns[:-1])
    return messages.take(order[np.concatenate([[True], ~again])[: len(order)]])


def _overlaps(tasks: _Tasks, from_ns: Integers, to_ns: Integers) -> Counter[int]:
    """Return how long each job's tasks overlap some spans; a job's own tasks must not overlap."""
    shares: Counter[int] = Counter()
    for job in np.unique(tasks.job).tolist():
        theirs = tasks.where(tasks.job == job)
        shares[job] = int((_before(theirs, to_ns) - _before(theirs, from_ns)).sum())
    return shares


def _before(tasks: _Tasks, time_ns: Integers) -> Integers:
    """Return how much of a sequence of disjoint tasks lies before each instant."""
    total = np.concatenate([[0], np.cumsum(tasks.length_ns)])
    begun = np.searchsorted(tasks.start_ns, time_ns, side="right")
    last_ns = np.concatenate([[0], tasks.end_ns])[begun]
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
