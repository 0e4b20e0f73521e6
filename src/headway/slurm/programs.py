"""Calls of Slurm's programs: `scontrol`, `squeue`, `sbatch`, `scancel`. Every call may block."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence

import msgspec

from headway.domain.errors import InputError, MachineError, shown
from headway.slurm.hostlist import expand
from headway.slurm.nodes import SlurmJob, SlurmNode, parse_job, parse_nodes

OLDEST = (22, 5)
JSON_SINCE = (23, 2)
"""The versions that are supported, and those whose `scontrol` writes JSON."""

TIMEOUT_S = 60.0
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
_SEPARATOR = "|"
_REFUSAL = re.compile(
    r"\binvalid\b(?! (job id|authentication|credential|protocol|message))|unrecognized option"
    r"|option .* (is ambiguous|requires an argument|doesn't allow)|mutually exclusive|not permitted"
    r"|permission denied|requested node configuration is not available|not a valid"
    r"|no partition specified|unable to open file|in the excluded list",
    re.IGNORECASE,
)
"""What Slurm says to a request that it will refuse as often as it is made."""


class SlurmError(MachineError):
    """A program of Slurm failed; the message is what it said."""


class SlurmRefusedError(SlurmError):
    """Slurm refused a request, and would refuse it again."""


class Unit(msgspec.Struct, frozen=True):
    """A step or a batch job that has not ended; `waits_for` is why it is in Slurm's queue."""

    unit_id: str
    waits_for: str = ""


class PartitionNode(msgspec.Struct, frozen=True):
    """A node as a member of a partition."""

    name: str
    partition: str
    default: bool


def environment() -> dict[str, str]:
    """Return the environment without the options that a surrounding job of Slurm leaves in it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(("SLURM_", "SBATCH_", "SRUN_", "SLURMD_"))
    }


def run(*words: str) -> str:
    """Run a program of Slurm and return its output.

    Raises:
        InputError: There is no such program.
        SlurmError: It cannot be run, failed or did not answer.
    """
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            env=environment(),
            check=False,
        )
    except FileNotFoundError:
        raise InputError(
            f"there is no program {words[0]} here; run this where Slurm's commands are installed."
        ) from None
    except OSError as error:
        raise SlurmError(f"{words[0]}: {error.strerror or error}.") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]} did not answer within {TIMEOUT_S:.0f} s.") from None
    if done.returncode != 0:
        said = last_error(done.stderr) or f"exited with {done.returncode}"
        problem = f"{words[0]}: {said.rstrip('.')}."
        raise SlurmRefusedError(problem) if is_refusal(said) else SlurmError(problem)
    return done.stdout


def last_error(text: str) -> str:
    """Return the last line that a program of Slurm said, without its prefix."""
    if "Could not establish a configuration source" in text:
        return "no slurm.conf was found; set SLURM_CONF to its path"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Try ")]
    errors = [line for line in lines if re.search(r"error:|fatal:", line)] or lines
    return re.sub(r"^\w+: (error: |fatal: )?", "", errors[-1]) if errors else ""


def is_refusal(said: str) -> bool:
    """Return whether Slurm would say the same to another try."""
    return _REFUSAL.search(said) is not None


def version() -> tuple[int, int]:
    """Return the version of Slurm here; an unknown or too old one is an error."""
    text = run("scontrol", "--version").strip()
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None:
        raise InputError(f"this is not a version of Slurm: {shown(text)}.")
    number = int(found[1]), int(found[2])
    if number < OLDEST:
        raise InputError(f"needs Slurm {OLDEST[0]}.{OLDEST[1]:02} or later; this is {shown(text)}.")
    return number


def nodes(release: tuple[int, int]) -> list[SlurmNode]:
    """Return all nodes of the cluster, from JSON where this version of Slurm has it.

    JSON is a plugin that may not be installed, and its fields change between versions.
    """
    if release >= JSON_SINCE:
        with contextlib.suppress(SlurmError, InputError):
            if found := parse_nodes(run("scontrol", "show", "nodes", "--json")):
                return found
    return parse_nodes(run("scontrol", "show", "nodes", "--oneliner"))


def partition_nodes() -> list[PartitionNode]:
    """Return the nodes of all partitions; one that is in two appears twice."""
    text = run("sinfo", "--Node", "--noheader", f"--format=%N{_SEPARATOR}%P")
    pairs = [line.strip().split(_SEPARATOR, 1) for line in text.splitlines() if line.strip()]
    return [PartitionNode(name, one.rstrip("*"), one.endswith("*")) for name, one in pairs]


def reserved_nodes(reservation: str) -> list[str]:
    """Return the names of the nodes of a reservation."""
    text = run("scontrol", "show", "reservation", reservation, "--oneliner")
    found = re.search(r"\bNodes=(\S+)", text)
    return [] if found is None or found[1] == "(null)" else expand(found[1])


def job(job_id: str) -> SlurmJob | None:
    """Return a job of Slurm; None if there is none."""
    try:
        text = run("scontrol", "show", "job", job_id, "--details", "--oneliner")
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return None
        raise
    lines = [line for line in text.splitlines() if line.startswith("JobId=")]
    return parse_job(lines[0]) if lines else None


def steps(job_id: str) -> dict[str, Unit]:
    """Return the steps of a job that have not ended, by name."""
    try:
        text = run(
            *("squeue", "--steps", "--noheader", f"--jobs={job_id}", f"--format=%i{_SEPARATOR}%j")
        )
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    pairs = [line.strip().split(_SEPARATOR, 1) for line in text.splitlines() if line.strip()]
    return {name: Unit(step_id) for step_id, name in pairs}


def jobs() -> dict[str, Unit]:
    """Return this user's jobs that have not ended, by name."""
    columns = _SEPARATOR.join(("%i", "%T", "%r", "%j"))
    text = run("squeue", "--me", "--noheader", f"--format={columns}")
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        job_id, state, reason, name = line.strip().split(_SEPARATOR, 3)
        found[name] = Unit(job_id, reason if state == "PENDING" else "")
    return found


def job_named(name: str) -> str | None:
    """Return the id of this user's job of a name that has not ended; None if there is none."""
    found = run("squeue", "--me", "--noheader", f"--name={name}", "--format=%i").split()
    return found[0] if found else None


def check_submission(words: Sequence[str]) -> None:
    """Raise SlurmRefusedError if Slurm would never accept an `sbatch` with these words."""
    try:
        run("sbatch", "--test-only", *words)
    except SlurmRefusedError:
        raise
    except SlurmError:
        pass  # It may accept it later.


def submit(words: Sequence[str]) -> str:
    """Run `sbatch` with these words and return the job's id."""
    answer = run("sbatch", "--parsable", *words).strip()
    return answer.partition(";")[0]


def signal(unit: str, name: str) -> None:
    """Send a signal to all processes of a step or of a job's steps."""
    _cancel(f"--signal={name}", unit)


def cancel(job_id: str) -> None:
    """End a job."""
    _cancel(job_id)


def cancel_named(name: str) -> None:
    """End this user's jobs of a name."""
    _cancel("--me", f"--name={name}")


def cancel_pending(job_id: str) -> None:
    """Keep a job from starting; one that has started continues."""
    _cancel("--state=PENDING", job_id)


def _cancel(*words: str) -> None:
    try:
        run("scancel", *words)
    except SlurmError as error:
        # It has ended in the meantime.
        if not re.search(r"Invalid job id|already complet", str(error)):
            raise
