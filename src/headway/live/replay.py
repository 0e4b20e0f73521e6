"""Repeating a live run from its log, and turning it into a workload for the simulator."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from headway.domain.errors import InputError
from headway.domain.job import Job as SimulatedJob
from headway.domain.workload import Workload
from headway.live.core import Core
from headway.live.events import AnyEvent, AnyInstruction, JobExited
from headway.live.jobs import Job
from headway.live.log import LogReader, open_log


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
    cut_line: int | None = None
    """The last line, if it ends in the middle."""
    difference: Difference | None = None
    jobs: dict[int, SimulatedJob] = field(default_factory=dict)
    """What each job did, by the number of its submission; those without an iteration are not here.
    """
    without_iterations: int = 0

    def workload(self) -> Workload:
        """Return the jobs of the run as the simulator takes them.

        Arrival is when a job was submitted; iterations are those of its last attempt that did any;
        times and bytes are what it said or what was measured. A job that has slots to itself gets
        all the memory of the smallest of them.
        """
        if not self.jobs:
            raise InputError("no job has done an iteration.", source=self.source)
        return Workload([self.jobs[number] for number in sorted(self.jobs)], self.source)


def replay(path: str | os.PathLike[str]) -> Replay:
    """Feed a log's events to a new core and compare what it answers, line by line.

    Raises:
        InputError: The file is not a log.
    """
    with open_log(path) as log:
        header = log.header
        try:
            core = Core(header.policy, header.network, header.seed)
        except InputError as error:
            raise error.at(log.source, 1) from None
        found = Replay(log.source, header.policy)
        for entry in log:
            answered = _answer(core, entry.event, log, found)
            found.events += 1
            found.decisions += len(answered)
            if answered != entry.instructions:
                found.difference = Difference(log.line, entry.event, entry.instructions, answered)
                break
        found.cut_line = log.line if log.cut else None
        for job in core.known.values():
            if not job.over:
                _note(core, job, found, log, exited=False)
    found.without_iterations = core.submitted - len(found.jobs)
    return found


def _answer(core: Core, event: AnyEvent, log: LogReader, found: Replay) -> list[AnyInstruction]:
    if isinstance(event, JobExited):
        job = core.known.get(event.job)
        if job is not None and event.attempt == job.attempts and job.seats:
            _note(core, job, found, log, exited=event.code == 0)
    try:
        return core.handle(event)
    except InputError as error:
        raise error.at(log.source, log.line) from None


def _note(core: Core, job: Job, found: Replay, log: LogReader, exited: bool) -> None:
    """Remember what a job has done, if it has done anything."""
    iterations = job.iterations or (job.spec.iterations or 0 if exited else 0)
    if iterations == 0:
        return
    memory_bytes = job.spec.memory_bytes
    if job.alone:
        memory_bytes = min(core.view.nodes[name].memory_bytes for name in job.node_names)
    try:
        found.jobs[job.number] = SimulatedJob(
            job_id=job.name,
            arrival_ns=job.submitted_ns,
            gpus=job.spec.gpus,
            iterations=iterations,
            forward_ns=job.forward_ns,
            backward_ns=job.backward_ns,
            gradient_bytes=job.gradient_bytes,
            memory_bytes=memory_bytes,
            model=job.spec.model,
        )
    except InputError as error:
        raise error.at(log.source, log.line) from None
