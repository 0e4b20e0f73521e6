"""Calls of Slurm's programs, such as `scontrol`, `squeue` and `sbatch`. Every call may block."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headway.domain.errors import HeadwayError, InputError, MachineError, shown
from headway.slurm.hostlist import expand
from headway.slurm.nodes import SlurmJob, SlurmNode, parse_job, parse_nodes

OLDEST = (22, 5)
JSON_SINCE = (23, 2)
"""The versions that are supported, and those whose `scontrol` writes JSON."""

TIMEOUT_S = 60.0
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
_OPTIONS = ("SLURM_", "SALLOC_", "SBATCH_", "SRUN_", "SLURMD_")
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
    """Steps or a batch job of one name that have not ended.

    `allocations` are those of the steps; `waits_for` is why a job is in Slurm's queue.
    """

    ids: tuple[str, ...]
    allocations: tuple[str, ...] = ()
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
        if name in _KEPT or not name.startswith(_OPTIONS)
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
    except OSError as error:
        raise _cannot_run(words[0], error) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]} did not answer within {TIMEOUT_S:.0f} s.") from None
    if done.returncode != 0:
        raise failure(words[0], done.stderr, done.returncode)
    return done.stdout


def _cannot_run(program: str, error: OSError) -> HeadwayError:
    if isinstance(error, FileNotFoundError):
        return InputError(
            f"there is no program {program} here; run this where Slurm's commands are installed."
        )
    return SlurmError(f"{program}: {error.strerror or error}.")


def failure(program: str, output: str, code: int) -> SlurmError:
    """Return the error of a program that has said this and exited with `code`."""
    said = last_error(output) or f"exited with {code}"
    problem = f"{program}: {said.rstrip('.')}."
    return SlurmRefusedError(problem) if is_refusal(said) else SlurmError(problem)


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
    # Line breaks in a job's name or comment are written as they are.
    records = re.findall(r"^JobId=.*?(?=^JobId=|\Z)", text, re.MULTILINE | re.DOTALL)
    return parse_job(records[0].replace("\n", " ")) if records else None


def steps(job_id: str) -> dict[str, Unit]:
    """Return the steps of a job that have not ended, by name."""
    columns = _SEPARATOR.join(("%i", "%j"))
    try:
        text = run("squeue", "--steps", "--noheader", f"--jobs={job_id}", f"--format={columns}")
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    rows = _rows(text, r"(\d\S*)\|(.+)")
    return {name: Unit((step_id,), (job_id,)) for step_id, name in rows}


def jobs() -> dict[str, Unit]:
    """Return this user's jobs that have not ended, by name."""
    columns = _SEPARATOR.join(("%i", "%T", "%r", "%j"))
    text = run("squeue", "--me", "--noheader", f"--format={columns}")
    return {
        name: Unit((job_id,), waits_for=reason if state == "PENDING" else "")
        for job_id, state, reason, name in _rows(text, r"(\d\S*)\|([A-Z_]+)\|([^|]*)\|(.+)")
    }


def _rows(text: str, pattern: str) -> list[tuple[str, ...]]:
    """Return the groups of the lines that match.

    Others are parts of names with line breaks, which Slurm writes as they are.
    """
    found = (re.fullmatch(pattern, line.strip()) for line in text.split("\n"))
    return [one.groups() for one in found if one is not None]


def jobs_named(name: str) -> list[str]:
    """Return the ids of this user's jobs of a name that have not ended."""
    return run("squeue", "--me", "--noheader", f"--name={name}", "--format=%i").split()


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


def allocate(words: Sequence[str], log: Path) -> int:
    """Start a `salloc` with these words, which runs until it has an allocation; return its id.

    What it says goes to `log`.

    Raises:
        InputError: There is no such program.
        SlurmError: It cannot be run.
    """
    log.unlink(missing_ok=True)
    try:
        return spawn(["salloc", *words], log)
    except OSError as error:
        raise _cannot_run("salloc", error) from None


def spawn(words: list[str], log: Path) -> int:
    """Start a program that outlives this process and return its id; its output goes to `log`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        words[0],
        words,
        environment(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM],
    )


def exit_code(pid: int) -> int | None:
    """Return the exit code of a child process, once; None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


def salloc_runs(name: str) -> bool:
    """Return whether a `salloc` for jobs of this name runs on this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"--no-shell" in words and f"--job-name={name}".encode() in words:
                return True
    return False


def send_signal(ids: Sequence[str], name: str) -> None:
    """Send a signal to all processes of steps or of jobs' steps."""
    _cancel(f"--signal={name}", *ids)


def cancel(ids: Sequence[str]) -> None:
    """End jobs or steps."""
    _cancel(*ids)


def cancel_named(name: str) -> None:
    """End this user's jobs of a name."""
    _cancel("--me", f"--name={name}")


def cancel_pending(ids: Sequence[str]) -> None:
    """Keep jobs from starting; those that have started continue."""
    _cancel("--state=PENDING", *ids)


def _cancel(*words: str) -> None:
    try:
        run("scancel", *words)
    except SlurmError as error:
        # It has ended in the meantime.
        if not re.search(r"Invalid job id|already complet", str(error)):
            raise
