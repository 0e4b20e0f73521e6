"""Runs the benchmark's jobs on a scheduler on the testbed, and reads their times."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scheduler_process import START_TIMEOUT_S, running_scheduler, wait_until

from headway.domain.errors import MachineError
from headway.domain.workload import Workload
from headway.live.api.client import Client
from headway.live.replay import replay
from jct_runs.jobs import MEMORY_BYTES, Drawn, Profile

TRAINING = Path(__file__).with_name("training.py")

WARM_UP_ITERATIONS = 1
"""Those that training.py does before a job is ready."""

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
slots = {slots}
memory_mb = {memory_mb}
"""


@dataclass(frozen=True, slots=True)
class Times:
    """When a job trained, in seconds since all jobs were ready."""

    began_s: float
    """When its first iteration after the warm-up began."""
    trained_s: float
    """When its last iteration ended."""


@contextlib.contextmanager
def scheduler(
    folder: Path, testbed: str, policy: str, network: Path, slots: int = 1
) -> Iterator[Client]:
    """Run a scheduler on a testbed whose hosts have this many slots."""
    folder.mkdir(mode=0o700)
    settings = _SETTINGS.format(
        folder=folder,
        policy=policy,
        network=network,
        testbed=testbed,
        slots=slots,
        memory_mb=_GPU_MEMORY_MB,
    )
    with running_scheduler(folder, settings) as client:
        yield client


def run(client: Client, specifications: Sequence[dict[str, Any]], folder: Path) -> None:
    """Start jobs, let them train once all are ready, and wait until they have ended.

    They report in `folder`, their last argument, that they are ready. Starting them takes
    processor time, all of which is spent before training begins.
    """
    folder.mkdir()
    ids: list[str] = []
    for specification in specifications:
        submitted = client.submit(specification)
        ids.append(str(submitted["job_id"]))
        if submitted["state"] == "queued":
            raise MachineError(f"job {ids[-1]} is queued: {submitted.get('why')}")
        # One at a time: many processes starting at once slow each other down.
        wait_until((folder / ids[-1]).exists, START_TIMEOUT_S, f"job {ids[-1]} did not start")
    time.sleep(_SETTLING_S)
    (folder / "go").touch()
    wait_until(lambda: _all_done(client, ids), _RUN_TIMEOUT_S, "jobs did not end")


def read_times(folder: Path) -> list[Times]:
    """Return when each job trained, as its rank 0 wrote it, since the first one began."""
    files = sorted(
        (one for one in folder.iterdir() if one.name.isdigit()), key=lambda f: int(f.name)
    )
    spans_ns = [tuple(map(int, file.read_text().split())) for file in files]
    first_ns = min(began_ns for began_ns, _ in spans_ns)
    return [
        Times((began_ns - first_ns) / 1e9, (trained_ns - first_ns) / 1e9)
        for began_ns, trained_ns in spans_ns
    ]


def exported(folder: Path, *, graphs: bool = True) -> Workload:
    """Return the jobs of a run as `headway replay --workload` exports them from its log."""
    path = folder / "events.jsonl"
    replayed = replay(path)
    if replayed.difference is not None or replayed.truncated_line is not None:
        raise MachineError(f"{path} cannot be replayed.")
    return replayed.history.workload(graphs=graphs)


def shared_job(job: Drawn, profile: Profile | None, folder: Path) -> dict[str, Any]:
    """Return the specification of a job that shares its GPUs, and takes turns to compute."""
    declared = dict.fromkeys(("forward_ns", "backward_ns", "gradient_bytes"))
    if profile is not None:
        declared = asdict(profile)
    return specification(job, 1, folder) | {"memory_bytes": MEMORY_BYTES, **declared}


def specification(job: Drawn, buckets: int, folder: Path) -> dict[str, Any]:
    """Return the specification of a job with this many buckets of gradients."""
    words = (job.gradient_bytes, job.forward_ms, job.backward_ms, job.iterations, buckets, folder)
    return {
        "command": [sys.executable, str(TRAINING), *map(str, words)],
        "folder": str(TRAINING.parent),
        "gpus": job.gpus,
        "iterations": WARM_UP_ITERATIONS + job.iterations,
        "forward_ns": job.forward_ms * 1_000_000,
        "backward_ns": job.backward_ms * 1_000_000,
        "gradient_bytes": job.gradient_bytes,
        "environment": {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    }


def _all_done(client: Client, ids: Sequence[str]) -> bool:
    found = {one["job_id"]: one for one in client.jobs()}
    for job_id in ids:
        job = found[job_id]
        if job["state"] in ("failed", "cancelled"):
            raise MachineError(f"job {job_id} {job['state']}: {job.get('reason')}")
    return all(found[job_id]["state"] == "done" for job_id in ids)
