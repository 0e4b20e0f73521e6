"""Validates submitted jobs: JSON whose every field is checked."""

from __future__ import annotations

import os
import re
from typing import TypeVar

import msgspec

from headway.domain.errors import InputError, shown
from headway.domain.limits import MAX_PRIORITY, whole
from headway.live.core.events import JobSpec
from headway.live.core.jobs import check_spec
from headway.live.executors.slurm.lines import directives_of

MAX_ARGUMENTS = 4096
MAX_CHARACTERS = 100_000
"""Total length of a command, or of an environment."""
MAX_NAME_CHARACTERS = 200
MAX_RETRIES = 1000
MAX_DIRECTIVES = 100

_RESERVED = "HEADWAY_"

T = TypeVar("T")


class Submission(JobSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/jobs`: the fields of a JobSpec and no others."""


class PriorityChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `PUT /v1/jobs/{job}/priority`."""

    priority: int


def parse_submission(body: bytes) -> JobSpec:
    """Return the job described by a JSON body, or raise InputError for the first error in it."""
    submission = decoded(body, Submission)
    spec = JobSpec(**msgspec.structs.asdict(submission))
    check(spec)
    return spec


def decoded(body: bytes, kind: type[T]) -> T:
    """Return a JSON body as a value of a type, or raise InputError for the first error in it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _as_input_error(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body must be a JSON object: {error}.") from None


def check(spec: JobSpec) -> None:
    """Raise InputError if a value is out of range."""
    _check_command(spec.command)
    # Narrower than the core's own bound, which comes from its arithmetic.
    whole(spec.retries, "retries", 0, MAX_RETRIES)
    check_spec(spec)
    for name in ("model", "name"):
        text = getattr(spec, name)
        if len(text) > MAX_NAME_CHARACTERS or not (text == "" or text.isprintable()):
            raise InputError(
                f"must be at most {MAX_NAME_CHARACTERS} printable characters, not {shown(text)}.",
                field=name,
            )
    if not os.path.isabs(spec.folder) or "\0" in spec.folder or len(spec.folder) > 4096:
        raise InputError(f"must be an absolute path, not {shown(spec.folder)}.", field="folder")
    _check_environment(spec.environment)
    if len(spec.directives) + len(spec.skip_directives) > MAX_DIRECTIVES:
        raise InputError(f"there can be at most {MAX_DIRECTIVES}.", field="directives")
    directives_of(spec)


def check_priority(priority: int) -> int:
    """Return a priority if a user may give it to a job."""
    return whole(priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)


def _check_command(command: tuple[str, ...]) -> None:
    if not command or not command[0]:
        raise InputError("must be a program and its arguments.", field="command")
    if len(command) > MAX_ARGUMENTS or sum(map(len, command)) > MAX_CHARACTERS:
        raise InputError(
            f"must have at most {MAX_ARGUMENTS:,} arguments and {MAX_CHARACTERS:,} characters.",
            field="command",
        )
    _check_text("".join(command), "command")


def _check_environment(environment: dict[str, str]) -> None:
    for name, value in environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InputError(f"{shown(name)} is not a valid variable name.", field="environment")
        if name.startswith(_RESERVED):
            raise InputError(f"{name} is set by the scheduler.", field="environment")
        _check_text(value, "environment")
    if sum(len(name) + len(value) for name, value in environment.items()) > MAX_CHARACTERS:
        raise InputError(f"must have at most {MAX_CHARACTERS:,} characters.", field="environment")


def _check_text(text: str, name: str) -> None:
    """Refuse text that cannot be passed to a process."""
    if "\0" in text:
        raise InputError("must not contain a NUL character.", field=name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("must be valid Unicode text.", field=name) from None


def _as_input_error(problem: str) -> InputError:
    """Turn msgspec's 'Expected `int`, got `str` - at `$.gpus`' into this project's form."""
    what, _, where = problem.partition(" - at `$")
    field = where.strip("`.").split("[")[0].strip(".") or None
    return InputError(f"{what[:1].lower()}{what[1:].replace('`', '')}.", field=field)
