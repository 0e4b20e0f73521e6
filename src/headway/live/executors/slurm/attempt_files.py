"""The files of an attempt that its nodes and the scheduler share; all nodes see its folder.

- plan-NODE.json: what to start on a node; only the process that renames it may start it (to
  running-NODE.json) or withdraw it (to withdrawn-NODE.json);
- port: the rendezvous port, written by rank 0's node;
- ended-NODE.json: the outcome on a node; blank until then;
- rank-R.log: the output of rank R;
- running.json: with what the attempt was launched, if the database is lost;
- srun.log or slurm.log: what Slurm said.

`port` and `ended-NODE.json` exist from the start and are written in place: on a network file system
a file that was seen to be missing may seem so for half a minute, but opening a file shows what was
written before it was closed.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from headway.live.executors.attempt_tracker import Outcome
from headway.live.executors.node_tools import read_outcome, read_regular
from headway.live.executors.shim import RESERVED_BYTES, write_outcome

PORT = "port"
_PLAN, _RUNNING, _WITHDRAWN = "plan-", "running-", "withdrawn-"
_JSON = ".json"


def write_plans(folder: Path, plans: dict[str, dict[str, Any]]) -> None:
    """Write the plan of each node, and reserve space for the outcomes."""
    (folder / PORT).touch(0o600)
    for node, plan in plans.items():
        (folder / f"ended-{node}{_JSON}").write_bytes(b" " * RESERVED_BYTES)
        (folder / f"{_PLAN}{node}{_JSON}").write_text(json.dumps(plan))


def claim(folder: Path, node: str) -> dict[str, Any] | None:
    """Return the plan of a node, once; None if it was started or withdrawn."""
    running = folder / f"{_RUNNING}{node}{_JSON}"
    try:
        os.rename(folder / f"{_PLAN}{node}{_JSON}", running)
    except FileNotFoundError:
        return None
    plan: dict[str, Any] = json.loads(running.read_bytes())
    return plan


def allocation_on(folder: Path, node: str) -> str | None:
    """Return the allocation that a node was in when the attempt was launched; None if unknown."""
    for state in (_RUNNING, _PLAN, _WITHDRAWN):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            plan = json.loads(read_regular(folder / f"{state}{node}{_JSON}"))
            return str(plan["allocation"])
    return None


def is_claimed(folder: Path, node: str) -> bool:
    """Return whether a node has started its plan."""
    return (folder / f"{_RUNNING}{node}{_JSON}").exists()


def withdraw(folder: Path, node: str) -> bool:
    """Keep a node from starting its plan; False if it has started."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder / f"{_PLAN}{node}{_JSON}", folder / f"{_WITHDRAWN}{node}{_JSON}")
    return (folder / f"{_WITHDRAWN}{node}{_JSON}").exists()


def outcome_on(folder: Path, node: str) -> Outcome | None:
    """Return the outcome on a node; None if there is none yet."""
    return read_outcome(folder, f"ended-{node}{_JSON}")


def report(folder: Path, node: str, outcome: Outcome) -> None:
    """Write the outcome on a node."""
    write_outcome(folder / f"ended-{node}{_JSON}", *outcome)


def write_port(folder: Path, port: int) -> None:
    """Publish the rendezvous port."""
    (folder / PORT).write_text(f"{port}\n")


def read_port(folder: Path) -> int | None:
    """Return the rendezvous port; None if it is not known yet."""
    with contextlib.suppress(OSError):
        text = read_regular(folder / PORT).decode(errors="replace")
        if text.endswith("\n") and text.strip().isdecimal():
            return int(text)
    return None
