"""The folder of each attempt, which holds what its ranks printed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from headway.live.core.events import JobSpec, Slot
from headway.live.executors import Attempt
from headway.live.executors.node_tools import read_regular

RUNNING = "running.json"
"""The file in an attempt's folder that says with what it was launched."""

KEPT_JOBS, KEPT_ATTEMPTS = 1_000, 10
"""Of how many jobs folders of ended attempts are kept, and how many of each: the latest."""

_MAX_DIGITS = 15
"""Digits of a job's number from which new jobs can still be counted on."""


def folder_name(attempt: Attempt) -> str:
    """Return a valid file name for an attempt, whatever characters the job's id has."""
    return f"{quote(attempt.job_id, safe='')}.{attempt.number}"


def attempt_of(name: str) -> Attempt | None:
    """Return the attempt of a folder; None if the name is not one of `folder_name`."""
    job_id, _, number = name.rpartition(".")
    if not (number.isascii() and number.isdecimal()):
        return None
    attempt = Attempt(unquote(job_id), int(number))
    return attempt if folder_name(attempt) == name else None


def log_path(folder: Path, rank: int) -> Path:
    """Return the path of a rank's output in the folder of its attempt."""
    return folder / f"rank-{rank}.log"


class Launched(msgspec.Struct):
    """With what an attempt was launched."""

    spec: JobSpec
    slots: tuple[Slot, ...]


def launched_with(folder: Path) -> tuple[JobSpec | None, tuple[Slot, ...]]:
    """Return the job and the slots of a running attempt, or None and no slots."""
    try:
        found = msgspec.json.decode(read_regular(folder / RUNNING), type=Launched)
    except (OSError, msgspec.MsgspecError):
        return None, ()
    return found.spec, found.slots


def last_job(folder: Path) -> int:
    """Return the highest number of a job that has an attempt's folder, or 0."""
    names = os.listdir(folder) if folder.is_dir() else ()
    ids = [attempt.job_id for name in names if (attempt := attempt_of(name)) is not None]
    numbers = [job_id for job_id in ids if job_id.isascii() and job_id.isdecimal()]
    return max((int(number) for number in numbers if len(number) <= _MAX_DIGITS), default=0)


def remove_oldest(
    folder: Path, running: Collection[str], jobs: int = KEPT_JOBS, attempts: int = KEPT_ATTEMPTS
) -> None:
    """Remove all but the latest folders of each job's ended attempts, for the latest jobs."""
    by_job: dict[str, list[tuple[int, os.DirEntry[str]]]] = {}
    for entry in os.scandir(folder):
        attempt = attempt_of(entry.name)
        if attempt is not None and entry.name not in running:
            by_job.setdefault(attempt.job_id, []).append((attempt.number, entry))
    ended = [
        [entry for _, entry in sorted(one, key=lambda numbered: numbered[0])]
        for one in by_job.values()
    ]
    old = [entry for entries in ended for entry in entries[:-attempts]]
    if len(ended) > jobs:
        ended.sort(key=lambda entries: _modified(entries[-1]))
        old += [entry for entries in ended[:-jobs] for entry in entries[-attempts:]]
    for entry in old:
        shutil.rmtree(entry, ignore_errors=True)


def _modified(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:  # It is being removed concurrently.
        return 0.0
