"""`headway top`: a live view of nodes and jobs."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headway.cli.console import results, table_lines
from headway.cli.live.client_options import (
    CertificateOption,
    FolderOption,
    ServerOption,
    TokenOption,
    connect,
)
from headway.cli.live.cluster import nodes_table
from headway.cli.live.jobs import jobs_table, status_lines
from headway.domain.errors import InputError
from headway.text_table import escapes_allowed, printable, wrap

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, RenderableType

    from headway.live.api.client import Client

REFRESH_S = 1.0


def top_command(
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Show nodes and jobs, refreshed every second, until q or Ctrl-C."""
    from rich.live import Live

    client = connect(folder, server, token_file, certificate)
    console = results()
    if not console.is_terminal or not sys.stdin.isatty():
        raise InputError("top requires a terminal; use headway status and headway nodes instead.")
    if not escapes_allowed():
        raise InputError(
            "top requires escape sequences, which NO_COLOR or TERM=dumb rules out; use headway "
            "status and headway nodes instead."
        )
    screen = _screen(client, console.size)
    with (
        _keyboard() as read_key,
        Live(screen, console=console, screen=True, auto_refresh=False) as live,
    ):
        while read_key(REFRESH_S) not in ("q", "Q"):
            live.update(_screen(client, console.size), refresh=True)


def _screen(client: Client, size: ConsoleDimensions) -> RenderableType:
    """Return the status, the nodes, and as many jobs as there is room for."""
    from rich.console import Group
    from rich.text import Text

    about = [
        Text(part)
        for line in status_lines(client.status())
        for part in wrap(printable(line), size.width)
    ]
    nodes = table_lines(nodes_table(client.nodes()), size.width)
    rows = max(1, size.height - len(about) - len(nodes) - 4)
    found, now = client.jobs(limit=rows), time.time()
    table = jobs_table(found, now)
    if not table.fits(size.width):
        table = jobs_table(found, now, brief=True)
    jobs = table_lines(table, size.width)
    return Group(*about, Text(""), *nodes, Text(""), *jobs[: rows + 1], Text("q quits", "dim"))


@contextlib.contextmanager
def _keyboard() -> Iterator[Callable[[float], str]]:
    """Return a function that reads single keys, and restore the terminal afterwards."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _read_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _read_key(timeout_s: float) -> str:
    """Return the next key pressed, or an empty string after the timeout."""
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else ""
