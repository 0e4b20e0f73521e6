"""What every rank of an attempt is started with: torchrun's variables, and its GPUs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from headway.live.core import events
from headway.live.core.events import JobSpec, Slot
from headway.live.executors import Attempt
from headway.live.executors.nodes import LocalNode

NEVER_STARTED_VERDICT = (events.NEVER_STARTED, "the scheduler ended before it had started")
"""Code and reason of an attempt of which no process ever ran: it may be made anew at no risk."""

LONGEST_NUMBER = 15
"""Digits of a job's number that can be counted on from."""

KEPT = 1_000
"""How many attempts' folders are kept after they have ended: the latest."""


def ranks_of(
    attempt: Attempt,
    spec: JobSpec,
    slots: Sequence[Slot],
    nodes: Mapping[str, LocalNode],
    environment: Mapping[str, str],
    port: int,
) -> list[dict[str, Any]]:
    """Return what to start on each slot, in the order of ranks; they meet at rank 0's node.

    A rank sees all GPUs that its job has on the node, in the order of local ranks: as under
    torchrun, GPU number LOCAL_RANK is its own.
    """
    hosts = list(dict.fromkeys(slot.node for slot in slots))
    indices = {host: [slot.index for slot in slots if slot.node == host] for host in hosts}
    ranks = []
    for rank, slot in enumerate(slots):
        node, local = nodes[slot.node], indices[slot.node]
        variables = {
            **node.environment,
            **spec.environment,
            **environment,
            "RANK": rank,
            "WORLD_SIZE": len(slots),
            "LOCAL_RANK": local.index(slot.index),
            "LOCAL_WORLD_SIZE": len(local),
            "GROUP_RANK": hosts.index(slot.node),
            "GROUP_WORLD_SIZE": len(hosts),
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": len(slots),
            "MASTER_ADDR": nodes[hosts[0]].address,
            "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": name_of(attempt),
        }
        if node.cuda:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, local))
        ranks.append(
            {
                "rank": rank,
                "command": [*node.prefix, *spec.command],
                "folder": spec.folder,
                "environment": {name: str(value) for name, value in variables.items()},
            }
        )
    return ranks


def name_of(attempt: Attempt) -> str:
    """Return the name of an attempt, which is one of a file whatever the job is called."""
    return f"{quote(attempt.job_id, safe='')}.{attempt.number}"


def attempt_of(name: str) -> Attempt | None:
    """Return the attempt of this name, unless no attempt has it."""
    job, _, number = name.rpartition(".")
    if not number.isdecimal():
        return None
    attempt = Attempt(unquote(job), int(number))
    return attempt if name_of(attempt) == name else None


def log_of(folder: Path, rank: int) -> Path:
    """Return the file of what a rank printed."""
    return folder / f"rank-{rank}.log"


def last_job(folder: Path) -> int:
    """Return the highest number of a job of which an attempt's folder is there, or 0."""
    names = os.listdir(folder) if folder.is_dir() else ()
    jobs = [found.job_id for name in names if (found := attempt_of(name)) is not None]
    numbers = [job for job in jobs if job.isascii() and job.isdecimal()]
    return max((int(job) for job in numbers if len(job) <= LONGEST_NUMBER), default=0)


def forget_oldest(folder: Path, running: Collection[str], kept: int = KEPT) -> None:
    """Remove the folders of attempts that ended long ago, but for the latest."""
    ended = [
        entry
        for entry in os.scandir(folder)
        if entry.name not in running and attempt_of(entry.name) is not None
    ]
    if len(ended) > kept:
        ended.sort(key=_modified)
        for entry in ended[:-kept]:
            shutil.rmtree(entry, ignore_errors=True)


def _modified(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:  # Another removes it just now.
        return 0.0
