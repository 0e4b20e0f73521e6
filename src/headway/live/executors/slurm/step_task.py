"""Runs the ranks of an attempt on one node of a Slurm cluster, as the node's task of its step.

    python -P -m headway.live.executors.slurm.step_task FOLDER

It exits with 1 if they failed, so that `srun --kill-on-bad-exit` ends the other nodes' tasks.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.live.executors import attempt_tracker, shim
from headway.live.executors.rendezvous import first_free_port
from headway.live.executors.slurm import attempt_files
from headway.ray_session import interface_of

PORT_TIMEOUT_S = 60.0
"""How long rank 0's node may take to start after this one."""

_POLL_S = 0.05
_EVERYWHERE = "0.0.0.0"


class _StoppedError(Exception):
    """SIGTERM came before any rank was started."""


def main(folder: Path, variables: Mapping[str, str]) -> int:
    """Run the plan of this node, unless it was withdrawn, and write its outcome."""
    node = variables["SLURMD_NODENAME"]
    # From the claim on, no SIGTERM may end this process without an outcome.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    plan = attempt_files.claim(folder, node)
    if plan is None:
        return 0
    try:
        signal.signal(signal.SIGTERM, _stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        outcome = _run(plan, folder, variables)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    except _StoppedError:
        outcome = (shim.STOPPED, "stopped")
    attempt_files.report(folder, node, outcome)
    return int(outcome[0] != 0)


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm may send another one.
    raise _StoppedError


def _run(
    plan: dict[str, Any], folder: Path, variables: Mapping[str, str]
) -> attempt_tracker.Outcome:
    node = variables["SLURMD_NODENAME"]
    try:
        _complete(plan, folder, variables)
    except OSError as error:
        return shim.OUT_OF_RESOURCES, f"could not start on {node}: {error}"
    except ValueError as error:
        return shim.COULD_NOT_START, f"could not start on {node}: {error}"
    return shim.run_plan(folder, plan)


def _complete(plan: dict[str, Any], folder: Path, variables: Mapping[str, str]) -> None:
    """Add to a plan what is known on its node only: port, GPUs, network interface."""
    added = {"MASTER_PORT": str(_port(plan, folder)), **_visible_devices(plan, variables)}
    defaults = {}
    interface = _interface(plan["address"])
    if interface is not None:
        # The network that Slurm uses, whatever the node's host name resolves to.
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        defaults = {name: interface for name in names if name not in variables}
    for rank in plan["ranks"]:
        rank["environment"] = {**defaults, **rank["environment"], **added}


def _port(plan: dict[str, Any], folder: Path) -> int:
    """Agree on the rendezvous port: rank 0's node chooses one that is free there."""
    if plan["ports"]:
        port = first_free_port(_EVERYWHERE, plan["ports"])
        attempt_files.write_port(folder, port)
        return port
    deadline_s = time.monotonic() + PORT_TIMEOUT_S
    while (found := attempt_files.read_port(folder)) is None:
        if time.monotonic() > deadline_s:
            raise OSError(f"rank 0 did not start within {PORT_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)
    return found


def _visible_devices(plan: dict[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    """Return which of the step's GPUs the ranks of this node see."""
    wanted: list[int] = plan["devices"]
    if not wanted:
        return {}
    given = [word for word in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    if len(given) <= max(wanted):
        raise ValueError(f"it needs GPU {max(wanted)}, and Slurm gave the step {len(given)}")
    return {"CUDA_VISIBLE_DEVICES": ",".join(given[index] for index in wanted)}


def _interface(address: str) -> str | None:
    try:
        return interface_of(socket.gethostbyname(address))
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), os.environ))
