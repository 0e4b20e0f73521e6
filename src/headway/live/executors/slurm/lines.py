"""The commands that ask Slurm for an allocation and start attempts in it.

Users add options to them (directives), and leave out some of Headway's.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headway.domain.errors import InputError, shown
from headway.live.core.events import JobSpec

_MAX_TITLE = 40
"""How many characters of a job's name Slurm is given."""

PROGRAM = "headway.live.executors.slurm.step_task"
"""What runs on each node of an attempt."""

STEPS, BATCH = "steps", "batch"
"""The modes: each attempt is a step of an allocation, or a batch job of its own."""

_HEADWAY_NEEDS = (
    *("--job-name", "--jobid", "--nodes", "--nodelist", "--ntasks", "--ntasks-per-node"),
    "--no-shell",
)
"""Options that users can neither leave out nor give."""

_CHOOSE_NODES = ("--constraint", "--exclude", "--nodefile", "--prefer")
_CHOOSE_SET = ("--partition", "--reservation", "--clusters")
"""Options that make Slurm choose nodes, or the set of nodes that it chooses from."""

_SHORT = {
    "-A": "--account",
    "-B": "--extra-node-info",
    "-b": "--begin",
    "-C": "--constraint",
    "-c": "--cpus-per-task",
    "-D": "--chdir",
    "-d": "--dependency",
    "-e": "--error",
    "-F": "--nodefile",
    "-G": "--gpus",
    "-i": "--input",
    "-J": "--job-name",
    "-k": "--no-kill",
    "-K": "--kill-on-bad-exit",
    "-L": "--licenses",
    "-M": "--clusters",
    "-m": "--distribution",
    "-N": "--nodes",
    "-n": "--ntasks",
    "-O": "--overcommit",
    "-o": "--output",
    "-p": "--partition",
    "-q": "--qos",
    "-s": "--oversubscribe",
    "-S": "--core-spec",
    "-t": "--time",
    "-w": "--nodelist",
    "-x": "--exclude",
}
_SAME_PURPOSE = {
    "--mem-per-cpu": "--mem",
    "--mem-per-gpu": "--mem",
    "--cpus-per-gpu": "--cpus-per-task",
    "--gpus": "--gres",
    "--gpus-per-node": "--gres",
    "--gpus-per-task": "--gres",
    "--oversubscribe": "--exclusive",
}
"""Options in whose presence Slurm refuses another, or would add it up."""

_FULL = {
    *_HEADWAY_NEEDS,
    *_CHOOSE_NODES,
    *_CHOOSE_SET,
    *_SHORT.values(),
    *_SAME_PURPOSE,
    *_SAME_PURPOSE.values(),
}
"""Options that mean something to Headway; Slurm takes any unambiguous beginning of them."""


class Directives(msgspec.Struct, frozen=True):
    """Options that a user adds to a command, and names of Headway's options to leave out."""

    extra: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, words in (("directives", self.extra), ("skip_directives", self.skip)):
            for word in words:
                _check(word, name)

    def applied(self, options: Iterable[str]) -> list[str]:
        """Return the options without those that are left out or given differently, and the rest."""
        names = {_name(word) for word in self.extra}
        dropped = {_SAME_PURPOSE[name] for name in names & _SAME_PURPOSE.keys()} | names
        dropped |= {_name(word) for word in self.skip}
        given = [word for one in self.extra for word in _words(one)]
        return [*(one for one in options if _name(one) not in dropped), *given]

    def __add__(self, other: Directives) -> Directives:
        # What comes later counts.
        dropped = {_name(word) for word in (*other.extra, *other.skip)}
        kept = tuple(word for word in self.extra if _name(word) not in dropped)
        return Directives((*kept, *other.extra), (*self.skip, *other.skip))

    def value(self, name: str) -> str:
        """Return the value of an option, such as `gpu` of `-p gpu` and `--partition=gpu`."""
        values = [_value(word) for word in self.extra if _name(word) == name]
        return values[-1] if values else ""


def start_directives(extra: tuple[str, ...], skip: tuple[str, ...]) -> Directives:
    """Return directives for the command that starts a job; its nodes are Headway's to choose."""
    found = Directives(extra, skip)
    for word in extra:
        if _name(word) in _CHOOSE_NODES:
            raise InputError(
                f"{_name(word)} is not possible here: Headway chooses the nodes. Give "
                "Headway only such nodes, by a partition, a reservation or allocation_directives.",
                field="directives",
            )
    return found


def directives_of(spec: JobSpec) -> Directives:
    """Return the directives of a job."""
    found = start_directives(spec.directives, spec.skip_directives)
    for word in spec.directives:
        if _name(word) in _CHOOSE_SET:
            raise InputError(
                f"{_name(word)} is the same for all jobs: set it for the scheduler.",
                field="directives",
            )
    return found


class NodeShare(msgspec.Struct, frozen=True):
    """What a batch job asks for on each of its nodes, as words of a command."""

    gpus: str
    cpus: str
    memory_mb: str


