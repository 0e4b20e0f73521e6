"""Repeating a live run from its log, and converting it to a workload for the simulator."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError, shown
from headway.domain.gpus import V100
from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.graphs.ddp import bucketed
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    AnyInstruction,
    IterationProfiled,
    JobExited,
    JobRestored,
    JobSubmitted,
    NodeUp,
    PolicyChanged,
)
from headway.live.core.jobs import LiveJob
from headway.live.core.present_state import ESTIMATES, unknown
from headway.live.core.state import CoreState
from headway.live.daemon.event_log.parts import headless_runs, log_runs, open_run
from headway.live.daemon.event_log.reader import EventLogReader, open_event_log
from headway.live.daemon.state_folder import StateFolder
from headway.network.contention import NetworkModel

_TIMES = {"forward_ns", "backward_ns"}

LEAST_MEMORY_BYTES = 2**20
"""What a slot has at least in a cluster file."""


@dataclass(frozen=True)
class Difference:
    """The first event for which the core's instructions differ from those in the log."""

    line: int
    event: AnyEvent
    logged: list[AnyInstruction]
    replayed: list[AnyInstruction]


@dataclass
class History:
    """What ran under one scheduler after the other, for the simulator."""

    source: str
    network: NetworkModel = field(default_factory=NetworkModel)
    """The network that the latest run assumed."""
    nodes: list[tuple[int, int]] = field(default_factory=list)
    """Slots and bytes a slot of every node that was up when there were most slots."""
    submitted: set[str] = field(default_factory=set)
    """The ids of all jobs."""
    job_fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of a simulated job, by id, for each job that did an iteration."""
    profiles: dict[str, IterationProfiled] = field(default_factory=dict)
    """The average iteration of each job whose buckets were measured, by id."""
    known: dict[str, set[str]] = field(default_factory=dict)
    """Which of a simulated job's times and bytes were declared or measured, by id."""

    def unmeasured(self) -> list[str]:
        """Return the jobs that did iterations whose times were neither declared nor measured."""
        return [
            job_id
            for job_id in self.job_fields
            if _TIMES - self.known[job_id] and job_id not in self.profiles
        ]

    def workload(self, *, graphs: bool = True) -> Workload:
        """Return the jobs that did an iteration of known times as a workload for the simulator.

        A job arrives when it was submitted and does the iterations of its last attempt that did
        any. A job that had its slots to itself is exclusive and needs all the memory of the
        smallest of them. A job whose buckets were measured has the graph of its average iteration,
        unless without `graphs`; the times and bytes of others are the specification's, or measured.
        """
        jobs = []
        unmeasured = set(self.unmeasured())
        for fields in sorted(self.job_fields.values(), key=lambda one: int(one["arrival_ns"])):
            if fields["job_id"] in unmeasured:
                continue
            profile = self.profiles.get(fields["job_id"]) if graphs else None
            known = fields if profile is None else _with_graph(fields, profile)
            if profile is None and "gradient_bytes" not in self.known[fields["job_id"]]:
                known = fields | {"gradient_bytes": 0}  # It has sent nothing that it asked for.
            try:
                jobs.append(Job(**known))
            except InputError as error:
                problem = f"job {fields['job_id']!r}: {error.problem}"
                raise InputError(problem, field=error.field, source=self.source) from None
        if not jobs:
            raise InputError(
                "no job has done an iteration whose times were declared or measured.",
                source=self.source,
            )
        return Workload(jobs, self.source)

    def cluster(self) -> Cluster:
        """Return the nodes as servers, in order, with GPUs that run jobs at their own times."""
        groups = [
            ServerGroup(len(list(alike)), gpus, replace(V100, memory_bytes=memory_bytes))
            for (gpus, memory_bytes), alike in itertools.groupby(self.nodes)
        ]
        try:
            if len(groups) == 1:
                (one,) = groups
                return Cluster(one.servers, one.gpus_per_server, one.gpu.memory_bytes)
            return Cluster.of(groups)
        except InputError as error:
            raise InputError(error.problem, field=error.field, source=self.source) from None


def _with_graph(fields: dict[str, Any], profile: IterationProfiled) -> dict[str, Any]:
    """Return the fields of a job with a graph instead of times and bytes."""
    kept = {name: value for name, value in fields.items() if name not in ESTIMATES}
    found = kept | {"graph": _graph(fields["gpus"], profile)}
    return found | {"parallel": "ddp" if fields["model"] else ""}


def _graph(ranks: int, profile: IterationProfiled) -> Graph:
    """Return the graph of a job's average iteration; a task takes at least 1 ns."""
    cuts = [(max(1, one.backward_ns), one.bucket_bytes) for one in profile.buckets]
    return bucketed(ranks, max(1, profile.forward_ns), cuts, profile.optimizer_ns)


@dataclass
class Replay:
    """The outcome of replaying one run, up to the first difference."""

    policy: str
    history: History
    run: int | None = None
    """The number of the run, if its folder was replayed."""
    events: int = 0
    decisions: int = 0
    truncated_line: int | None = None
    """The number of the last line, if that is incomplete."""
    difference: Difference | None = None


