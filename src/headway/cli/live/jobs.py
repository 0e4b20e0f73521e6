"""`headway submit`, `status`, `logs`, `cancel` and `priority`."""

from __future__ import annotations

import codecs
import os
import re
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.console import print_lines, print_table, results
from headway.cli.live.client_options import (
    CertificateOption,
    FolderOption,
    ServerOption,
    TokenOption,
    connect,
    connect_when_started,
)
from headway.domain.errors import HeadwayError, InputError, did_you_mean, shown
from headway.domain.limits import MAX_BYTES, scaled
from headway.domain.models import MEBIBYTE
from headway.durations import duration_text
from headway.text_table import TextTable, printable

if TYPE_CHECKING:
    from headway.live.api.client import Client

NOT_DONE = 1
_POLL_S = 0.2
_LAYOUT = re.compile(r"([\n\r\t])")

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


def submit_command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT [ARGS]...",
            help="The program run by every process of the job; this Python runs a .py script.",
        ),
    ],
    gpus: Annotated[int, typer.Option(help="GPUs (or slots), with one process on each.")] = 1,
    memory_mb: Annotated[
        float | None,
        typer.Option(
            help="Memory needed on each GPU. Without it, the job shares its GPUs with no other.",
            show_default=False,
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(help="The number of iterations, if known.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model from the profiles (`headway workload profiles`), which provide compute "
            "times, gradient size and memory.",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            help="Jobs with a higher priority go first, whatever the policy. While one with a "
            "priority above 0 waits, no job with a lower one gets slots that it could use."
        ),
    ] = 0,
    retries: Annotated[int, typer.Option(help="How often to restart the job if it fails.")] = 0,
    name: Annotated[str, typer.Option(help="A label to show.", show_default=False)] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            help="An environment variable for the job: NAME=VALUE, or NAME with its value here. No "
            "other variable of this shell is passed on. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    directive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION",
            help="On Slurm: an option for the command that starts the job, such as "
            "--directive=--qos=high. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    skip_directive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="On Slurm: an option of that command to leave out, such as "
            "--skip-directive=--mem. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the job has ended; exit 1 unless it succeeded."),
    ] = False,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Submit a job: a script and its arguments, passed on without a shell. Prints the job's id.

    It waits for a scheduler that is starting.
    """
    from headway.live.api.preparation import check_size

    command = _command(words)
    client = connect_when_started(folder, server, token_file, certificate)
    about = client.status()
    if warning := check_size(about, gpus, "--gpus"):
        typer.echo(warning, err=True)
    if (directive or skip_directive) and about["executor"] != "slurm":
        option = "--directive" if directive else "--skip-directive"
        raise InputError(
            f"is for Slurm; this scheduler's executor is {about['executor']}.", field=option
        )
    spec: dict[str, Any] = {
        "command": command,
        "gpus": gpus,
        "priority": priority,
        "retries": retries,
        "name": name,
        "folder": str(Path.cwd()),
        "environment": _environment(env or []),
        "iterations": iterations,
        "directives": directive or [],
        "skip_directives": skip_directive or [],
    }
    if model is not None:
        from headway.configuration.profiles import profile_fields

        spec |= {"model": model} | profile_fields(model, "unknown model.", "model")
    if memory_mb is not None:
        spec["memory_bytes"] = scaled(memory_mb, MEBIBYTE, "memory_mb", 0, MAX_BYTES, "MB")
    job = client.submit(spec)["job_id"]
    typer.echo(printable(job))
    if wait:
        raise typer.Exit(_wait_for(client, job))


def _command(words: list[str]) -> list[str]:
    script = Path(words[0])
    if script.suffix != ".py":
        return words
    if not script.is_file():
        raise InputError(f"script {script} not found.")
    return [sys.executable, *words]


def _environment(given: list[str]) -> dict[str, str]:
    """Return the variables that --env names, with those values that it leaves out from here."""
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            if name not in os.environ:
                raise InputError(f"{shown(name)} is not set here; give NAME=VALUE.", field="--env")
            value = os.environ[name]
        found[name] = value
    return found


def _wait_for(client: Client, job: str) -> int:
    """Poll until a job has ended; return the exit code."""
    from headway.live.core.job_state import FINISHED

    while (found := client.patiently(lambda: client.job(job)))["state"] not in FINISHED:
        time.sleep(_POLL_S)
    ended = f"job {job} is {found['state']}{_reason(found)}"
    hint = f"headway logs {job} prints its output"
    typer.echo(printable(f"{ended}; {hint}" if found["attempts"] else ended), err=True)
    return 0 if found["state"] == "done" else NOT_DONE


def status_command(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="A job's id.", show_default=False)
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="Only jobs in this state: queued, starting, running, stopping, done, failed or "
            "cancelled.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="At most this many jobs: unfinished ones first, then the latest."
        ),
    ] = 100,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Show the scheduler and its jobs, or one job; waiting jobs say why."""
    from headway.live.core.job_state import JobState

    if state is not None and state not in list(JobState):
        guess = did_you_mean(state, list(JobState))
        raise InputError(f"unknown state {shown(state)}.{guess}", field="--state")
    client = connect(folder, server, token_file, certificate)
    if job is not None:
        _show_job(client.job(job))
        return
    about = client.status()
    console = results()
    print_lines(console, *status_lines(about))
    if jobs := client.jobs(last, state):
        console.print()
        print_table(console, jobs_table(jobs, time.time()))


