"""Takes torchrun commands apart: Headway starts the ranks itself, with torchrun's variables."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from headway.domain.errors import InputError, did_you_mean, shown

_REPLACED = frozenset(
    {
        *("rdzv-backend", "rdzv-conf", "rdzv-endpoint", "rdzv-id", "standalone"),
        *("master-addr", "master-port", "local-addr", "node-rank"),
        *("monitor-interval", "role", "start-method", "tee"),
    }
)
"""Options for what Headway does in its own way: how ranks meet, are watched, and keep output."""

_FLAGS = frozenset({"module", "no-python", "standalone"})
_USED = frozenset({"max-restarts", "module", "nnodes", "no-python", "nproc-per-node"})
_SHORT = {"-m": "--module", "-t": "--tee"}
_SHELLS = ("bash", "sh")
_MODULE = "torch.distributed.run"
_RUNS_TORCHRUN = re.compile(
    r"(?<![\w.-])torchrun(?![\w./-])|torch\.distributed\.(?:run|launch)(?![\w.])", re.ASCII
)
"""A program or module that starts ranks, in a word or a line; not `torchrun` in another name."""

_SHELL_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""")
_QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
_LITERAL = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
"""What the shell leaves as it is outside quotes, as in `shlex.quote`."""


class Torchrun(NamedTuple):
    """What a torchrun command would start: `processes` on each of `nodes`."""

    nodes: int
    processes: int
    restarts: int
    command: list[str]


def take_apart(command: Sequence[str]) -> Torchrun | None:
    """Return what a torchrun command would start, or None for any other command.

    The command may be a line for a shell if the shell would change nothing in it but values that
    Headway replaces.

    Raises:
        InputError: It runs torchrun in a way that Headway cannot follow.
    """
    words: list[str | None] = list(command)
    if PurePath(command[0]).name in _SHELLS and len(command) == 3 and command[1] == "-c":
        words = _shell_words(command[2])
    launcher = _launcher_length(words)
    if launcher == 0:
        if any(map(_RUNS_TORCHRUN.search, command)):
            raise InputError(
                "runs torchrun among other things; Headway starts ranks itself, so torchrun and "
                "its script must be the whole command.",
                field="args",
            )
        return None
    python = [sys.executable] if launcher == 1 else [str(one) for one in words[: launcher - 2]]
    return _parse(words[launcher:], python)


def _launcher_length(words: Sequence[str | None]) -> int:
    """Return how many words are `torchrun`, or `python -m torch.distributed.run`; 0 if neither."""
    if words and words[0] is not None and PurePath(words[0]).name == "torchrun":
        return 1
    for index in range(2, len(words)):
        if words[index] == _MODULE and words[index - 1] == "-m" and None not in words[:index]:
            return index + 1
        if not str(words[index - 1]).startswith("-"):
            break
    return 0


def _shell_words(line: str) -> list[str | None]:
    """Split a line as a shell does; None is a word that the shell would change."""
    words: list[str | None] = []
    for raw in _SHELL_WORD.findall(line):
        literal = _LITERAL.fullmatch(_QUOTED.sub("", raw))
        words.append("".join(shlex.split(raw)) if literal else None)
    return words if "\n" not in _QUOTED.sub("", line) else []


def _parse(words: Sequence[str | None], python: list[str]) -> Torchrun:
    options: dict[str, str | None] = {}
    position = 0
    while position < len(words) and (word := words[position]) is not None and word[:1] == "-":
        position += 1
        if word == "--":
            break
        name, equals, value = _SHORT.get(word, word).removeprefix("--").partition("=")
        name = name.replace("_", "-")
        if name not in _REPLACED | _USED:
            raise InputError(
                f"torchrun's option {shown(word)} is not supported."
                f"{did_you_mean(name, _REPLACED | _USED)}",
                field="args",
            )
        if name in _FLAGS:
            options[name] = ""
        elif equals:
            options[name] = value
        else:
            options[name] = words[position] if position < len(words) else None
            position += 1
    script = [str(word) for word in words[position:]]
    if not script or None in words[position:]:
        raise InputError(
            "torchrun needs a script, given word for word: nothing of it may be left to a shell.",
            field="args",
        )
    prefix = [] if "no-python" in options else python + ["-m"] * ("module" in options)
    return Torchrun(
        _number(options, "nnodes", 1),
        _number(options, "nproc-per-node", 1),
        _number(options, "max-restarts", 0),
        [*prefix, *script],
    )


def _number(options: dict[str, str | None], name: str, default: int) -> int:
    """Return the value of an option; Headway needs to know how many ranks a job has."""
    text = options.get(name, str(default))
    if text is None or not (text.isascii() and text.isdigit()):
        raise InputError(f"must be a whole number, not {shown(text)}.", field=f"torchrun --{name}")
    return int(text)
