"""Repeating a live run from its log, and converting it to a workload for the simulator."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from headway.domain.errors import InputError, shown
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.live.core.core import Core
from headway.live.core.events import AnyEvent, AnyInstruction, JobExited, PolicyChanged
from headway.live.core.jobs import LiveJob
from headway.live.core.state import CoreState
from headway.live.daemon.event_log.reader import open_event_log


@dataclass(frozen=True)
class Difference:
    """The first event for which the core's instructions differ from those in the log."""

    line: int
    event: AnyEvent
    logged: list[AnyInstruction]
    replayed: list[AnyInstruction]


@dataclass
class Replay:
    """The outcome of a replay, up to the first difference."""

    source: str
    policy: str
    events: int = 0
    decisions: int = 0
    submitted: int = 0
    """The number of jobs submitted."""
    truncated_line: int | None = None
    """The number of the last line, if that is incomplete."""
    difference: Difference | None = None
    job_fields: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Fields of a simulated job, by number of submission, for each job that did an iteration."""

    def workload(self) -> Workload:
        """Return the jobs that did an iteration as a workload for the simulator.

        A job arrives when it was submitted and does the iterations of its last attempt that did
        any. Times and bytes are the specification's, or measured. A job that shared no slots needs
        all the memory of the smallest of its slots.
        """
        jobs = []
        for number in sorted(self.job_fields):
            fields = self.job_fields[number]
            try:
                jobs.append(Job(**fields))
            except InputError as error:
                problem = f"job {fields['job_id']!r}: {error.problem}"
                raise InputError(problem, field=error.field, source=self.source) from None
        if not jobs:
            raise InputError("no job has done an iteration.", source=self.source)
        return Workload(jobs, self.source)


def replay(path: str | os.PathLike[str], *, allow_policy_files: bool = False) -> Replay:
    """Feed a log's events to a new core and compare its instructions with the log, line by line.

    `allow_policy_files` lets the log name policies in Python files, which are run.

    Raises:
        InputError: The file is not a log, or names a policy file without leave.
        PolicyError: A policy of the log does not compile.
    """
    with open_event_log(path) as log:
        header = log.header
        if not allow_policy_files:
            _refuse_policy_file(header.policy, log.source, 1)
        try:
            core = Core(header.policy, header.network, header.seed, header.leases)
        except InputError as error:
            raise error.at(log.source, 1) from None
        outcome = Replay(log.source, header.policy)
        for entry in log:
            if isinstance(entry.event, PolicyChanged) and not allow_policy_files:
                _refuse_policy_file(entry.event.policy, log.source, log.line)
            _record_exit(core.state, entry.event, outcome)
            try:
                replayed = core.handle(entry.event)
            except InputError as error:
                raise error.at(log.source, log.line) from None
            outcome.events += 1
            outcome.decisions += len(replayed)
            if replayed != entry.instructions:
                outcome.difference = Difference(log.line, entry.event, entry.instructions, replayed)
                break
        outcome.truncated_line = log.line if log.truncated else None
    for job in core.state.jobs.values():
        if not job.finished:
            _record_job(core.state, job, job.iterations, outcome)
    outcome.submitted = core.state.submitted
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


def _record_exit(state: CoreState, event: AnyEvent, outcome: Replay) -> None:
    """Record what a job did before the core handles its exit and frees its slots."""
    if isinstance(event, JobExited):
        job = state.job_of_attempt(event.job_id, event.attempt)
        if job is not None:
            # A job that succeeds without reporting iterations has done all that it was to do.
            unreported = job.spec.iterations or 0 if event.code == 0 else 0
            _record_job(state, job, job.iterations or unreported, outcome)


def _record_job(state: CoreState, job: LiveJob, iterations: int, outcome: Replay) -> None:
    if iterations == 0:
        return
    memory_bytes = job.spec.memory_bytes
    if job.exclusive:
        nodes = [state.arrays.nodes[name] for name in job.node_names] or state.arrays.nodes.values()
        memory_bytes = min((node.memory_bytes for node in nodes), default=0)
    outcome.job_fields[job.number] = {
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
