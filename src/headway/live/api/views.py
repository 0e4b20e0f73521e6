"""What the API says about jobs, nodes and the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.live.core.job_state import JobState
from headway.live.daemon.daemon import Daemon
from headway.live.executors import Attempt
from headway.version import __version__


def job_view(daemon: Daemon, job_id: str) -> dict[str, Any]:
    """Return a job's record, and why it is waiting."""
    record = daemon.registry[job_id]
    why = "" if record.finished else daemon.core.why(job_id)
    if not record.finished and record.state != JobState.RUNNING and daemon.store.problem:
        why = f"the state cannot be written: {daemon.store.problem}"
    elif problem := daemon.attempts.start_problem(Attempt(job_id, record.attempts)):
        why = f"{problem}; will be retried soon."
    view: dict[str, Any] = msgspec.to_builtins(record)
    if not record.finished and (known := daemon.core.job(job_id)) is not None:
        view["iterations"] = known.iterations  # the record may be some seconds old
        view["stuck"] = known.stuck
    return {"stuck": ""} | view | {"why": why}


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
        "events": counts.events,
        "ignored_events": counts.ignored,
        "grants": counts.grants,
        "policy_problem": daemon.core.rules.failure,
        "storage_problem": daemon.store.problem,
        "log_problem": daemon.log.problem,
    }
