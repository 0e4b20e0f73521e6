"""The commands `ip` and `tc` of iproute2, and what they need."""

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
"""Where iproute2 keeps the names of network namespaces."""


def require() -> None:
    """Refuse to go on without root, or without iproute2."""
    if os.geteuid() != 0:
        raise MachineError("needs root: a testbed is made of network namespaces. Try sudo.")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise MachineError(f"there is no command {tool}: install the package iproute2.")


def batch(tool: str, lines: Sequence[str], lock: int, namespace: str | None = None) -> None:
    """Run lines of `ip` or `tc` in one process, which stops at the first that fails.

    The process holds the lock too: were this one killed, others would wait until it is done. For
    the same reason its lines lie in a file: of a pipe it might see but a part.
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
        raise _refused(tool, done.stderr, what)


def ask(tool: str, *words: str, namespace: str) -> list[dict[str, Any]]:
    """Return what `ip` or `tc` tells about a namespace, read from its JSON."""
    answer: list[dict[str, Any]] = json.loads(told(tool, "-json", *words, namespace=namespace))
    return answer


def told(tool: str, *words: str, namespace: str) -> str:
    """Return what `ip` or `tc` tells about a namespace, as text."""
    done = subprocess.run(
        [tool, *_inside(namespace), *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise _refused(tool, done.stderr, f" ({tool} {' '.join(words)} in {namespace})")
    return done.stdout


def exists(namespace: str) -> bool:
    """Tell whether there is a network namespace of that name."""
    return (NAMESPACES / namespace).exists()


def command(testbed: Testbed, host: int, argv: Sequence[str]) -> list[str]:
    """Return the argument list that runs `argv` in a host, in place of `ip` itself."""
    return ["ip", "netns", "exec", testbed.namespace(host), *argv]


def _inside(namespace: str | None) -> list[str]:
    return [] if namespace is None else ["-netns", namespace]


def _refused(tool: str, said: str, what: str) -> MachineError:
    lines = [line for line in said.splitlines() if line and not line.startswith("Command failed")]
    return MachineError(f"{tool}: {'; '.join(lines) or 'failed'}{what}")
