"""Turns a TorchX app into a job: one role, whose processes are the ranks."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from torchx.specs import AppDef, Role, macros

from headway.configuration.profiles import profile_fields
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import MAX_BYTES, scaled
from headway.domain.models import MEBIBYTE
from headway.live.api.submission import check
from headway.live.core.events import JobSpec
from headway.torchx.torchrun import take_apart

ROLE_NAME = "ROLE_NAME"
"""torchrun's variable with the name of a rank's role."""

_JOB, _RANK = "\0job\0", "\0rank\0"
"""Stand for macros that are known only when a rank starts; no argument can contain a NUL."""
_VARIABLES = {_JOB: '"$HEADWAY_JOB"', _RANK: '"$RANK"'}
_LATE = re.compile(f"({_JOB}|{_RANK})")


@dataclass(frozen=True)
class JobOptions:
    """What an app cannot say about a job, None if it is not known; see `headway submit`."""

    iterations: int | None = None
    model: str | None = None
    memory_mb: int | None = None
    priority: int = 0
    folder: str | None = None


def check_option(name: str) -> None:
    """Refuse an option that does not exist; TorchX itself would ignore it."""
    known = [one.name for one in fields(JobOptions)]
    if name not in known:
        raise InputError(f"unknown option {shown(name)}.{did_you_mean(name, known)}", field="-cfg")


def app_of_ranks(app: AppDef) -> AppDef:
    """Return an app with a replica for each rank: without torchrun, since Headway does its work.

    Raises:
        InputError: The app asks for what Headway does not do.
    """
    if len(app.roles) != 1:
        raise InputError(
            f"has {len(app.roles)} roles; Headway runs apps with one role, whose processes are the "
            "ranks of a job.",
            field=f"app {app.name}",
        )
    role = copy.deepcopy(app.roles[0])
    try:
        _start_ranks(role)
    except InputError as error:
        raise InputError(str(error), field=f"role {role.name}") from None
    return replace(app, roles=[role])


def _start_ranks(role: Role) -> None:
    if role.mounts:
        raise InputError("mounts are not supported: ranks see the files of their node.")
    if role.min_replicas not in (None, role.num_replicas):
        raise InputError(
            f"cannot run with {role.min_replicas} to {role.num_replicas} replicas: a job keeps its "
            "number of ranks."
        )
    torchrun = take_apart([role.entrypoint, *role.args])
    processes = 1 if torchrun is None else torchrun.processes
    if role.resource.gpu > 0 and role.resource.gpu != processes:
        raise InputError(
            f"asks for {role.resource.gpu} GPUs for {processes} processes in each replica; Headway "
            "gives each process one GPU, so these numbers must be equal."
        )
    if torchrun is None:
        return
    if torchrun.nodes != role.num_replicas:
        raise InputError(
            f"has {role.num_replicas} replicas, but torchrun has --nnodes {torchrun.nodes}."
        )
    role.entrypoint, *role.args = torchrun.command
    role.num_replicas *= processes
    role.min_replicas = None
    role.max_retries = max(role.max_retries, torchrun.restarts)
    role.resource = replace(role.resource, gpu=min(role.resource.gpu, 1))


def job_spec(app: AppDef, options: JobOptions) -> JobSpec:
    """Return the job that runs an app of ranks.

    Raises:
        InputError: An option is invalid.
    """
    known = macros.Values(img_root="", app_id=_JOB, replica_id=_RANK, rank0_env="MASTER_ADDR")
    role = known.apply(app.roles[0])
    command, environment = _expanded_at_start(
        [known.substitute(role.entrypoint), *role.args], role.env
    )
    values: dict[str, Any] = {
        "command": tuple(command),
        "gpus": role.num_replicas,
        "iterations": options.iterations,
        "priority": options.priority,
        "retries": role.max_retries,
        "name": app.name,
        "folder": str(Path(options.folder or ".").expanduser().absolute()),
        "environment": environment | {ROLE_NAME: role.name},
    }
    if options.model is not None:
        problem = f"unknown model {shown(options.model)}."
        values |= {"model": options.model} | profile_fields(options.model, problem, "model")
    if options.memory_mb is not None:
        memory_bytes = scaled(options.memory_mb, MEBIBYTE, "memory_mb", 0, MAX_BYTES, "MB")
        values["memory_bytes"] = memory_bytes
    spec = JobSpec(**values)
    check(spec)
    return spec


def _expanded_at_start(
    command: list[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return a command and an environment in which a shell fills in what is not yet known."""
    late = {name: value for name, value in environment.items() if _LATE.search(value)}
    known = dict(environment) | dict.fromkeys(late, "")
    if not late and not any(map(_LATE.search, command)):
        return command, known
    assignments = [f"{name}={_shell_word(value)}" for name, value in late.items()]
    line = " ".join([*assignments, "exec", *map(_shell_word, command)])
    return ["sh", "-c", line], known


def _shell_word(text: str) -> str:
    parts = [part for part in _LATE.split(text) if part]
    return "".join(_VARIABLES.get(part) or shlex.quote(part) for part in parts) or "''"
