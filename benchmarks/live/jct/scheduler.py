"""A scheduler on the testbed for one run of the benchmark, and what its log says of the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs import MEMORY_BYTES, Drawn, Profile

from headway.domain.errors import InputError, MachineError
from headway.live.api.client import Client, find
from headway.live.core.events import ComputeReady, JobExited, JobSubmitted, MessageDone
from headway.live.daemon.event_log.reader import open_event_log
from headway.live.replay import Replay, replay

TRAINING = Path(__file__).with_name("training.py")

_STARTING_S = 120.0
_RUN_S = 600.0
_SETTLING_S = 3.0
_POLL_S = 0.25
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
class Went:
    """How a job went, in seconds since all jobs were ready to train."""

    began_s: float
    """When its first forward pass was ready."""
    trained_s: float
    """When its last all-reduce had ended, and with it its last iteration."""


@contextlib.contextmanager
def scheduler(folder: Path, testbed: str, policy: str, network: Path) -> Iterator[Client]:
    """Serve on a testbed for as long as this lasts; jobs that are left then end too."""
    folder.mkdir(mode=0o700)
    config = folder.with_suffix(".toml")
    config.write_text(
        _SETTINGS.format(
            folder=folder,
            policy=policy,
            network=network,
            testbed=testbed,
            memory_mb=_GPU_MEMORY_MB,
        )
    )
    command = [sys.executable, "-m", "headway", "serve", "--stop-jobs", "--config", str(config)]
    with folder.with_suffix(".log").open("wb") as notices:
        process = subprocess.Popen(command, stderr=notices)
        try:
            yield _found(folder, process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def run(
    client: Client, jobs: Sequence[Drawn], profiles: Sequence[Profile | None], folder: Path
) -> None:
    """Start jobs, let them train when all are ready, and wait for their ends.

    `folder` is where they say that they are ready. Starting them takes the processor's time, and
    all of it is over when they begin.
    """
    folder.mkdir()
    names = []
    for job, profile in zip(jobs, profiles, strict=True):
        submitted = client.submit(_specification(job, profile, folder))
        names.append(str(submitted["job_id"]))
        if submitted["state"] == "queued":
            raise MachineError(f"job {names[-1]} waits for a place: {submitted.get('why')}")
        # One after the other: many processes that start at once keep each other from it.
        _until((folder / names[-1]).exists, _STARTING_S, f"job {names[-1]} did not start")
    time.sleep(_SETTLING_S)
    (folder / "go").touch()
    _until(lambda: _all_done(client, names), _RUN_S, "jobs did not end")


def went(folder: Path) -> tuple[list[Went], Replay]:
    """Read a run's log: how each job went, and the decisions, which must come out again."""
    path = folder / "events.jsonl"
    repeated = replay(path)
    if repeated.difference is not None or repeated.cut_line is not None:
        raise MachineError(f"{path} cannot be repeated.")
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
        Went((began_ns[job] - first_ns) / 1e9, (trained_ns[job] - first_ns) / 1e9)
        for job in submitted
    ], repeated


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


def _all_done(client: Client, names: Sequence[str]) -> bool:
    found = {one["job_id"]: one for one in client.jobs()}
    for name in names:
        if found[name]["state"] in ("failed", "cancelled"):
            raise MachineError(f"job {name} {found[name]['state']}: {found[name].get('reason')}")
    return all(found[name]["state"] == "done" for name in names)


def _until(true: Callable[[], object], patience_s: float, problem: str) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline:
            raise MachineError(f"{problem}.")
        time.sleep(_POLL_S)


def _found(folder: Path, process: subprocess.Popen[bytes]) -> Client:
    deadline = time.monotonic() + _STARTING_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(InputError):
            client = find(folder)
            client.status()
            return client
        time.sleep(_POLL_S)
    raise MachineError(f"the scheduler did not start: see {folder.with_suffix('.log')}.")
