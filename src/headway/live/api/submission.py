"""Jobs as users submit them: JSON that is not trusted until every field of it is checked."""

from __future__ import annotations

import os
import re

import msgspec

from headway.domain.errors import InputError, shown
from headway.domain.limits import whole
from headway.live.core.events import JobSpec
from headway.live.core.jobs import check_spec

MOST_WORDS = 4096
MOST_TEXT = 100_000
"""Characters of a command's words, or of an environment, together."""
LONGEST_NAME = 200
MOST_PRIORITY = 10**6
MOST_RETRIES = 1000

_RESERVED = "HEADWAY_"


class Submission(JobSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/jobs`: the fields of a JobSpec and no others."""


def spec_from(body: bytes) -> JobSpec:
    """Return the job that a JSON text describes, or raise InputError for its first mistake."""
    try:
        submission = msgspec.json.decode(body, type=Submission)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body must be a JSON object: {error}.") from None
    spec = JobSpec(**msgspec.structs.asdict(submission))
    check(spec)
    return spec


def check(spec: JobSpec) -> None:
    """Refuse a job with values out of bounds."""
    _check_words(spec.command)
    # Narrower than the scheduler's own bounds, which are those of its arithmetic.
    whole(spec.priority, "priority", -MOST_PRIORITY, MOST_PRIORITY)
    whole(spec.retries, "retries", 0, MOST_RETRIES)
    check_spec(spec)
    for name in ("model", "name"):
        text = getattr(spec, name)
        if len(text) > LONGEST_NAME or not (text == "" or text.isprintable()):
            raise InputError(
                f"must be at most {LONGEST_NAME} printable characters, not {shown(text)}.",
                field=name,
            )
    if not os.path.isabs(spec.folder) or "\0" in spec.folder or len(spec.folder) > 4096:
        raise InputError(f"must be an absolute path, not {shown(spec.folder)}.", field="folder")
    _check_environment(spec.environment)


def _check_words(command: tuple[str, ...]) -> None:
    if not command or not command[0]:
        raise InputError("must be a program and its arguments.", field="command")
    if len(command) > MOST_WORDS or sum(map(len, command)) > MOST_TEXT:
        raise InputError(
            f"must be at most {MOST_WORDS:,} words of {MOST_TEXT:,} characters together.",
            field="command",
        )
    _check_text("".join(command), "command")


def _check_environment(environment: dict[str, str]) -> None:
    for name, value in environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InputError(f"{shown(name)} is not a variable's name.", field="environment")
        if name.startswith(_RESERVED):
            raise InputError(f"{name} is set by the scheduler.", field="environment")
        _check_text(value, "environment")
    if sum(len(name) + len(value) for name, value in environment.items()) > MOST_TEXT:
        raise InputError(f"must be at most {MOST_TEXT:,} characters together.", field="environment")


def _check_text(text: str, name: str) -> None:
    """Refuse what no operating system takes as an argument."""
    if "\0" in text:
        raise InputError("must not have a NUL character.", field=name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("must be text that UTF-8 can hold.", field=name) from None


def _explained(problem: str) -> InputError:
    """Turn msgspec's 'Expected `int`, got `str` - at `$.gpus`' into this project's form."""
    what, _, where = problem.partition(" - at `$")
    field = where.strip("`.").split("[")[0].strip(".") or None
    return InputError(f"{what[:1].lower()}{what[1:].replace('`', '')}.", field=field)