def replay(path: str | os.PathLike[str], *, allow_policy_files: bool = False) -> Replay:
    """Feed a log's events to a new core and compare its instructions with the log, line by line.

    `allow_policy_files` lets the log name policies in Python files, which are run.

    Raises:
        InputError: The file is not a log, or names a policy file without leave.
        PolicyError: A policy of the log does not compile.
    """
    with open_event_log(path) as log:
        return _replay(log, History(log.source), allow_policy_files)


def replay_folder(folder: Path, *, allow_policy_files: bool = False) -> Iterator[Replay]:
    """Replay all runs of a state folder, in order; all have one history.

    Runs whose first part is gone are left out; see `headless_runs`.

    Raises:
        InputError: There is no log, or it is none of Headway's.
        PolicyError: A policy of a log does not compile.
    """
    link = StateFolder(folder).event_log
    headless = headless_runs(link)
    runs = sorted(log_runs(link) - headless)
    if not runs:
        problem = "the first part of every log is gone." if headless else "there is no event log."
        raise InputError(problem, source=str(folder))
    history = History(str(folder))
    for run in runs:
        with open_run(link, run) as log:
            outcome = _replay(log, history, allow_policy_files)
        outcome.run = run
        yield outcome
        if outcome.difference is not None:
            return


def _replay(log: EventLogReader, history: History, allow_policy_files: bool) -> Replay:
    header = log.header
    if not allow_policy_files:
        _refuse_policy_file(header.policy, log.source, 1)
    try:
        core = Core(header.policy, header.network, header.seed, header.leases)
    except InputError as error:
        raise error.at(log.source, 1) from None
    history.network = header.network
    outcome = Replay(header.policy, history)
    for entry in log:
        if isinstance(entry.event, PolicyChanged) and not allow_policy_files:
            _refuse_policy_file(entry.event.policy, log.source, log.line)
        _record_exit(core.state, entry.event, history)
        try:
            replayed = core.handle(entry.event)
        except InputError as error:
            raise error.at(log.source, log.line) from None
        _record_arrival(core.state, entry.event, history)
        outcome.events += 1
        outcome.decisions += len(replayed)
        if replayed != entry.instructions:
            outcome.difference = Difference(log.line, entry.event, entry.instructions, replayed)
            break
    outcome.truncated_line = log.line if log.truncated else None
    for job in core.state.jobs.values():
        if not job.finished:
            _record_job(core.state, job, job.iterations, history)
    return outcome


def _refuse_policy_file(policy: str, source: str, line: int) -> None:
    """Refuse to run a file only because a log names it."""
    if ".py:" in policy:
        raise InputError(
            f"names the policy {shown(policy, 80)}, whose file would be run; if you trust it, give "
            "--allow-policy-files.",
            source=source,
            line=line,
        )


def _record_arrival(state: CoreState, event: AnyEvent, history: History) -> None:
    """Record a new job, or the nodes if there have never been more slots."""
    if isinstance(event, JobSubmitted | JobRestored):
        history.submitted.add(event.job_id)
    elif isinstance(event, NodeUp):
        nodes = [
            (node.gpus, max(node.memory_bytes, LEAST_MEMORY_BYTES))
            for node in state.arrays.nodes.values()
        ]
        if _slots(nodes) >= _slots(history.nodes):
            history.nodes = nodes


def _slots(nodes: list[tuple[int, int]]) -> int:
    return sum(gpus for gpus, _ in nodes)


def _record_exit(state: CoreState, event: AnyEvent, history: History) -> None:
    """Record what a job did before the core handles its exit and frees its slots."""
    if isinstance(event, JobExited):
        job = state.job_of_attempt(event.job_id, event.attempt)
        if job is not None:
            # A job that succeeds without reporting iterations has done all that it was to do.
            unreported = job.spec.iterations or 0 if event.code == 0 else 0
            _record_job(state, job, job.iterations or unreported, history)


def _record_job(state: CoreState, job: LiveJob, iterations: int, history: History) -> None:
    if iterations == 0:
        return
    memory_bytes = job.spec.memory_bytes
    if job.exclusive:
        nodes = [state.arrays.nodes[name] for name in job.node_names] or state.arrays.nodes.values()
        smallest = min((node.memory_bytes for node in nodes), default=0)
        memory_bytes = max(smallest, LEAST_MEMORY_BYTES)
    fields = {
        "job_id": job.job_id,
        "arrival_ns": job.submitted_ns,
        "gpus": job.spec.gpus,
        "iterations": iterations,
        "forward_ns": job.forward_ns,
        "backward_ns": job.backward_ns,
        "gradient_bytes": job.gradient_bytes,
        "memory_bytes": memory_bytes,
        "model": job.spec.model,
        "priority": job.spec.priority,
        "exclusive": job.exclusive,
    }
    if earlier := history.job_fields.get(job.job_id):
        fields["arrival_ns"] = earlier["arrival_ns"]
        for name in ESTIMATES:
            # After a restart nothing is measured yet.
            if name not in job.measured:
                fields[name] = earlier[name]
    history.job_fields[job.job_id] = fields
    history.known.setdefault(job.job_id, set()).update(set(ESTIMATES) - set(unknown(job)))
    if job.profile is not None:
        history.profiles[job.job_id] = job.profile
