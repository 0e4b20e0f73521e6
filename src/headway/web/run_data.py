"""A recorded run as the page reads it: an overview of bounded size, and exact parts of it.

All blocks have the layout of `headway.web.columns`. The overview has what the page needs to draw a
whole run: jobs, servers, and means over equal periods. Parts have the spans of a stretch of time,
to the nanosecond. docs/reference/page-data.md lists all values and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.domain.errors import InputError
from headway.results.columns import PARALLEL
from headway.results.display import describe_sharing
from headway.results.timeline.recorded import RecordedRun
from headway.results.usage import Integers
from headway.version import __version__
from headway.web.activity import (
    ComputeTasks,
    MessageGroups,
    Spans,
    compute_tasks,
    joined,
    message_groups,
    union,
)
from headway.web.columns import pack, spread, steps
from headway.web.periods import Periods

if TYPE_CHECKING:
    import polars

FORMAT = 1

PART_ROWS = 100_000
"""Spans in a part, about."""

_JOB_PERIODS, _MAX_JOB_PERIODS = 1 << 18, 512
_SERVER_PERIODS, _MAX_PERIODS = 1 << 20, 1024
_LEAST_PERIODS = 8


Explain = Callable[[RecordedRun, str], dict[str, Any]]
"""Tells where the time of a job went, given its id; raises InputError if it cannot."""


class RunData:
    """The blocks of one run."""

    def __init__(self, run: RecordedRun, name: str, explain: Explain | None = None) -> None:
        self._run, self._explain = run, explain
        self.name = name

    @cached_property
    def overview(self) -> bytes:
        """The overview."""
        run, jobs = self._run, self._run.jobs
        settings = run.settings
        server_rack, racks = _racks(settings["cluster"], run.servers)
        values = {
            "format": FORMAT,
            "headway": __version__,
            "name": self.name,
            "window": [run.window.from_ns, run.window.to_ns],
            "whole": run.covers_all,
            **{name: settings[name] for name in ("placement", "priority", "admission")},
            "bucket_bytes": settings["bucket_bytes"],
            "seed": settings["seed"],
            "network": settings["network"],
            "job_id": jobs["job_id"].to_list(),
            "model": _models(jobs),
            "entry": self._groups.entries,
            "rack": racks,
            "part_from": self._edges[:-1],
            "periods": self._periods,
            **_kind_values(run),
        }
        groups = self._groups.servers
        columns: dict[str, Any] = {
            "arrival": jobs["arrival_ns"].to_numpy(),
            "start": jobs["start_ns"].to_numpy(),
            "finish": jobs["finish_ns"].to_numpy(),
            "gpu_count": jobs["gpu_count"].to_numpy(),
            "iterations": jobs["iterations"].to_numpy(),
            "gpu": jobs["gpus"].explode().drop_nulls().to_numpy(),
            "server_gpus": run.server_gpus,
            "server_rack": server_rack,
            "group_size": [len(servers) for servers in groups],
            "group_server": list(chain.from_iterable(groups)),
            **_gpus_held(run),
            **self._job_columns(),
            **self._cluster_columns(),
        }
        return pack(values, columns)

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self._edges) - 1

    def part(self, number: int) -> bytes:
        """Return a part, numbered in the order of time."""
        from_ns, to_ns = self._edges[number], self._edges[number + 1]
        spans, messages = self._computing, self._groups.messages
        inside = (spans.start_ns < to_ns) & (spans.end_ns > from_ns)
        spans = spans.where(inside)
        messages = messages.where((messages.ready_ns < to_ns) & (messages.end_ns > from_ns))
        columns = {
            "computing_job_step": steps(spans.job),
            "computing_gap": _gaps(spans.start_ns, spans.end_ns),
            "computing_length": spans.end_ns - spans.start_ns,
            "message_job_step": steps(messages.job),
            "message_group_step": steps(messages.group),
            "message_entry": messages.entry,
            "message_iteration_step": steps(messages.iteration),
            "message_gap": _gaps(messages.ready_ns, messages.end_ns),
            "message_wait": messages.start_ns - messages.ready_ns,
            "message_length": messages.end_ns - messages.start_ns,
        }
        return pack({"from": from_ns, "to": to_ns}, columns)

    def all_parts(self, max_bytes: int) -> list[bytes] | None:
        """Return all parts, or None if they are larger than that together."""
        parts, total = [], 0
        for number in range(self.parts):
            parts.append(self.part(number))
            total += len(parts[-1])
            if total > max_bytes:
                return None
        return parts

    def explanation(self, job_id: str) -> dict[str, Any] | None:
        """Return where a job's time went and which jobs it waited for.

        It is None if there is no such job, or if that cannot be told from this run.
        """
        if self._explain is None or not self._run.covers_all:
            return None
        try:
            return self._explain(self._run, job_id)
        except InputError:
            return None

    @cached_property
    def _tasks(self) -> ComputeTasks:
        return compute_tasks(self._run)

    @cached_property
    def _computing(self) -> Spans:
        """When jobs compute: at least one of their GPUs does."""
        return union(self._tasks.spans, len(self._run.jobs))

    @cached_property
    def _groups(self) -> MessageGroups:
        return message_groups(self._run)

    @cached_property
    def _edges(self) -> list[int]:
        """Where parts begin, and where the last one ends."""
        window = self._run.window
        starts = np.sort(np.concatenate([self._computing.start_ns, self._groups.messages.start_ns]))
        inner = np.unique(starts[PART_ROWS::PART_ROWS])
        inside = inner[(inner > window.from_ns) & (inner < window.to_ns)]
        return [window.from_ns, *inside.tolist(), window.to_ns]

    @property
    def _periods(self) -> int:
        periods = _SERVER_PERIODS // self._run.servers
        return min(max(_LEAST_PERIODS, periods), _MAX_PERIODS)

    def _job_columns(self) -> dict[str, Any]:
        jobs, tasks, messages = self._run.jobs, self._tasks, self._groups.messages
        count = min(max(_LEAST_PERIODS, _JOB_PERIODS // len(jobs)), _MAX_JOB_PERIODS)
        periods = Periods(
            jobs["start_ns"].to_numpy(),
            jobs["finish_ns"].to_numpy(),
            np.full(len(jobs), count, np.int64),
        )
        spans, sending, waiting = self._computing, messages.in_flight, messages.waiting
        shares = {
            "computing": periods.mean(spans.job, spans.start_ns, spans.end_ns),
            # Messages of one job can overlap: a share is at most 1.
            "sending": periods.mean(sending.job, sending.start_ns, sending.end_ns),
            "waiting": periods.mean(waiting.job, waiting.start_ns, waiting.end_ns),
        }
        first = np.searchsorted(tasks.spans.job, np.arange(len(jobs)))
        ended = periods.count_before(tasks.spans.job, tasks.spans.end_ns)
        row = np.repeat(first, count) + np.maximum(0, ended - 1)
        owner = np.repeat(np.arange(len(jobs)), count)
        # A job that was not recorded has no tasks.
        known = row < len(tasks.iteration)
        known[known] = tasks.spans.job[row[known]] == owner[known]
        iteration = np.zeros(len(row), np.int64)
        iteration[known] = tasks.iteration[row[known]] + (ended[known] > 0)
        with_messages = union(joined(spans, sending), len(jobs))
        with_waiting = union(joined(with_messages, waiting), len(jobs))
        total_ns = [part.total_ns(len(jobs)) for part in (spans, with_messages, with_waiting)]
        return {
            "computing_total": total_ns[0],
            "sending_total": total_ns[1] - total_ns[0],
            "waiting_total": total_ns[2] - total_ns[1],
            "job_periods": periods.count,
            **{name: np.rint(255 * np.minimum(1, share)) for name, share in shares.items()},
            "iteration_step": steps(iteration),
        }

    def _cluster_columns(self) -> dict[str, Any]:
        run, tasks, messages = self._run, self._tasks, self._groups.messages
        window, periods = run.window, self._periods
        whole = Periods.alike(1, window.from_ns, window.to_ns, periods)

        def mean(start_ns: Integers, end_ns: Integers) -> Any:
            return np.rint(100 * whole.mean(np.zeros(len(start_ns), np.int64), start_ns, end_ns))

        server, message = spread(self._groups.servers, messages.group)
        start_ns = np.clip(messages.start_ns, window.from_ns, window.to_ns)[message]
        end_ns = np.clip(messages.end_ns, window.from_ns, window.to_ns)[message]
        inside = start_ns < end_ns
        each = Periods.alike(run.servers, window.from_ns, window.to_ns, periods)
        on_server = (server[inside], start_ns[inside], end_ns[inside])
        return {
            "gpus_computing": mean(tasks.spans.start_ns, tasks.spans.end_ns),
            "in_flight": mean(messages.start_ns, messages.end_ns),
            "unadmitted": mean(messages.ready_ns, messages.start_ns),
            "server_mean": np.rint(100 * each.mean(*on_server)),
            "server_most": each.most(*on_server),
        }


def _models(jobs: polars.DataFrame) -> list[str]:
    """Return the model of each job and, if that is known, how it is trained in parallel."""
    models: list[str] = jobs["model"].to_list()
    if PARALLEL not in jobs.columns:
        return models
    pairs = zip(models, jobs[PARALLEL], strict=True)
    return [f"{model} {parallel}" if parallel else model for model, parallel in pairs]


def _kind_values(run: RecordedRun) -> dict[str, Any]:
    """Return what only live runs have, or only simulated ones."""
    live = run.live
    if live is None:
        return {"sharing": describe_sharing(run.exclusive_jobs, len(run.jobs))}
    return {
        "job_name": live.names,
        "last_state": live.last_states,
        "server": live.server_names,
        "unknown": live.unknown,
        "begun_ms": live.begun_ns // 10**6,
    }


def _gpus_held(run: RecordedRun) -> dict[str, Any]:
    """Return how many GPUs are listed of each job, unless all that it needs."""
    listed, needed = run.jobs["gpus"].list.len().to_numpy(), run.jobs["gpu_count"].to_numpy()
    return {} if (listed == needed).all() else {"gpus_held": listed}


def _gaps(start_ns: Integers, end_ns: Integers) -> Integers:
    """Return how long after the end of the span before each span begins."""
    return start_ns - np.concatenate([[0], end_ns[:-1]]) if len(start_ns) else start_ns


def _racks(cluster: dict[str, Any], servers: int) -> tuple[list[int], list[str]]:
    """Return the rack of each server, and the racks' names; none if there is but one.

    Racks are the switches of the lowest tier.
    """
    lowest: dict[str, Any] = next(iter(cluster.get("tiers", ())), {})
    size = lowest.get("servers_per_switch") or cluster.get("servers_per_rack")
    if size:
        of_server = [server // size for server in range(servers)]
        names = [str(rack) for rack in range(of_server[-1] + 1)]
    else:
        groups = cluster.get("groups", ())
        of_group = [(group.get("switches") or [group["rack"]])[0] for group in groups]
        names = list(dict.fromkeys(of_group))
        of_server = [
            names.index(rack)
            for rack, group in zip(of_group, groups, strict=True)
            for _ in range(group["servers"])
        ]
    return (of_server, names) if len(names) > 1 else ([0] * servers, [])
