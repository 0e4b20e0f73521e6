"""What the API says about jobs, nodes and the scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headway.live.api.daemon_calls import DaemonCalls
from headway.live.core.core import Core
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob
from headway.live.core.present_state import (
    PresentJob,
    PresentState,
    present_job,
    present_nodes,
    unfinished_jobs,
)
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.job_record import JobRecord
from headway.live.executors import Attempt
from headway.version import __version__

JOBS_PER_SLICE = 10
"""Jobs described before other tasks of the event loop get to run."""


def job_view(daemon: Daemon, job_id: str) -> dict[str, Any]:
    """Return a job's record, and why it is waiting."""
    record = daemon.registry[job_id]
    why = "" if record.finished else obstacle(daemon, record) or _why(daemon, job_id)
    view: dict[str, Any] = msgspec.to_builtins(record)
    if not record.finished and (known := daemon.core.job(job_id)) is not None:
        view["iterations"] = known.iterations  # the record may be some seconds old
        view["stuck"] = known.stuck
        view["ungated"] = daemon.is_ungated(known)
        why = and_ungated(daemon, known, why)
    return {"stuck": "", "ungated": False} | view | _predicted(daemon, record) | {"why": why}


def and_ungated(daemon: Daemon, job: LiveJob, why: str) -> str:
    """Return what a job does, and whether it should ask the gate and does not."""
    if not daemon.is_ungated(job):
        return why
    return f"{why.rstrip('.')}; does not ask the gate (add headway.torch.attach)."


def _why(daemon: Daemon, job_id: str) -> str:
    return daemon.core.why(job_id, daemon.clock.now_ns())


def _predicted(daemon: Daemon, record: JobRecord) -> dict[str, Any]:
    """Return the start and the end of a job by the latest forecast, on both clocks, and a note."""
    start_ns, finish_ns, note = daemon.predictions.of(record)
    ahead_s = time.time() - daemon.clock.now_ns() / 1e9
    return {
        "predicted_start_ns": start_ns,
        "predicted_start_at": None if start_ns is None else ahead_s + start_ns / 1e9,
        "predicted_finish_ns": finish_ns,
        "predicted_finish_at": None if finish_ns is None else ahead_s + finish_ns / 1e9,
        "prediction_note": note,
    }


def obstacle(daemon: Daemon, record: JobRecord) -> str:
    """Return what keeps an unfinished job from starting, other than the cluster; or nothing."""
    if record.state != JobState.RUNNING and daemon.store.problem:
        return f"the state cannot be written: {daemon.store.problem}"
    attempt = Attempt(record.job_id, record.attempts)
    if problem := daemon.attempts.start_problem(attempt):
        return f"{problem.rstrip('.')}; will be retried soon."
    waits_for = daemon.attempts.waits_for(attempt)
    return f"{waits_for}." if waits_for else ""


def node_views(daemon: Daemon) -> list[dict[str, Any]]:
    """Return all nodes, and why messages wait there."""
    listed = []
    for view in daemon.core.nodes():
        node: dict[str, Any] = msgspec.to_builtins(view)
        for message in node["waiting"]:
            message["why"] = daemon.core.why(message["job_id"])
        known = daemon.nodes.get(view.node)
        listed.append(node | {"address": known.address if known else ""})
    return listed


async def state_view(
    core: Core,
    policy: Callable[[], str],
    clock_ns: Callable[[], int],
    is_ungated: Callable[[LiveJob], bool] = lambda _: False,
) -> PresentState:
    """Return what a simulation needs to continue from here: unfinished jobs, nodes, settings.

    Other tasks of the event loop run in between. A job that they start or stop is described again,
    so that no slot appears to be held twice.
    """
    state = core.state
    described: dict[str, PresentJob] = {}
    while True:
        jobs = unfinished_jobs(state)
        changed = [job for job in jobs if not _still(job, described.get(job.job_id))]
        if not changed:
            return PresentState(
                clock_ns=clock_ns(),
                policy=policy(),
                network=state.arrays.network,
                nodes=present_nodes(state),
                jobs=[described[job.job_id] for job in jobs],
                start_ns=state.overheads.start_ns or 0,
                exit_ns=state.overheads.exit_ns or 0,
            )
        for index, job in enumerate(changed, start=1):
            described[job.job_id] = present_job(state, job, is_ungated(job))
            if index % JOBS_PER_SLICE == 0:
                await asyncio.sleep(0)


async def encoded_state(daemon: Daemon, calls: DaemonCalls) -> bytes:
    """Return the state as JSON, described in the scheduler's loop."""

    async def view() -> PresentState:
        return await state_view(
            daemon.core, lambda: daemon.policy, daemon.clock.now_ns, daemon.is_ungated
        )

    return await calls.shared("state", view)


def _still(job: LiveJob, seen: PresentJob | None) -> bool:
    """Return whether a job is in the state and on the slots in which it was described."""
    return seen is not None and seen.state is job.state and seen.slots is job.slots


def status_view(daemon: Daemon, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of the scheduler as a whole."""
    counts = daemon.core.counts
    return {
        "version": __version__,
        **settings,
        "policy": daemon.policy,
        "clock_s": round(daemon.clock.now_ns() / 1e9, 3),
        "jobs": daemon.registry.counts(),
        "nodes": len(daemon.nodes),
        "slots": sum(node.gpus for node in daemon.nodes.values()),
        "workers": daemon.grants.workers,
        "ungated": daemon.ungated(),
        "events": counts.events,
        "ignored_events": counts.ignored,
        "grants": counts.grants,
        "policy_problem": daemon.core.rules.failure,
        "storage_problem": daemon.store.problem,
        "log_problem": daemon.log.problem,
    }