def status_lines(about: dict[str, Any]) -> list[str]:
    """Return a summary of the scheduler's status, line by line."""
    counts = ", ".join(f"{count} {state}" for state, count in about["jobs"].items() if count)
    lines = [
        f"policy {about['policy']}, network {about['network']}, executor {about['executor']}",
        f"{about['nodes']} nodes, {about['slots']} slots, {about['workers']} workers at the gate, "
        f"{about['grants']:,} grants",
        f"jobs: {counts or 'none'}",
    ]
    if ungated := about["ungated"]:
        lines.append(f"do not ask the gate (headway.torch.attach): {', '.join(ungated)}")
    if about["policy_problem"]:
        lines.append(f"POLICY FAILED: {about['policy_problem']}")
    if about["storage_problem"]:
        lines.append(
            f"STATE CANNOT BE WRITTEN: {about['storage_problem']}; new jobs are refused and queued "
            "jobs are not started"
        )
    if about["log_problem"]:
        lines.append(f"EVENT LOG IS BEHIND: {about['log_problem']}")
    return lines


def jobs_table(jobs: list[dict[str, Any]], now: float, *, brief: bool = False) -> TextTable:
    """Return a table of jobs, with their predicted ends if there are any.

    `now` is the time of day. A `brief` table does not say since when.
    """
    from headway.live.core.job_state import FINISHED

    since = [] if brief else ["submitted", "running"]
    ends = ["ends"] if any(one["predicted_finish_at"] is not None for one in jobs) else []
    table = TextTable(["job", "state"], ["GPUs", "iterations", *since, *ends], ["name and status"])
    for one in jobs:
        total = one["spec"]["iterations"]
        done = f"{one['iterations']:,}" + ("" if total is None else f"/{total:,}")
        status = one["why"] if one["state"] not in FINISHED else one["reason"]
        title = one["spec"]["name"] or Path(one["spec"]["command"][-1]).name
        table.add_row(
            one["job_id"],
            "stuck" if one["stuck"] else one["state"],
            str(one["spec"]["gpus"]),
            done,
            *([] if brief else [f"{_elapsed(one['submitted_at'], now)} ago"]),
            *([] if brief else [_elapsed(one["started_at"], one["ended_at"] or now)]),
            *(_until(one["predicted_finish_at"], now) for _ in ends),
            f"{title}: {status}" if status else title,
        )
    return table


