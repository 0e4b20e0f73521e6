"""A past live run as a recorded one, so that the same page shows both.

Nodes are servers, and their slots GPUs. An attempt at a job is a job of the recorded run. It
computes on its slots whenever it neither sends nor waits for admission: what it does between its
messages is not in the log.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.domain.errors import HeadwayError, InputError
from headway.domain.records import COMMUNICATION, COMPUTE, NOBODY, TASK, Records
from headway.live.core.job_state import JobState
from headway.live.daemon.event_log.parts import kept_parts, run_of
from headway.live.daemon.state_folder import StateFolder
from headway.live.past.activity import Activity, PastAttempt, PastJob
from headway.live.past.log import LogReader
from headway.policies.policy_set import PolicySet
from headway.results.columns import job_table, text
from headway.results.timeline.recorded import KINDS, LiveDetails, RecordedRun, task_schema
from headway.results.timeline.window import Window

if TYPE_CHECKING:
    import polars

Integers = NDArray[np.int64]


def is_log(path: str) -> bool:
    """Return whether a path is a state folder, or begins like an event log."""
    if Path(path).is_dir():
        return True
    try:
        with open(path, "rb") as stream:
            head = stream.read(16)
    except OSError:
        return False
    return head.startswith((b'{"headway_log"', b'{"event"'))


def read_recording(path: str) -> RecordedRun:
    """Read the past of a live cluster: a state folder, or one run by its log.

    Raises:
        InputError: There is no log, or no job in it.
    """
    given = Path(path)
    if given.is_dir():
        reader = LogReader(StateFolder(given).event_log)
        if not kept_parts(StateFolder(given).event_log):
            raise InputError("there is no event log in this folder.", source=path)
    elif (run := run_of(given.resolve())) is not None:
        reader = LogReader(given.resolve().with_name("events.jsonl"), only_run=run)
    else:
        reader = LogReader(given, is_file=True)
    from polars.exceptions import PolarsError

    try:
        reader.read()
        return recording(reader, path)
    except (ArithmeticError, LookupError, TypeError, ValueError, PolarsError) as error:
        raise InputError("is damaged: it has events that no run can have.", source=path) from error
    finally:
        reader.close()


def recording(reader: LogReader, source: str) -> RecordedRun:
    """Return what a reader has read as a recorded run."""
    activity = reader.activity
    bars = [_attempt_bar(one, activity) for one in activity.attempts]
    bars += [_queued_bar(job, activity) for job in activity.jobs.values() if not job.attempts]
    if not bars:
        raise InputError("no job has been submitted.", source=source)
    begun_ns = min(bar.arrival_ns for bar in bars)
    window = Window(0, max(bar.finish_ns for bar in bars) - begun_ns + 1)
    jobs = job_table(_job_columns(bars, begun_ns))
    unknown = (
        (max(0, from_ns - begun_ns), to_ns - begun_ns) for from_ns, to_ns in activity.unknown
    )
    return RecordedRun(
        source=source,
        window=window,
        tasks=_tasks(activity, jobs, begun_ns),
        jobs=jobs,
        settings=_settings(reader),
        server_gpus=tuple(activity.node_slots),
        graphs=(None,) * len(bars),
        live=LiveDetails(
            names=tuple(text(bar.job.spec.name) for bar in bars),
            last_states=tuple(bar.last_state for bar in bars),
            server_names=tuple(text(name) for name in activity.nodes),
            unknown=tuple((from_ns, to_ns) for from_ns, to_ns in unknown if to_ns > 0),
            begun_ns=begun_ns,
        ),
    )


class _Bar(NamedTuple):
    """An attempt, or a job that never got slots."""

    bar_id: str
    job: PastJob
    arrival_ns: int
    start_ns: int
    finish_ns: int
    last_state: JobState
    iterations: int = 0
    gpus: tuple[int, ...] = ()


def _attempt_bar(attempt: PastAttempt, activity: Activity) -> _Bar:
    """Return an attempt; a later one is queued from the end of the one before on."""
    job, first_gpu = attempt.job, [0, *accumulate(activity.node_slots)]
    at = job.attempts.index(attempt)
    queued_ns = job.attempts[at - 1].end_ns if at else job.submitted_ns
    end_ns = activity.now_ns if attempt.end_ns is None else attempt.end_ns
    return _Bar(
        attempt.name,
        job,
        min(attempt.start_ns, queued_ns or attempt.start_ns),
        attempt.start_ns,
        max(end_ns, attempt.start_ns + 1),
        attempt.state,
        attempt.iterations,
        tuple(first_gpu[activity.nodes[slot.node]] + slot.index for slot in attempt.slots),
    )


def _queued_bar(job: PastJob, activity: Activity) -> _Bar:
    if job.cancelled_ns is None:
        end_ns, last_state = activity.now_ns, JobState.QUEUED
    else:
        end_ns, last_state = job.cancelled_ns, JobState.CANCELLED
    return _Bar(job.job_id, job, job.submitted_ns, end_ns, end_ns, last_state)


def _job_columns(bars: list[_Bar], begun_ns: int) -> dict[str, list[Any]]:
    return {
        "job_id": [text(bar.bar_id) for bar in bars],
        "model": [text(bar.job.spec.model) for bar in bars],
        "gpu_count": [bar.job.spec.gpus for bar in bars],
        "iterations": [bar.iterations for bar in bars],
        "arrival_ns": [bar.arrival_ns - begun_ns for bar in bars],
        "start_ns": [bar.start_ns - begun_ns for bar in bars],
        "finish_ns": [bar.finish_ns - begun_ns for bar in bars],
        "jct_s": [(bar.finish_ns - bar.arrival_ns) / 1e9 for bar in bars],
        "jct_margin_s": [0.0] * len(bars),
        "waiting_s": [(bar.start_ns - bar.arrival_ns) / 1e9 for bar in bars],
        "gpus": [list(bar.gpus) for bar in bars],
        "energy_j": [0.0] * len(bars),
    }


def _settings(reader: LogReader) -> dict[str, Any]:
    """Return the settings of the latest run."""
    header, policy = reader.header, reader.activity.policy
    parts = {"placement": policy, "priority": "", "admission": "", "bucket_bytes": 0}
    with contextlib.suppress(HeadwayError):  # A file of policies may be gone.
        named = PolicySet.parse(policy)
        parts |= {name: getattr(named, name) for name in ("placement", "priority", "admission")}
        parts["bucket_bytes"] = named.bucket_bytes or 0
    return parts | {
        "seed": 0 if header is None else header.seed,
        "network": {} if header is None else asdict(header.network),
        "cluster": {},
    }


def _tasks(activity: Activity, jobs: polars.DataFrame, begun_ns: int) -> polars.DataFrame:
    """Return messages, and when slots compute, as a table of tasks ordered by their ends."""
    import polars

    job_ids = jobs["job_id"].to_list()
    schema = task_schema(job_ids, ())
    messages, compute = activity.messages(), _computing(activity, jobs, begun_ns)
    nodes = [list(attempt.nodes) for attempt in activity.attempts]
    sent = polars.DataFrame(
        {
            "job": messages.attempt,
            "iteration": messages.iteration,
            "servers": polars.Series(nodes, dtype=schema["servers"]).gather(messages.attempt),
            "ready_ns": messages.ready_ns - begun_ns,
            "start_ns": messages.start_ns - begun_ns,
            "end_ns": messages.end_ns - begun_ns,
        }
    ).with_columns(kind=polars.lit(KINDS[COMMUNICATION]))
    names = ("job", "iteration", "gpu", "start_ns", "end_ns")
    computed = polars.DataFrame({name: compute[name] for name in names}).with_columns(
        kind=polars.lit(KINDS[COMPUTE])
    )
    tasks = polars.concat([sent, computed], how="diagonal_relaxed")
    tasks = tasks.with_columns(
        job_id=polars.Series(job_ids, dtype=schema["job_id"]).gather(tasks["job"]),
        entry=polars.lit(None),
        node=polars.lit(None),
    )
    return tasks.select(polars.col(name).cast(kind) for name, kind in schema.items()).sort(
        "end_ns", maintain_order=True
    )


def _computing(activity: Activity, jobs: polars.DataFrame, begun_ns: int) -> Records:
    """Return when the slots of attempts compute, iteration by iteration."""
    messages, reports = activity.messages(), activity.iterations()
    order = np.lexsort((messages.ready_ns, messages.attempt))
    owner = messages.attempt[order]
    ready_ns, end_ns = messages.ready_ns[order] - begun_ns, messages.end_ns[order] - begun_ns
    by_attempt = np.argsort(reports.attempt, kind="stable")
    reported = reports.attempt[by_attempt]
    start, finish, gpus = (jobs[name].to_list() for name in ("start_ns", "finish_ns", "gpus"))
    found = []
    for attempt in range(len(activity.attempts)):
        own = slice(*np.searchsorted(owner, [attempt, attempt + 1]).tolist())
        told = by_attempt[slice(*np.searchsorted(reported, [attempt, attempt + 1]).tolist())]
        spans = _between(start[attempt], finish[attempt], ready_ns[own], end_ns[own])
        spans, iteration = _cut(spans, reports.at_ns[told] - begun_ns, reports.iterations[told])
        rows = np.zeros(len(iteration) * len(gpus[attempt]), TASK).view(np.recarray)
        for index, gpu in enumerate(gpus[attempt]):
            part = rows[index :: len(gpus[attempt])]
            part["start_ns"], part["end_ns"] = spans
            part["iteration"], part["gpu"] = iteration, gpu
        rows["job"], rows["node"], rows["ready_ns"] = attempt, NOBODY, NOBODY
        found.append(rows)
    return np.concatenate([np.zeros(0, TASK), *found]).view(np.recarray)


def _between(
    from_ns: int, to_ns: int, starts: Integers, ends: Integers
) -> tuple[Integers, Integers]:
    """Return what spans, ordered by their starts, leave of a stretch of time."""
    latest = np.maximum.accumulate(np.concatenate([[from_ns], ends]))
    until = np.concatenate([starts, [to_ns]])
    free = until > latest
    return latest[free], until[free]


def _cut(
    spans: tuple[Integers, Integers], at_ns: Integers, iterations: Integers
) -> tuple[tuple[Integers, Integers], Integers]:
    """Cut spans at the ends of iterations; return them with the iteration of each."""
    start, end = spans
    # A cut belongs to the span that it is inside of.
    owner = np.searchsorted(start, at_ns, side="left") - 1
    inside = (owner >= 0) & (at_ns < end[np.maximum(owner, 0)]) if len(start) else np.zeros(0, bool)
    cuts = at_ns[inside] if len(start) else at_ns[:0]
    starts = np.sort(np.concatenate([start, cuts]))
    ends = np.sort(np.concatenate([end, cuts]))
    # The iteration of a span is the first that is reported done at its end or later.
    which = np.searchsorted(at_ns, ends, side="left")
    known = np.concatenate([iterations - 1, [iterations[-1] if len(iterations) else 0]])
    return (starts, ends), known[which]
