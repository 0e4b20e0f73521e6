"""`headway top`: a scheduler as it works."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headway.cli.console import results
from headway.cli.live.cluster import nodes_table
from headway.cli.live.finding import (
    CertificateOption,
    FolderOption,
    ServerOption,
    TokenOption,
    client_of,
)
from headway.cli.live.jobs import jobs_table, status_lines
from headway.domain.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.live.api.client import Client

REFRESH_S = 1.0


def top_command(
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Show nodes and jobs, anew every second, until q or Ctrl-C."""
    from rich.live import Live

    client = client_of(folder, server, token_file, certificate)
    console = results()
    if not console.is_terminal or not sys.stdin.isatty():
        raise InputError("top needs a terminal; headway status and headway nodes do not.")
    picture = _picture(client, console.height)
    with _keys() as key, Live(picture, console=console, screen=True, auto_refresh=False) as live:
        while key(REFRESH_S) not in ("q", "Q"):
            live.update(_picture(client, console.height), refresh=True)


def _picture(client: Client, height: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    about, nodes = status_lines(client.status()), nodes_table(client.nodes())
    rows = max(1, height - len(about) - nodes.row_count - 6)
    jobs = jobs_table(client.jobs(limit=rows), rows)
    # What does not fit is cut off the last column, and not off all of them.
    jobs.expand, jobs.columns[-1].ratio = True, 1
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in (*about, "")]
    return Group(*lines, nodes, Text(""), jobs, Text("q quits", style="dim"))


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Give keys one by one while this lasts; the terminal is as it was afterwards."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _Keys()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _Keys:
    def __call__(self, patience_s: float) -> str:
        """Return the key that is pressed within so long, or nothing."""
        ready, _, _ = select.select([sys.stdin], [], [], patience_s)
        return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else ""