def _show_job(job: dict[str, Any]) -> None:
    spec = job["spec"]
    slots = " ".join(f"{slot['node']}:{slot['index']}" for slot in job["slots"])
    # Of a job that runs again, the reason is that of the attempt before.
    again = job["state"] in ("starting", "running")
    lines = {
        "state": f"{job['state']}{'' if again else _reason(job)}",
        "why": job["why"],
        "name": spec["name"],
        "command": " ".join(map(repr, spec["command"])),
        "folder": spec["folder"],
        "GPUs": str(spec["gpus"]),
        "slots": slots,
        "priority": str(spec["priority"] or ""),
        "attempts": f"{job['attempts']}{_attempt_before(job) if again else ''}",
        "iterations": f"{job['iterations']:,}",
        "submitted": _local_time(job["submitted_at"]),
        "started": _local_time(job["started_at"]),
        "ended": _local_time(job["ended_at"]),
        "running": _running_time(job),
        "predicted": _predicted(job),
    }
    for title, text in lines.items():
        if text:
            typer.echo(f"{title + ':':12}{printable(text)}")


def _running_time(job: dict[str, Any]) -> str:
    if job["started_at"] is None:
        return ""
    return _elapsed(job["started_at"], job["ended_at"] or time.time())


def _predicted(job: dict[str, Any]) -> str:
    """Return when a job is expected to start, if it waits, and to end, or why that is not known."""
    starts = job["predicted_start_at"] if job["state"] == "queued" else None
    parts = (("starts", starts), ("ends", job["predicted_finish_at"]))
    times = ", ".join(f"{what} {_local_time(at)}" for what, at in parts if at is not None)
    return ". ".join(text for text in (times, job["prediction_note"]) if text)


def _reason(job: dict[str, Any]) -> str:
    return f": {job['reason']}" if job["reason"] else ""


def _attempt_before(job: dict[str, Any]) -> str:
    return f"; attempt {job['attempts'] - 1} ended{_reason(job)}" if job["reason"] else ""


def _elapsed(since: float | None, until: float) -> str:
    """Return how much time has passed; clocks of two machines may differ a little."""
    return "-" if since is None else duration_text(round(max(0.0, until - since)))


def _until(at: float | None, now: float) -> str:
    if at is None:
        return "-"
    seconds = round(at - now)
    return f"in {duration_text(seconds)}" if seconds > 0 else "soon"


def _local_time(at: float | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def logs_command(
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Until the job has ended.")
    ] = False,
    rank: Annotated[int, typer.Option(help="The rank of the process.")] = 0,
    attempt: Annotated[
        int | None,
        typer.Option(min=1, help="Only this attempt, from 1; else the latest.", show_default=False),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Let the job's colours and escapes control the terminal."),
    ] = False,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Print the output of one of a job's processes.

    On a terminal, control characters are shown as escapes. Files and pipes get the output byte for
    byte.
    """
    chunks = connect(folder, server, token_file, certificate).logs(job, rank, follow, attempt)
    if raw or not sys.stdout.isatty():
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        return
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for chunk in chunks:
        print(_shown_output(decoder.decode(chunk)), end="", flush=True)
    print(_shown_output(decoder.decode(b"", final=True)), end="", flush=True)


def _shown_output(text: str) -> str:
    """Return what a job printed for a terminal: lines, tabs and progress bars work, no more."""
    return "".join(part if part in "\n\r\t" else printable(part) for part in _LAYOUT.split(text))


def cancel_command(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="The jobs' ids.")],
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Cancel jobs: their processes get SIGTERM, and SIGKILL if they do not exit."""
    client = connect(folder, server, token_file, certificate)
    failed: HeadwayError | None = None
    for job in dict.fromkeys(jobs):
        try:
            found = client.cancel(job)
        except HeadwayError as error:
            # The others are cancelled all the same; the last error becomes the command's.
            if failed is not None:
                typer.echo(printable(f"headway: error: {failed}"), err=True)
            failed = error
        else:
            typer.echo(printable(f"job {job} is {found['state']}"))
    if failed is not None:
        raise failed


def priority_command(
    job: JobArgument,
    priority: Annotated[int, typer.Argument(metavar="N", help="The new priority.")],
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Change the priority of a job that waits or runs: see headway submit --priority."""
    connect(folder, server, token_file, certificate).set_priority(job, priority)
    typer.echo(printable(f"job {job} has priority {priority}"))
