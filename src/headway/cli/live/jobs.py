"""`headway submit`, `status`, `logs` and `cancel`."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.console import figures_table, results
from headway.cli.live.finding import (
    CertificateOption,
    FolderOption,
    ServerOption,
    TokenOption,
    client_of,
)
from headway.domain.errors import InputError, did_you_mean
from headway.domain.limits import MOST_BYTES, scaled
from headway.domain.models import MEBIBYTE

if TYPE_CHECKING:
    from rich.table import Table

    from headway.live.api.client import Client

PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
NOT_DONE = 1
_POLL_S = 0.2

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's number.")]


def submit_command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT [ARGS]...",
            help="What every process of the job runs. A .py script is run with this Python.",
        ),
    ],
    gpus: Annotated[int, typer.Option(help="GPUs, or slots: one process on each.")] = 1,
    memory_mb: Annotated[
        float | None,
        typer.Option(
            help="Memory that it needs on each GPU; without, it gets GPUs to itself.",
            show_default=False,
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(help="How many it will do, if that is known.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model of the profiles (`headway workload profiles`): times, gradient and "
            "memory are taken from there.",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[int, typer.Option(help="Higher goes first, whatever the policy.")] = 0,
    retries: Annotated[int, typer.Option(help="How often to start it again if it fails.")] = 0,
    name: Annotated[str, typer.Option(help="For people.", show_default=False)] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job is over; exit 1 unless it is done.")
    ] = False,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Submit a job: a script and its arguments, which no shell reads. Prints its number."""
    client = client_of(folder, server, token_file, certificate)
    spec: dict[str, Any] = {
        "command": _command(words),
        "gpus": gpus,
        "priority": priority,
        "retries": retries,
        "name": name,
        "folder": str(Path.cwd()),
        "iterations": iterations,
    }
    if model is not None:
        spec |= _profile(model)
    if memory_mb is not None:
        spec["memory_bytes"] = scaled(memory_mb, MEBIBYTE, "memory-mb", 0, MOST_BYTES, "MB")
    job = client.submit(spec)["job_id"]
    typer.echo(job)
    if wait:
        raise typer.Exit(_waited(client, job))


def _command(words: list[str]) -> list[str]:
    script = Path(words[0])
    if script.suffix != ".py":
        return words
    if not script.is_file():
        raise InputError(f"there is no script {script}.")
    return [sys.executable, *words]


def _profile(model: str) -> dict[str, Any]:
    """Return what the first of all sets that has a model says of it."""
    from headway.configuration.profiles import profiles_from, shipped_names
    from headway.domain.profiles import model_names, profile_at

    sets = profiles_from(shipped_names())
    found = profile_at(model, None, sets)
    if found is None:
        raise InputError(f"unknown model.{did_you_mean(model, model_names(sets))}", field="model")
    profile = found[0]
    return {
        "model": model,
        "memory_bytes": profile.memory_bytes,
        "forward_ns": profile.forward_ns,
        "backward_ns": profile.backward_ns,
        "gradient_bytes": profile.gradient_bytes,
    }


def _waited(client: Client, job: str) -> int:
    from headway.live.core.job_state import FINISHED

    while (found := client.job(job))["state"] not in FINISHED:
        time.sleep(_POLL_S)
    typer.echo(f"job {job} is {found['state']}{_because(found)}", err=True)
    return 0 if found["state"] == "done" else NOT_DONE


def status_command(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="A job's number.", show_default=False)
    ] = None,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Show the scheduler and its jobs, or one job; what waits says why."""
    client = client_of(folder, server, token_file, certificate)
    if job is not None:
        _show_job(client.job(job))
        return
    about = client.status()
    for line in status_lines(about):
        typer.echo(line)
    if jobs := client.jobs(limit=100):
        typer.echo()
        results(uncut=True).print(jobs_table(jobs, len(jobs)))


def status_lines(about: dict[str, Any]) -> list[str]:
    """Return what a scheduler says of itself, in a few lines."""
    counts = ", ".join(f"{count} {state}" for state, count in about["jobs"].items() if count)
    lines = [
        f"policy {about['policy']}, network {about['network']}, executor {about['executor']}",
        f"{about['nodes']} nodes, {about['slots']} slots, {about['workers']} jobs at the gate, "
        f"{about['grants']:,} grants",
        f"jobs: {counts or 'none'}",
    ]
    if about["policy_problem"]:
        lines.append(f"THE POLICY FAILS: {about['policy_problem']}")
    if about["storage_problem"]:
        lines.append(
            f"NOTHING CAN BE STORED: {about['storage_problem']}; new jobs are refused, and those "
            "that wait are not started"
        )
    if about["log_problem"]:
        lines.append(f"THE EVENT LOG IS BEHIND: {about['log_problem']}")
    return lines


def jobs_table(jobs: list[dict[str, Any]], most: int) -> Table:
    """Return a table of jobs."""
    from headway.live.core.job_state import FINISHED

    table = figures_table("job", "state", "GPUs", "iterations", "submitted")
    table.add_column("what", no_wrap=True)
    for one in jobs[:most]:
        total = one["spec"]["iterations"]
        done = f"{one['iterations']:,}" + ("" if total is None else f"/{total:,}")
        what = one["why"] if one["state"] not in FINISHED else one["reason"]
        title = one["spec"]["name"] or Path(one["spec"]["command"][-1]).name
        table.add_row(
            one["job_id"],
            one["state"],
            str(one["spec"]["gpus"]),
            done,
            _when(one["submitted_at"]),
            f"{title}: {what}" if what else title,
        )
    return table


def _show_job(job: dict[str, Any]) -> None:
    spec = job["spec"]
    slots = " ".join(f"{slot['node']}:{slot['index']}" for slot in job["slots"])
    lines = {
        "state": f"{job['state']}{_because(job)}",
        "why": job["why"],
        "name": spec["name"],
        "command": " ".join(map(repr, spec["command"])),
        "folder": spec["folder"],
        "GPUs": str(spec["gpus"]),
        "slots": slots,
        "attempts": str(job["attempts"]),
        "iterations": f"{job['iterations']:,}",
        "submitted": _when(job["submitted_at"]),
        "started": _when(job["started_at"]),
        "ended": _when(job["ended_at"]),
    }
    for title, text in lines.items():
        if text:
            typer.echo(f"{title + ':':12}{text}")


def _because(job: dict[str, Any]) -> str:
    return f": {job['reason']}" if job["reason"] else ""


def _when(at: float | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def logs_command(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the job is over.")] = False,
    rank: Annotated[int, typer.Option(help="Which of its processes.")] = 0,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Print what a process of a job printed, as it did."""
    for chunk in client_of(folder, server, token_file, certificate).logs(job, rank, follow):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def cancel_command(
    job: JobArgument,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """End a job: its processes are asked to end, and killed if they do not."""
    found = client_of(folder, server, token_file, certificate).cancel(job)
    typer.echo(f"job {job} is {found['state']}")
