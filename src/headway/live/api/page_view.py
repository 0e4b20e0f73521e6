"""What pages show of a live cluster, read in the scheduler's loop, a little at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from headway.live.api.views import and_ungated, obstacle
from headway.live.core.events import Slot
from headway.live.core.job_state import FINISHED
from headway.live.core.reasons import FreeSlots, why_steadily
from headway.live.core.status import MessageStatus
from headway.live.core.turns import Turn
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.job_record import JobRecord
from headway.live.daemon.predictions import ForecastView

SLICE_S = 0.0001
"""How long jobs are looked at before other tasks of the event loop get to run."""


class NodeLook(NamedTuple):
    """A node."""

    name: str
    slots: int
    state: Literal["up", "draining", "lost"]


class JobLook(NamedTuple):
    """A job: its record, and what the record does not say."""

    record: JobRecord
    iterations: int
    stuck: str = ""
    why: str = ""
    predicted_start_ns: int | None = None
    predicted_finish_ns: int | None = None
    prediction_note: str = ""


class Problems(msgspec.Struct, frozen=True):
    """What does not work at present; empty texts if all does."""

    policy: str
    storage: str
    log: str


class Look(NamedTuple):
    """What has changed since the look before, and what changes all the time."""

    clock_ns: int
    policy: str
    problems: Problems
    nodes: list[NodeLook] | None
    """All nodes, if one of them has changed."""
    jobs: list[JobLook]
    """Changed jobs."""
    forgotten: list[str]
    """Changed jobs that the scheduler no longer remembers."""
    messages: list[MessageStatus]
    turns: dict[Slot, Turn]
    forecast: ForecastView | None


class PageView:
    """Looks at a scheduler; call it in the scheduler's loop."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._storage_problem = ""
        self._forecast: tuple[ForecastView | None, str] = (None, "")
        self._ungated: set[str] = set()

    async def first(self) -> tuple[Look, list[JobRecord]]:
        """Look at everything; return the finished jobs apart, as their records."""
        changes, registry = self._daemon.changes, self._daemon.registry
        changes.start()
        changes.nodes()
        finished = [record for record in registry.records() if record.finished]
        return await self._look([record.job_id for record in registry.unfinished()]), finished

    async def changes(self) -> Look:
        """Look at what has changed since the last look."""
        changes, state = self._daemon.changes, self._daemon.core.state
        jobs = changes.take_jobs() | dict.fromkeys(job.job_id for job in state.stuck.values())
        if changes.room_changed:
            jobs |= dict.fromkeys(job.job_id for job in state.queue.values())
        # Jobs come to be without the gate as time passes.
        ungated = set(self._daemon.ungated())
        jobs |= dict.fromkeys(sorted(self._ungated ^ ungated))
        self._ungated = ungated
        predictions = self._daemon.predictions
        forecast = (predictions.view, predictions.problem)
        if self._storage_problem != self._daemon.store.problem or self._forecast != forecast:
            jobs |= dict.fromkeys(one.job_id for one in self._daemon.registry.unfinished())
        return await self._look(jobs)

    async def _look(self, jobs: Iterable[str]) -> Look:
        daemon, changes = self._daemon, self._daemon.changes
        self._storage_problem = daemon.store.problem
        forecast = daemon.predictions.view
        self._forecast = (forecast, daemon.predictions.problem)
        # Noted from here on is what changes while these jobs are looked at.
        nodes = self._nodes() if changes.nodes_changed else None
        changes.nodes_changed = changes.room_changed = False
        looks, forgotten = await self._jobs(jobs)
        await asyncio.sleep(0)
        now_ns = daemon.clock.now_ns()
        return Look(
            clock_ns=now_ns,
            policy=daemon.policy,
            problems=Problems(daemon.core.rules.failure, daemon.store.problem, daemon.log.problem),
            nodes=nodes,
            jobs=looks,
            forgotten=forgotten,
            messages=daemon.core.messages(now_ns),
            turns=daemon.core.state.turns.holders.copy(),
            forecast=forecast,
        )

    def _nodes(self) -> list[NodeLook]:
        daemon = self._daemon
        found = [
            NodeLook(node.name, node.gpus, "draining" if daemon.is_drained(node.name) else "up")
            for node in daemon.nodes.values()
        ]
        return found + [NodeLook(node.name, node.gpus, "lost") for node in daemon.lost.values()]

    async def _jobs(self, jobs: Iterable[str]) -> tuple[list[JobLook], list[str]]:
        looks, forgotten = [], []
        # If this is outdated before all jobs have been looked at, the next look corrects it.
        free, until_s = (
            FreeSlots(self._daemon.core.state, self._daemon.clock.now_ns()),
            time.monotonic() + SLICE_S,
        )
        for job_id in jobs:
            if time.monotonic() > until_s:
                await asyncio.sleep(0)
                until_s = time.monotonic() + SLICE_S
            if job_id in self._daemon.registry:
                looks.append(self._job(job_id, free))
            else:
                forgotten.append(job_id)
        return looks, forgotten

    def _job(self, job_id: str, free: FreeSlots) -> JobLook:
        core, record = self._daemon.core, self._daemon.registry[job_id]
        known = core.job(job_id)
        if known is None or record.state in FINISHED:
            return JobLook(record, record.iterations)
        why = obstacle(self._daemon, record) or why_steadily(core.state, known, free)
        why = and_ungated(self._daemon, known, why)
        predicted = self._daemon.predictions.of(record)
        return JobLook(record, known.iterations, known.stuck, why, *predicted)
