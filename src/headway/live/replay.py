"""Repeating a live run from its log, and turning it into a workload for the simulator."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.live.core.core import Core
from headway.live.core.events import AnyEvent, AnyInstruction, JobExited
from headway.live.core.jobs import LiveJob
from headway.live.daemon.event_log.reader import open_event_log


@dataclass(frozen=True)
class Difference:
    """The first event to which this core answers something else than the log says."""

    line: int
    event: AnyEvent
    logged: list[AnyInstruction]
    answered: list[AnyInstruction]


@dataclass
class Replay:
    """How a repeated run went, up to its first difference."""

    source: str
    policy: str
    events: int = 0
    decisions: int = 0
    submitted: int = 0
    """How many jobs."""
    cut_line: int | None = None
    """The last line, if it ends in the middle."""
    difference: Difference | None = None
    did: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What each job did that did an iteration, by the number of its submission."""

    def workload(self) -> Workload:
        """Return the jobs that did an iteration as the simulator takes them.

        Arrival is when a job was submitted; iterations are those of its last attempt that did any;
        times and bytes are what it said or what was measured. A job that had slots to itself gets
        all the memory of the smallest of them.
        """
        jobs = []
        for number in sorted(self.did):
            try:
                jobs.append(Job(**self.did[number]))
            except InputError as error:
                problem = f"job {self.did[number]['job_id']!r}: {error.problem}"
                raise InputError(problem, field=error.field, source=self.source) from None
        if not jobs:
            raise InputError("no job has done an iteration.", source=self.source)
        return Workload(jobs, self.source)


def replay(path: str | os.PathLike[str]) -> Replay:
    """Feed a log's events to a new core and compare what it answers, line by line.

    Raises:
        InputError: The file is not a log.
        PolicyError: A policy of the log does not compile.
    """
    with open_event_log(path) as log:
        header = log.header
        try:
            core = Core(header.policy, header.network, header.seed)
        except InputError as error:
            raise error.at(log.source, 1) from None
        found = Replay(log.source, header.policy)
        for entry in log:
            _note_exit(core, entry.event, found)
            try:
                answered = core.handle(entry.event)
            except InputError as error:
                raise error.at(log.source, log.line) from None
            found.events += 1
            found.decisions += len(answered)
            if answered != entry.instructions:
                found.difference = Difference(log.line, entry.event, entry.instructions, answered)
                break
        found.cut_line = log.line if log.truncated else None
    for job in core.known.values():
        if not job.over:
            _note(core, job, job.iterations, found)
    found.submitted = core.submitted
    return found


def _note_exit(core: Core, event: AnyEvent, found: Replay) -> None:
    """Remember what a job has done before its attempt is over and its slots are free."""
    if isinstance(event, JobExited):
        job = core.attempt(event.job_id, event.attempt)
        if job is not None:
            # A job that counts no iterations and succeeds has done those that it was to do.
            asked_for = job.spec.iterations or 0
            _note(core, job, job.iterations or (asked_for if event.code == 0 else 0), found)


def _note(core: Core, job: LiveJob, iterations: int, found: Replay) -> None:
    if iterations == 0:
        return
    memory_bytes = job.spec.memory_bytes
    if job.alone:
        nodes = [core.view.nodes[name] for name in job.node_names] or core.view.nodes.values()
        memory_bytes = min((node.memory_bytes for node in nodes), default=0)
    found.did[job.number] = {
        "job_id": job.job_id,
        "arrival_ns": job.submitted_ns,
        "gpus": job.spec.gpus,
        "iterations": iterations,
        "forward_ns": job.forward_ns,
        "backward_ns": job.backward_ns,
        "gradient_bytes": job.gradient_bytes,
        "memory_bytes": memory_bytes,
        "model": job.spec.model,
    }
