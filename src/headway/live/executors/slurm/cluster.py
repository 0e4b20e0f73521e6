"""A Slurm cluster as the executor sees it: an allocation, its nodes, attempts. Calls may block."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headway.domain.errors import InputError
from headway.files import open_output
from headway.live import operator_log
from headway.live.core.events import JobSpec
from headway.live.executors.rank_plans import LaunchNode
from headway.live.executors.slurm.lines import Directives, NodeShare, SlurmLines
from headway.slurm import programs
from headway.slurm.nodes import MEBIBYTE, AllocatedNode, SlurmJob, SlurmNode
from headway.slurm.programs import SlurmError, Unit

POLL_S = 10.0
ALLOCATION_VARIABLE = "SLURM_JOB_ID"
"""The variable in which a job finds its own id."""


class SlurmSettings(msgspec.Struct, frozen=True):
    """How to use a Slurm cluster.

    Attempts are steps of `allocation`, a job's id, or of one with `nodes` nodes that is asked for;
    with `batch`, each is a batch job. None takes what the cluster says.
    """

    batch: bool = False
    allocation: str | None = None
    nodes: int = 1
    partition: str = ""
    slots: int | None = None
    memory_bytes: int | None = None
    directives: Directives = Directives()
    allocation_directives: Directives = Directives()
    poll_s: float = POLL_S

    def lines(self, identity: str) -> SlurmLines:
        """Return the builder of commands."""
        return SlurmLines(identity, self.directives, self.allocation_directives, self.partition)

    def dry_run(self, folder: Path) -> list[str]:
        """Return the commands for Slurm, as text; what only Slurm or a policy knows is in capitals.

        `folder` holds the attempts' folders.
        """
        lines, spec = self.lines("SCHEDULER"), JobSpec(command=())
        attempt, nodes = folder / "JOB.ATTEMPT", ["NODE", "NODE"]
        if self.batch:
            share = NodeShare("GPUS", "CPUS", "MEMORY_MB")
            words = lines.batch(attempt.name, attempt, nodes, share, spec)
            return [shlex.join(["sbatch", "--parsable", *words])]
        allocation = self.allocation or os.environ.get(ALLOCATION_VARIABLE)
        asking = [] if allocation else [["sbatch", "--parsable", *lines.allocation(self.nodes)]]
        step = lines.step(allocation or "ALLOCATION", attempt.name, attempt, nodes, "GPUS", spec)
        return [shlex.join(words) for words in (*asking, step)]


class SlurmCluster:
    """The nodes that attempts can run on, and the steps or jobs that they are.

    `path` is the file with the id of an allocation that was asked for. While the allocation is
    `closed`, its steps may still have processes, but none can start. `ended` says that an
    allocation is over, with all its processes; the caller resets it.
    """

    def __init__(self, settings: SlurmSettings, identity: str, path: Path) -> None:
        self._settings, self._path = settings, path
        self._lines = settings.lines(identity)
        self._release = (0, 0)
        self._allocation: str | None = None
        self._waits_for = ""
        self._mine: dict[str, AllocatedNode] = {}
        self._found: dict[str, SlurmNode] = {}
        self.closed = self.ended = False
        self.nodes: dict[str, LaunchNode] = {}
        self.draining: frozenset[str] = frozenset()

    def connect(self) -> None:
        """Check that Slurm is here and accepts jobs, and find or ask for the allocation."""
        self._release = programs.version()
        if self._settings.batch:
            programs.check_submission(self._lines.probe())
            return
        if self._given() is not None:
            self._allocation = self._given()
            self._check_given()
            return
        with contextlib.suppress(FileNotFoundError):
            asked = self._path.read_text()
            found = programs.job(asked)
            # Slurm counts from 1 again when it is reinstalled.
            if found is None or found.name == self._lines.allocation_name:
                self._allocation = asked
        self._find_allocation()

    def find_nodes(self) -> None:
        """Find the nodes that are up; ask for another allocation if ours has ended."""
        self._found = {node.name: node for node in programs.nodes(self._release)}
        if self._settings.batch:
            mine = {
                name: AllocatedNode(self._found[name].cpus, self._found[name].gpus)
                for name in self._batch_nodes()
                if name in self._found
            }
        else:
            mine = self._allocated_nodes()
        up = {
            name: node
            for name, node in self._found.items()
            if name in mine and not node.lost and (name in self.nodes or not node.unknown)
        }
        self._mine = mine
        self.nodes = {name: self._launch_node(node, mine[name]) for name, node in up.items()}
        self.draining = frozenset(name for name, node in up.items() if node.draining or self.closed)

    def units(self) -> dict[str, Unit]:
        """Return the attempts that Slurm runs or is to run, by the name of their folder."""
        if self._settings.batch:
            found = programs.jobs()
        else:
            found = {} if self._allocation is None else programs.steps(self._allocation)
        prefix = self._lines.prefix
        return {
            name.removeprefix(prefix): unit
            for name, unit in found.items()
            if name.startswith(prefix)
        }

    def step_words(self, folder: Path, plans: Mapping[str, Any], spec: JobSpec) -> list[str]:
        """Return the `srun` of an attempt."""
        if self._allocation is None:
            raise OSError("there is no allocation")
        # All of the allocation, so that GPUs are numbered the same in every step. Slurm gives a
        # step the same number on each node.
        gpus = min(self._mine[name].gpus for name in plans)
        return self._lines.step(
            self._allocation, folder.name, folder, list(plans), str(gpus or ""), spec
        )

    def batch_words(self, folder: Path, plans: Mapping[str, Any], spec: JobSpec) -> list[str]:
        """Return the options of the `sbatch` of an attempt.

        Slurm gives a job the same share of each node: as many GPUs as it needs on any, and of CPUs
        and memory what these are of the smallest node.
        """
        gpus = max(len(plan["devices"]) for plan in plans.values())
        ranks = max(len(plan["ranks"]) for plan in plans.values())
        found = [(self._found[name], self.nodes[name].gpus) for name in plans]
        cpus = min(max(1, node.cpus * ranks // slots) for node, slots in found)
        memory = min(node.memory_bytes * ranks // slots for node, slots in found)
        share = NodeShare(str(gpus or ""), str(cpus), str(max(1, memory // MEBIBYTE)))
        return self._lines.batch(folder.name, folder, list(plans), share, spec)

    def stop(self, unit: Unit) -> None:
        """Ask all processes of an attempt to end, or keep it from starting."""
        if self._settings.batch:
            programs.cancel_pending(unit.unit_id)
        programs.signal(unit.unit_id, "TERM")

    def kill(self, unit: Unit) -> None:
        """End an attempt, and what waits for it."""
        programs.cancel(unit.unit_id)

    def cancel_by_name(self, name: str) -> None:
        """End the step or the batch job of an attempt, if Slurm has one.

        Slurm does not notice the end of a step whose own process was killed.
        """
        unit = self.units().get(name)
        if unit is not None:
            self.kill(unit)

    def release(self) -> None:
        """Give back an allocation that was asked for."""
        if self._path.exists() and self._allocation is not None:
            programs.cancel_named(self._lines.allocation_name)
            self._path.unlink(missing_ok=True)

    def _given(self) -> str | None:
        return self._settings.allocation or os.environ.get(ALLOCATION_VARIABLE)

    def _batch_nodes(self) -> set[str]:
        """Return the nodes that an `sbatch` with the cluster's directives can use."""
        directives = self._settings.directives
        wanted = directives.value("--partition") or self._settings.partition
        names = {
            node.name
            for node in programs.partition_nodes()
            if (node.partition in wanted.split(",") if wanted else node.default)
        }
        reservation = directives.value("--reservation")
        return names & set(programs.reserved_nodes(reservation)) if reservation else names

    def _allocated_nodes(self) -> dict[str, AllocatedNode]:
        """Return the nodes of the allocation: none if it is over and Slurm grants no other yet."""
        try:
            return self._find_allocation().nodes
        except SlurmError:
            # Its attempts have ended with it, which must not go unnoticed. Later calls ask again.
            if self.ended and self._allocation is None:
                return {}
            raise

    def _find_allocation(self) -> SlurmJob:
        """Return the allocation; ask for one if ours has ended or was never there.

        One that is ending still has processes: nothing is asked for before they are gone.
        """
        found = None if self._allocation is None else programs.job(self._allocation)
        was_closed, self.closed = self.closed, found is not None and found.closed
        if found is not None and self.closed:
            if not was_closed:
                operator_log.warning(
                    "allocation starts no more jobs", job=self._allocation, state=found.state
                )
            # Slurm lists fewer and fewer nodes of one that is ending.
            return msgspec.structs.replace(found, nodes=self._mine or found.nodes)
        if found is not None and (found.running or found.waiting):
            self._report_waiting(found)
            return found if found.running else msgspec.structs.replace(found, nodes={})
        if self._allocation is not None:
            state = "is unknown to Slurm" if found is None else f"has ended: {found.state}"
            operator_log.warning("allocation is over", job=self._allocation, why=state)
            self.ended = True
            self._allocation = None
        if self._given() is None:
            self._allocation = self._ask()
        return SlurmJob("", "", 0, "PENDING", "", {})

    def _ask(self) -> str:
        """Return the allocation that Slurm has already, or ask for one.

        An earlier scheduler may have ended, or an `sbatch` failed, after Slurm had accepted it.
        """
        allocation = programs.job_named(self._lines.allocation_name)
        if allocation is None:
            allocation = programs.submit(self._lines.allocation(self._settings.nodes))
            operator_log.info("allocation requested", job=allocation, nodes=self._settings.nodes)
        else:
            operator_log.info("allocation found", job=allocation)
        with open_output(self._path) as stream:
            stream.write(allocation.encode())
        return allocation

    def _report_waiting(self, found: SlurmJob) -> None:
        reason = found.reason if found.waiting else ""
        if reason != self._waits_for:
            event = "allocation waits in Slurm's queue" if reason else "allocation runs"
            operator_log.info(event, job=self._allocation, state=found.state, why=reason)
        self._waits_for = reason

    def _launch_node(self, node: SlurmNode, mine: AllocatedNode) -> LaunchNode:
        wanted = self._settings.slots
        available = mine.gpus or mine.cpus
        # There can be more slots than cores, but not more than GPUs.
        slots = available if wanted is None else min(wanted, mine.gpus or wanted)
        memory_bytes = self._settings.memory_bytes or node.memory_bytes // slots
        return LaunchNode(node.name, slots, memory_bytes, node.address, cuda=bool(mine.gpus))

    def _check_given(self) -> None:
        """Refuse an allocation in which no step can start."""
        job_id = self._allocation or ""
        named = self._settings.allocation is not None
        field = "allocation" if named else f"${ALLOCATION_VARIABLE}"
        found = programs.job(job_id)
        if found is None:
            hint = "" if named else " Unset the variable, or run this inside a job."
            raise InputError(f"there is no job {job_id} in Slurm.{hint}", field=field)
        if os.getuid() not in (0, found.user_id):
            raise InputError(
                f"job {job_id} belongs to {found.user}, and you are {_user_name()}.", field=field
            )
        if not found.running:
            raise InputError(
                f"job {job_id} is {found.state.lower()}; it must be running.", field=field
            )


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
