"""Old parts of an event log without the routine of the jobs that fill them.

A worker that reports without end would otherwise push everybody's history out of the log.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from pathlib import Path

from headway.live.core.events import (
    ComputeDone,
    ComputeReady,
    GrantMessage,
    GrantTurn,
    IterationDone,
    IterationProfiled,
    MessageDone,
    MessageReady,
    WakeAt,
)

SHARE = 16
"""A job whose routine fills more than one part in this many of a file loses it there."""
PREFIX = "thinned-"

_EVENTS = (
    MessageReady,
    MessageDone,
    ComputeReady,
    ComputeDone,
    IterationDone,
    IterationProfiled,
)
_INSTRUCTIONS = (GrantMessage, GrantTurn, WakeAt)
_KINDS = re.compile(rb'"type":"(\w+)"')
_ROUTINE = {kind.__name__.encode() for kind in (*_EVENTS, *_INSTRUCTIONS)}
_JOB = re.compile(rb'"job_id":"([^"]*)"')


def thinned_path(part: Path) -> Path:
    """Return where what is left of a part is kept."""
    return part.with_name(part.name.replace("events-", PREFIX, 1))


def thinned_parts(link: Path) -> list[Path]:
    """Return what is left of old parts, the oldest first."""
    return sorted(link.parent.glob(f"{PREFIX}*.jsonl"))


def thin(part: Path) -> None:
    """Replace a part by what is left of it: no routine of jobs that fill it."""
    with part.open("rb") as lines:
        sizes = Counter[bytes]()
        for line in lines:
            if job := _routine_of(line):
                sizes[job] += len(line)
        share_bytes = lines.tell() // SHARE
    noisy = {job for job, size in sizes.items() if size > share_bytes}
    path = thinned_path(part)
    try:
        with part.open("rb") as lines, open(os.open(path, _CREATE, 0o600), "wb") as kept:
            kept.writelines(line for line in lines if _routine_of(line) not in noisy)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
    part.unlink()


_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


def _routine_of(line: bytes) -> bytes | None:
    """Return the job whose routine a line is: a report and at most a grant; else None."""
    if not _ROUTINE.issuperset(_KINDS.findall(line)):
        return None
    job = _JOB.search(line)
    return job[1] if job else None