class SlurmLines(msgspec.Struct, frozen=True):
    """Builds the commands of one scheduler, whose jobs in Slurm are named after its `identity`."""

    identity: str
    directives: Directives = Directives()
    allocation_directives: Directives = Directives()
    partition: str = ""

    @property
    def allocation_name(self) -> str:
        """The name of all allocations in Slurm."""
        return f"headway-{self.identity}"

    def attempt_name(self, attempt: str, spec: JobSpec) -> str:
        """Return the name of an attempt in Slurm, such as `resnet50:headway-4f…:12.1`.

        It begins with the job's name, because `squeue` shows the first eight characters.
        """
        title = re.sub(r"[^A-Za-z0-9._-]+", "-", spec.name)[:_MAX_TITLE].strip("-")
        title = title or f"job-{attempt.rpartition('.')[0]}"
        return f"{title}:{self.allocation_name}:{attempt}"

    def attempt_in(self, name: str) -> str | None:
        """Return which attempt has a name in Slurm; None if it is none of this scheduler's."""
        own = re.escape(self.allocation_name)
        found = re.fullmatch(rf"(?:[^:]*:)?{own}:(.+)", name)
        return None if found is None else found[1]

    def allocation(self, nodes: int) -> list[str]:
        """Return the options of a `salloc` whose allocation lasts until it is cancelled.

        It has no batch script, because Slurm would end the job with the node that runs it.
        """
        options = [
            "--no-shell",
            f"--job-name={self.allocation_name}",
            f"--nodes={nodes}",
            *self._partition(),
            "--ntasks-per-node=1",
            "--exclusive",
            "--mem=0",
            "--no-kill",
        ]
        return self.allocation_directives.applied(options)

    def step(
        self, job_id: str, name: str, folder: Path, nodes: Sequence[str], gpus: str, spec: JobSpec
    ) -> list[str]:
        """Return the `srun` of an attempt in an allocation that has `gpus` GPUs on each node.

        The step sees all of them: Headway itself decides which slot a rank uses, and two jobs may
        share one.
        """
        options = [
            f"--jobid={job_id}",
            f"--job-name={self.attempt_name(name, spec)}",
            *_on(nodes),
            "--overlap",
            *([f"--gres=gpu:{gpus}"] if gpus else []),
            "--mem=0",
            "--cpu-bind=none",
            "--mpi=none",
            "--input=none",
            "--kill-on-bad-exit=1",
        ]
        return ["srun", *self._of(spec).applied(options), *_program(folder)]

    def batch(
        self, name: str, folder: Path, nodes: Sequence[str], share: NodeShare, spec: JobSpec
    ) -> list[str]:
        """Return the options of the `sbatch` of an attempt, with its share of each node."""
        options = [
            f"--job-name={self.attempt_name(name, spec)}",
            *self._partition(),
            *_on(nodes),
            *([f"--gres=gpu:{share.gpus}"] if share.gpus else []),
            f"--cpus-per-task={share.cpus}",
            f"--mem={share.memory_mb}",
            "--no-requeue",
            # Slurm expands patterns such as %j.
            f"--output={str(folder).replace('%', '%%')}/slurm.log",
        ]
        inner = ["srun", "--kill-on-bad-exit=1", "--cpu-bind=none", "--mpi=none", "--input=none"]
        script = shlex.join([*inner, *_program(folder)])
        return [*self._of(spec).applied(options), f"--wrap=exec {script}"]

    def probe(self) -> list[str]:
        """Return the options of an `sbatch` that shows whether Slurm accepts jobs of this user."""
        options = [*self._partition(), "--output=/dev/null"]
        return [*self.directives.applied(options), "--wrap=true"]

    def _of(self, spec: JobSpec) -> Directives:
        return self.directives + directives_of(spec)

    def _partition(self) -> list[str]:
        return [f"--partition={self.partition}"] if self.partition else []


def _on(nodes: Sequence[str]) -> list[str]:
    """Return the options that put one task on each of these nodes and no others."""
    return [
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
    ]


def _program(folder: Path) -> list[str]:
    # Without -P, modules in the folder that the scheduler was started in would come first.
    return [sys.executable, "-P", "-m", PROGRAM, str(folder)]


def _words(directive: str) -> list[str]:
    """Return an option as the words of a command: `-p gpu` is two."""
    return [directive] if "=" in directive else directive.split(maxsplit=1)


def _name(directive: str) -> str:
    """Return the name of an option, such as `--nodelist` of `-w n1` and `--nodel=n1`."""
    word = directive.partition("=")[0].split(" ")[0]
    if not word.startswith("--"):
        return _SHORT.get(word[:2], word)
    full = [word] if word in _FULL else [name for name in _FULL if name.startswith(word)]
    return full[0] if len(full) == 1 else word


def _value(directive: str) -> str:
    """Return the value of an option: of `--qos=high`, `--qos high`, `-q high` or `-qhigh`."""
    name, equals, value = directive.partition("=")
    if equals and name.startswith("--"):
        return value.strip()
    words = directive.split(maxsplit=1)
    return words[1].strip() if len(words) == 2 else words[0][2:].lstrip("=")


def _check(word: Any, field: str) -> None:
    valid = isinstance(word, str) and word.startswith("-") and len(word) > 1 and word.isprintable()
    if not valid or len(word) > 1000:
        raise InputError(
            f"must be options such as '--qos=high' or '--exclusive', not {shown(word)}.",
            field=field,
        )
    if _name(word) in _HEADWAY_NEEDS:
        raise InputError(f"{_name(word)} is set by Headway.", field=field)
