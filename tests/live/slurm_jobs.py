"""Jobs on a Slurm cluster for tests, and the settings of a scheduler there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from live.ports import free_ports
from live.scheduler_process import SchedulerProcess, python
from waiting import eventually

UNTIL_TOLD = """
import os, sys, time
open(sys.argv[1] + ".starts", "a").write("x")
words = [os.environ[name] for name in ("SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES", "LOCAL_RANK")]
print(*words, os.environ["WORLD_SIZE"], os.uname().nodename, flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
"""
"""Says where it is, then waits for a file; each start of a rank adds a character to another."""


def settings(more: str) -> str:
    return (
        f'gate_host = "127.0.0.1"\ngate_port = {free_ports(1)[0]}\n'
        f'[executor]\nkind = "slurm"\nmemory_mb = 1024\npoll_s = 1\n{more}'
    )


def submit(one: SchedulerProcess, script: str, go: Path, **values: Any) -> str:
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return one.submit(python(script, str(go)), environment=path, **values)


def starts(go: Path) -> int:
    """Return how often ranks were started."""
    path = go.with_name(f"{go.name}.starts")
    return len(path.read_text()) if path.exists() else 0


def words(one: SchedulerProcess, job: str, rank: int) -> list[str]:
    return b"".join(one.client.logs(job, rank=rank)).decode().split()


def wait_until_started(one: SchedulerProcess, job: str, go: Path, ranks: int) -> dict[str, Any]:
    """Wait until all ranks run; return the job."""
    eventually(lambda: starts(go) >= ranks)
    return one.wait_for(job, "running")
