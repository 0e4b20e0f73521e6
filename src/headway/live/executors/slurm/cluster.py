"""A Slurm cluster as the executor sees it: allocations, their nodes, attempts. Calls may block."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import signal
import time
from collections.abc import Iterable, Mapping
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
from headway.slurm.programs import SlurmError, SlurmRefusedError, Unit

POLL_S = 10.0
_PAUSE_S = 0.1
"""How often Slurm is asked for the id of an allocation that was just requested."""
ALLOCATION_VARIABLE = "SLURM_JOB_ID"
"""The variable in which a job finds its own id."""


class SlurmSettings(msgspec.Struct, frozen=True):
    """How to use a Slurm cluster.

    Attempts are steps of `allocation`, a job's id, or of allocations with `nodes` nodes that are
    asked for; with `batch`, each is a batch job. None takes what the cluster says.
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
        asking = [] if allocation else [["salloc", *lines.allocation(self.nodes)]]
        step = lines.step(allocation or "ALLOCATION", attempt.name, attempt, nodes, "GPUS", spec)
        return [shlex.join(words) for words in (*asking, step)]


class SlurmCluster:
    """The nodes that attempts can run on, and the steps or jobs that they are.

    `path` is the file with the ids of allocations that were asked for. Several have the nodes if
    some were lost and asked for anew. While an allocation is closed, its steps may still have
    processes, but none can start. `ended` says that an allocation is over, with all its processes;
    the caller resets it. `allocations` says which has each node, with `batch` an empty string.

    An answer of Slurm may be empty or cut short. What is missing in it, without being said to be
    lost or over, counts as gone when the next answer lacks it too.
    """

    def __init__(self, settings: SlurmSettings, identity: str, path: Path) -> None:
        self._settings, self._path = settings, path
        self._lines = settings.lines(identity)
        self._release = (0, 0)
        self._jobs: dict[str, SlurmJob | None] = {}  # allocations; None: not looked at yet
        self._requests: list[int] = []  # Each `salloc` that may be running.
        self._problem = ""  # Why Slurm grants no more nodes.
        self._waits_for: dict[str, str] = {}
        self._unknown: set[str] = set()  # allocations that the last answer lacked
        self._absent: set[str] = set()  # nodes that the last answer lacked
        self._mine: dict[str, AllocatedNode] = {}
        self._found: dict[str, SlurmNode] = {}
        self.ended = False
        self.allocations: dict[str, str] = {}
        self.nodes: dict[str, LaunchNode] = {}
        self.draining: frozenset[str] = frozenset()

    def connect(self) -> None:
        """Check that Slurm is here and accepts jobs, and find or ask for an allocation."""
        self._release = programs.version()
        if self._settings.batch:
            self._check_submission()
            return
        given = self._given()
        if given is not None:
            self._jobs[given] = self._checked(given)
            return
        with contextlib.suppress(FileNotFoundError):
            self._jobs = dict.fromkeys(self._path.read_text().split())
        if not self._jobs:
            self._ask(self._settings.nodes)

    def find_nodes(self) -> None:
        """Find the nodes that are up; ask for others if allocations or nodes have been lost."""
        found = {node.name: node for node in programs.nodes(self._release)}
        if self._settings.batch:
            named = dict.fromkeys(self._batch_nodes(), "")
            mine = {
                name: AllocatedNode(found[name].cpus, found[name].gpus)
                for name in named.keys() & found.keys()
            }
        else:
            named, mine = self._allocated_nodes()
        # Those of an allocation that is over are gone.
        known = {
            name: job_id
            for name, job_id in self.allocations.items()
            if name in self.nodes and (not job_id or job_id in self._jobs)
        }
        lost = {name for name, node in found.items() if node.lost}
        absent = (known.keys() | named.keys()) - (found.keys() & mine.keys()) - lost
        for name in (absent - self._absent) & known.keys():
            found.setdefault(name, self._found[name])
            mine.setdefault(name, self._mine[name])
            named.setdefault(name, known[name])
        self._absent = absent
        up = {name: node for name, node in found.items() if name in mine and not node.lost}
        self._found, self._mine, self.allocations = found, mine, named
        self.nodes = {name: self._launch_node(node, mine[name]) for name, node in up.items()}
        # Jobs go on where Slurm does not know the state of a node yet; nothing starts there.
        self.draining = frozenset(
            name
            for name, node in up.items()
            if node.draining or node.unknown or self.is_closed([named[name]])
        )

    def is_closed(self, allocations: Iterable[str]) -> bool:
        """Return whether one of these is an allocation in which no step can start."""
        jobs = [self._jobs.get(job_id) for job_id in allocations]
        return any(job is not None and job.closed for job in jobs)

    def is_over(self, allocation: str) -> bool:
        """Return whether an allocation has no processes any more."""
        return bool(allocation) and allocation not in self._jobs

    def runs(self, unit: Unit | None, allocation: str) -> bool:
        """Return whether Slurm runs an attempt in one of its allocations, or is to run it."""
        return unit is not None and (not allocation or allocation in unit.allocations)

    def units(self) -> dict[str, Unit]:
        """Return the attempts that Slurm runs or is to run, by the name of their folder."""
        units: dict[str, Unit] = {}
        if self._settings.batch:
            answers = [programs.jobs()]
        else:
            answers = [programs.steps(job_id) for job_id in list(self._jobs)]
        for answer in answers:
            for name, unit in answer.items():
                attempt = self._lines.attempt_in(name)
                if attempt is not None:
                    before = units.get(attempt, Unit(()))
                    ids, jobs = before.ids + unit.ids, before.allocations + unit.allocations
                    units[attempt] = Unit(ids, jobs, unit.waits_for)
        return units

    def step_words(
        self, folder: Path, allocations: Mapping[str, str], spec: JobSpec
    ) -> dict[str, list[str]]:
        """Return the `srun` of an attempt in each of the allocations that have its nodes."""
        parts: dict[str, list[str]] = {}
        for name, job_id in allocations.items():
            parts.setdefault(job_id, []).append(name)
        return {job_id: self._step(job_id, folder, nodes, spec) for job_id, nodes in parts.items()}

    def _step(self, job_id: str, folder: Path, nodes: list[str], spec: JobSpec) -> list[str]:
        # All GPUs of the allocation, so that they are numbered the same in every step. Slurm gives
        # a step the same number on each node.
        gpus = min(self._mine[name].gpus for name in nodes)
        return self._lines.step(job_id, folder.name, folder, nodes, str(gpus or ""), spec)

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
            programs.cancel_pending(unit.ids)
        programs.send_signal(unit.ids, "TERM")

    def kill(self, unit: Unit) -> None:
        """End an attempt, and what waits for it."""
        programs.cancel(unit.ids)

    def cancel_by_name(self, name: str) -> None:
        """End the step or the batch job of an attempt, if Slurm has one.

        Slurm does not notice the end of a step whose own process was killed.
        """
        unit = self.units().get(name)
        if unit is not None:
            self.kill(unit)

    def release(self) -> None:
        """Give back all allocations that were asked for."""
        if not self._settings.batch and self._given() is None:
            programs.cancel_named(self._lines.allocation_name)
            self._path.unlink(missing_ok=True)

    def _given(self) -> str | None:
        return self._settings.allocation or os.environ.get(ALLOCATION_VARIABLE)

    def _check_submission(self) -> None:
        """Raise SlurmRefusedError if Slurm would never accept a batch job of this user."""
        # A controller that has just started refuses nodes that have not registered yet.
        starting = any(node.unknown for node in programs.nodes(self._release))
        try:
            programs.check_submission(self._lines.probe())
        except SlurmRefusedError as error:
            if not (starting and "node configuration" in str(error)):
                raise

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

    def _allocated_nodes(self) -> tuple[dict[str, str], dict[str, AllocatedNode]]:
        """Return which allocation has each node, and what it has there."""
        unknown = set()
        # Before Slurm is asked: a `salloc` ends when it has what it waits for.
        may_wait = any(job is None or job.waiting for job in self._jobs.values())
        salloc_runs = may_wait and programs.salloc_runs(self._lines.allocation_name)
        for job_id, before in list(self._jobs.items()):
            found = programs.job(job_id)
            # Slurm counts from 1 again when it is reinstalled.
            if found is not None and self._given() is None and not self._is_ours(found):
                found = None
            if found is None and job_id not in self._unknown:
                unknown.add(job_id)
            elif found is None or not (found.running or found.waiting or found.closed):
                why = "is unknown to Slurm" if found is None else f"has ended: {found.state}"
                operator_log.warning("allocation is over", job=job_id, why=why)
                self.ended = True
                del self._jobs[job_id]
            else:
                self._jobs[job_id] = self._updated(job_id, found, before)
                if found.waiting and not salloc_runs and self._given() is None:
                    # Slurm would grant it, and end it soon after with the jobs in it.
                    operator_log.warning("allocation is requested again", job=job_id)
                    programs.cancel_pending([job_id])
        self._unknown = unknown
        if self._given() is None and not unknown:
            self._replace_lost()
        named: dict[str, str] = {}
        mine: dict[str, AllocatedNode] = {}
        for job_id, job in self._jobs.items():
            if job is not None and not job.waiting:
                named |= dict.fromkeys(job.nodes, job_id)
                mine |= job.nodes
        return named, mine

    def _is_ours(self, job: SlurmJob) -> bool:
        return job.name == self._lines.allocation_name

    def _updated(self, job_id: str, found: SlurmJob, before: SlurmJob | None) -> SlurmJob:
        """Return an allocation as it is now; report what has changed."""
        if found.closed:
            if before is None or not before.closed:
                operator_log.warning(
                    "allocation starts no more jobs", job=job_id, state=found.state
                )
            # Slurm lists fewer and fewer nodes of one that is ending.
            kept = found if before is None or not before.nodes else before
            return msgspec.structs.replace(found, nodes=kept.nodes, size=kept.size)
        reason = found.reason if found.waiting else ""
        if reason != self._waits_for.get(job_id, ""):
            event = "allocation waits in Slurm's queue" if reason else "allocation runs"
            operator_log.info(event, job=job_id, state=found.state, why=reason)
        self._waits_for[job_id] = reason
        return found

    def _replace_lost(self) -> None:
        """Ask for the nodes that no allocation has or waits for.

        One that is ending still has processes: nothing is asked for before they are gone.
        """
        self._requests = [pid for pid in self._requests if programs.exit_code(pid) is None]
        sizes = [0 if job is None else job.size for job in self._jobs.values()]
        wanted = self._settings.nodes - sum(sizes)
        problem = ""
        if wanted > 0 and all(sizes):  # Of a new one, Slurm has not said how large it is.
            try:
                self._ask(wanted)
            except SlurmError as error:
                # The loss of other nodes must not go unnoticed. The next poll asks again.
                problem = str(error)
                if problem != self._problem:
                    operator_log.warning("Slurm grants no nodes; asking again", problem=problem)
        self._problem = problem

    def _ask(self, nodes: int) -> None:
        """Take what Slurm has granted already, or ask for an allocation.

        An earlier scheduler may have ended, or a `salloc` failed, after Slurm had accepted it.
        """
        if self._adopt("allocation found"):
            return
        log = self._path.with_name("salloc.log")
        salloc = programs.allocate(self._lines.allocation(nodes), log)
        self._requests.append(salloc)
        deadline_s = time.monotonic() + programs.TIMEOUT_S
        while True:
            code = programs.exit_code(salloc)
            if code is not None:
                self._requests.remove(salloc)
            if self._adopt("allocation requested", nodes=nodes):
                return
            if code:
                raise programs.failure("salloc", log.read_text(errors="replace"), code)
            if code == 0:
                raise SlurmError("squeue does not list the allocation that salloc was granted.")
            if time.monotonic() > deadline_s:
                os.kill(salloc, signal.SIGTERM)
                raise SlurmError(f"salloc did not answer within {programs.TIMEOUT_S:.0f} s.")
            time.sleep(_PAUSE_S)

    def _adopt(self, event: str, **values: int) -> bool:
        """Take the allocations that Slurm has and this scheduler does not know."""
        named = programs.jobs_named(self._lines.allocation_name)
        new = [job_id for job_id in named if job_id not in self._jobs]
        for job_id in new:
            operator_log.info(event, job=job_id, **values)
            self._jobs[job_id] = None
        if new:
            with open_output(self._path) as stream:
                stream.write("\n".join(self._jobs).encode())
        return bool(new)

    def _launch_node(self, node: SlurmNode, mine: AllocatedNode) -> LaunchNode:
        wanted = self._settings.slots
        available = mine.gpus or mine.cpus
        # There can be more slots than cores, but not more than GPUs.
        slots = available if wanted is None else min(wanted, mine.gpus or wanted)
        memory_bytes = self._settings.memory_bytes or node.memory_bytes // slots
        return LaunchNode(node.name, slots, memory_bytes, node.address, cuda=bool(mine.gpus))

    def _checked(self, job_id: str) -> SlurmJob:
        """Return the allocation that was given; refuse one in which no step can start."""
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
        return found


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
