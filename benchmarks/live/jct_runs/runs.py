"""Runs the benchmark's jobs on a scheduler on the testbed, and reads the times from its log."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scheduler_process import START_TIMEOUT_S, running_scheduler, wait_until

from headway.domain.errors import MachineError
from headway.live.api.client import Client
from headway.live.core.events import ComputeReady, JobExited, JobSubmitted, MessageDone
from headway.live.daemon.event_log.reader import open_event_log
from headway.live.replay import Replay, replay
from jct_runs.jobs import MEMORY_BYTES, Drawn, Profile

TRAINING = Path(__file__).with_name("training.py")

_RUN_TIMEOUT_S = 600.0
_SETTLING_S = 3.0
_GPU_MEMORY_MB = 16 * 1024

_SETTINGS = """\
[serve]
folder = "{folder}"
policy = "{policy}"
network = "{network}"
api_port = 0

[executor]
kind = "testbed"
testbed = "{testbed}"
slots = 1
memory_mb = {memory_mb}
"""


@dataclass(frozen=True, slots=True)
class Times:
    """When a job trained, in seconds since all jobs were ready."""

    began_s: float
    """When its first forward pass was ready to start."""
    trained_s: float
    """When its last all-reduce, and with it its last iteration, ended."""


@contextlib.contextmanager
def scheduler(folder: Path, testbed: str, policy: str, network: Path) -> Iterator[Client]:
    """Run a scheduler on a testbed."""
    folder.mkdir(mode=0o700)
    settings = _SETTINGS.format(
        folder=folder, policy=policy, network=network, testbed=testbed, memory_mb=_GPU_MEMORY_MB
    )
    with running_scheduler(folder, settings) as client:
        yield client


def run(
    client: Client, jobs: Sequence[Drawn], profiles: Sequence[Profile | None], folder: Path
) -> None:
    """Start jobs, let them train once all are ready, and wait until they have ended.

    They report in `folder` that they are ready. Starting them takes processor time, all of which is
    spent before training begins.
    """
    folder.mkdir()
    ids: list[str] = []
    for job, profile in zip(jobs, profiles, strict=True):
        submitted = client.submit(_specification(job, profile, folder))
        ids.append(str(submitted["job_id"]))
        if submitted["state"] == "queued":
            raise MachineError(f"job {ids[-1]} is queued: {submitted.get('why')}")
        # One at a time: many processes starting at once slow each other down.
        wait_until((folder / ids[-1]).exists, START_TIMEOUT_S, f"job {ids[-1]} did not start")
    time.sleep(_SETTLING_S)
    (folder / "go").touch()
    wait_until(lambda: _all_done(client, ids), _RUN_TIMEOUT_S, "jobs did not end")


def read_times(folder: Path) -> tuple[list[Times], Replay]:
    """Read each job's times from a run's log, and replay its decisions, which must be the same."""
    path = folder / "events.jsonl"
    replayed = replay(path)
    if replayed.difference is not None or replayed.truncated_line is not None:
        raise MachineError(f"{path} cannot be replayed.")
    submitted: list[str] = []
    began_ns: dict[str, int] = {}
    trained_ns: dict[str, int] = {}
    with open_event_log(path) as log:
        for entry in log:
            event = entry.event
            if isinstance(event, JobSubmitted):
                submitted.append(event.job_id)
            elif isinstance(event, ComputeReady):
                began_ns.setdefault(event.job_id, event.at_ns)
            elif isinstance(event, MessageDone):
                trained_ns[event.job_id] = event.at_ns
            elif isinstance(event, JobExited) and event.code != 0:
                raise MachineError(f"job {event.job_id} failed: {event.reason or event.code}")
    first_ns = min(began_ns.values())
    return [
        Times((began_ns[job] - first_ns) / 1e9, (trained_ns[job] - first_ns) / 1e9)
        for job in submitted
    ], replayed


def _specification(job: Drawn, profile: Profile | None, folder: Path) -> dict[str, object]:
    words = (job.gradient_bytes, job.forward_ms, job.backward_ms, job.iterations, folder)
    return {
        "command": [sys.executable, str(TRAINING), *map(str, words)],
        "folder": str(TRAINING.parent),
        "gpus": job.gpus,
        "memory_bytes": MEMORY_BYTES,
        "iterations": job.iterations,
        "environment": {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        **({} if profile is None else asdict(profile)),
    }


def _all_done(client: Client, ids: Sequence[str]) -> bool:
    found = {one["job_id"]: one for one in client.jobs()}
    for job_id in ids:
        job = found[job_id]
        if job["state"] in ("failed", "cancelled"):
            raise MachineError(f"job {job_id} {job['state']}: {job.get('reason')}")
    return all(found[job_id]["state"] == "done" for job_id in ids)
