"""The scheduler `headway` of TorchX: a client of `headway serve`."""

from __future__ import annotations

import codecs
import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from torchx.schedulers.api import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    Stream,
    filter_regex,
)
from torchx.specs import AppDef, AppDryRunInfo, AppState, ReplicaStatus, Role, RoleStatus, runopts
from torchx.specs.finder import ComponentValidationException
from torchx.util.types import to_dict

from headway.domain.errors import HeadwayError, InputError, shown
from headway.live.api.client import Client, find
from headway.live.api.preparation import check_size
from headway.live.core.events import JobSpec
from headway.live.core.job_state import JobState
from headway.live.daemon.errors import ConflictError, NotFoundError
from headway.torchx.app_jobs import ROLE_NAME, JobOptions, app_of_ranks, check_option, job_spec

NAME = "headway"

_STATES = {
    JobState.QUEUED: AppState.PENDING,
    JobState.STARTING: AppState.PENDING,
    JobState.RUNNING: AppState.RUNNING,
    JobState.STOPPING: AppState.RUNNING,
    JobState.DONE: AppState.SUCCEEDED,
    JobState.FAILED: AppState.FAILED,
    JobState.CANCELLED: AppState.CANCELLED,
}
_UNNAMED_ROLE = "rank"
"""The role of jobs that were not submitted with TorchX."""

_VARIABLES = {
    "folder": "HEADWAY_FOLDER",
    "server": "HEADWAY_SERVER",
    "token-file": "HEADWAY_TOKEN_FILE",
    "certificate": "HEADWAY_CERTIFICATE",
}
"""Environment variables with the values of the options of Headway's own commands."""
_OPTION = re.compile(f"--({'|'.join(_VARIABLES)})\\b")

_log = logging.getLogger(__name__)


class TorchXError(HeadwayError, ComponentValidationException):
    """A refusal in the form that `torchx run` shows in one line."""


class JobRunopts(runopts):
    """The options of `-cfg`; unlike TorchX itself, it refuses unknown ones."""

    def cfg_from_str(self, cfg_str: str) -> dict[str, Any]:
        """Parse the text of `-cfg`; exit as argparse does if it is invalid."""
        try:
            for name, text in to_dict(cfg_str).items():
                check_option(name)
                if self.get(name).opt_type is int and not re.fullmatch("-?[0-9]+", text):
                    raise InputError(
                        f"must be a whole number, not {shown(text)}.", field=f"-cfg {name}"
                    )
            return dict(super().cfg_from_str(cfg_str))
        except (InputError, ValueError) as error:
            print(f"torchx: error: {error}", file=sys.stderr)
            raise SystemExit(2) from None


class HeadwayScheduler(Scheduler[Mapping[str, Any]]):
    """Submits apps as jobs; an app's id is the job's, and its replicas are the ranks."""

    def __init__(self, session_name: str) -> None:
        super().__init__(NAME, session_name)

    def _run_opts(self) -> runopts:
        options = JobRunopts()
        for name, kind, text in (
            ("iterations", int, "The number of iterations, if known."),
            ("model", str, "A model from the profiles: compute times, gradient size, memory."),
            ("memory_mb", int, "Memory needed on each GPU; without it, GPUs are not shared."),
            ("folder", str, "Where ranks start; by default, the current folder."),
        ):
            options.add(name, type_=kind, default=None, help=text)
        options.add("priority", type_=int, default=0, help="Jobs with a higher priority go first.")
        return options

    def submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[JobSpec]:
        """Return the job that would be submitted, and the app as it will be shown: by ranks."""
        with _in_torchx():
            return super().submit_dryrun(app_of_ranks(app), cfg)

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[JobSpec]:
        for name in cfg:
            check_option(name)
        return AppDryRunInfo(job_spec(app, JobOptions(**cfg)), _as_json)

    def schedule(self, dryrun_info: AppDryRunInfo[JobSpec]) -> str:
        """Submit a job and return its id."""
        with _in_torchx():
            client, spec = _client(), dryrun_info.request
            if warning := check_size(client.status(), spec.gpus, f"app {spec.name}"):
                _log.warning(warning)
            return str(client.submit(msgspec.to_builtins(spec))["job_id"])

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Describe a job, or return None if there is none with this id."""
        job = _job(app_id)
        if job is None:
            return None
        spec, state = job["spec"], _STATES[job["state"]]
        role = _role(job)
        nodes = [slot["node"] for slot in job["slots"]] or [""] * spec["gpus"]
        command, *arguments = spec["command"]
        return DescribeAppResponse(
            app_id=app_id,
            state=state,
            num_restarts=max(0, job["attempts"] - job["unstarted"] - 1),
            msg=job["why"] or job["reason"],
            roles=[
                Role(
                    name=role,
                    image="",
                    entrypoint=command,
                    args=arguments,
                    env=spec["environment"],
                    num_replicas=spec["gpus"],
                    max_retries=spec["retries"],
                )
            ],
            roles_statuses=[
                RoleStatus(
                    role,
                    [
                        ReplicaStatus(id=rank, state=state, role=role, hostname=node)
                        for rank, node in enumerate(nodes)
                    ],
                )
            ],
        )

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """List jobs, unfinished ones first, then the most recent."""
        return [
            ListAppResponse(app_id=job["job_id"], state=_STATES[job["state"]])
            for job in _client().jobs()
        ]

    def _cancel_existing(self, app_id: str) -> None:
        with contextlib.suppress(ConflictError):  # It has ended.
            _client().cancel(app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Yield the lines of rank k's output; both its streams are one."""
        if since is not None or until is not None:
            raise ValueError("since and until are not supported: lines of output have no times.")
        if streams not in (None, Stream.COMBINED):
            raise ValueError("streams must be combined: standard output and error are one log.")
        job = _client().job(app_id)
        if role_name != (known := _role(job)):
            raise ValueError(f"job {app_id} has no role {role_name}; its role is {known}.")
        lines = _lines(_client().logs(app_id, k, should_tail))
        return filter_regex(regex, lines) if regex else lines

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """Accept roles without a resource; `job_spec` checks the rest."""


def create_scheduler(session_name: str, **kwargs: object) -> HeadwayScheduler:
    """Return the scheduler; TorchX calls this by its entry point."""
    return HeadwayScheduler(session_name)


@contextlib.contextmanager
def _in_torchx() -> Iterator[None]:
    """Turn errors into TorchX's, with variables in place of the command line's options."""
    try:
        yield
    except HeadwayError as error:
        raise TorchXError(_OPTION.sub(lambda found: _VARIABLES[found[1]], str(error))) from None


def _client() -> Client:
    """Return a client for the scheduler that the environment names.

    TorchX's commands other than `torchx run` have no options for it.
    """
    with _in_torchx():
        folder, server, token_file, certificate = map(os.environ.get, _VARIABLES.values())
        return find(_path(folder), server, _path(token_file), _path(certificate))


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None


def _job(app_id: str) -> dict[str, Any] | None:
    try:
        return _client().job(app_id)
    except NotFoundError:
        return None


def _role(job: Mapping[str, Any]) -> str:
    return str(job["spec"]["environment"].get(ROLE_NAME, _UNNAMED_ROLE))


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from (f"{line}\n" for line in lines)
    if rest := rest + decoder.decode(b"", final=True):
        yield rest


def _as_json(spec: JobSpec) -> str:
    """Return the body of the request that submits a job."""
    fields = msgspec.to_builtins(spec)
    default = msgspec.to_builtins(JobSpec(command=()))
    given = {name: value for name, value in fields.items() if value != default[name]}
    return json.dumps(given, indent=2)
