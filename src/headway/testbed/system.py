"""Running the commands `ip` and `tc` of iproute2."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.domain.errors import MachineError
from headway.testbed.description import Testbed

NAMESPACES = Path("/run/netns")
"""Where iproute2 keeps named network namespaces."""


def check_prerequisites() -> None:
    """Raise an error without root or without iproute2."""
    if os.geteuid() != 0:
        raise MachineError("needs root: a testbed is made of network namespaces. Try sudo.")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise MachineError(f"command {tool} not found: install the package iproute2.")


def batch(tool: str, lines: Sequence[str], lock: int, namespace: str | None = None) -> None:
    """Run commands of `ip` or `tc` in one process, which stops at the first that fails.

    The process inherits the lock: if this one is killed, other commands wait until it is done. Its
    input is a file for the same reason: from a pipe it might read only a part.
    """
    with tempfile.TemporaryFile() as script:
        script.write("".join(f"{line}\n" for line in lines).encode())
        script.seek(0)
        done = subprocess.run(
            [tool, *_inside(namespace), "-batch", "-"],
            stdin=script,
            capture_output=True,
            text=True,
            pass_fds=[lock],
            check=False,
        )
    if done.returncode != 0:
        failed = re.search(r"Command failed -:(\d+)", done.stderr)
        what = f" ({tool} {lines[int(failed[1]) - 1]})" if failed else ""
        raise _tool_error(tool, done.stderr, what)


def query_json(tool: str, *words: str, namespace: str) -> list[dict[str, Any]]:
    """Return the parsed JSON output of `ip` or `tc` in a namespace."""
    answer: list[dict[str, Any]] = json.loads(query(tool, "-json", *words, namespace=namespace))
    return answer


def query(tool: str, *words: str, namespace: str) -> str:
    """Return the output of `ip` or `tc` in a namespace."""
    done = subprocess.run(
        [tool, *_inside(namespace), *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise _tool_error(tool, done.stderr, f" ({tool} {' '.join(words)} in {namespace})")
    return done.stdout


def exists(namespace: str) -> bool:
    """Return whether a network namespace exists."""
    return (NAMESPACES / namespace).exists()


def command(testbed: Testbed, host: int, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs `argv` in a host."""
    return ["ip", "netns", "exec", testbed.namespace(host), *argv]


def _inside(namespace: str | None) -> list[str]:
    return [] if namespace is None else ["-netns", namespace]


def _tool_error(tool: str, output: str, what: str) -> MachineError:
    lines = [line for line in output.splitlines() if line and not line.startswith("Command failed")]
    return MachineError(f"{tool}: {'; '.join(lines) or 'failed'}{what}")
