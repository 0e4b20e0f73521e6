"""The options that select a scheduler, shared by its commands."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.domain.errors import InputError
from headway.text_table import printable

if TYPE_CHECKING:
    from headway.live.api.client import Client

START_S = 10.0
"""How long to wait for a scheduler that has not locked its state folder yet."""

_RETRY_S = 0.2

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        help="The scheduler's state folder.  [default: ~/.local/state/headway]",
        show_default=False,
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The scheduler's URL.  [default: the one published in its state folder]",
        show_default=False,
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="The file with the scheduler's token.  [default: the one in its state folder]",
        show_default=False,
    ),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        help="A PEM file to trust if --server is https://.  [default: the system's]",
        show_default=False,
    ),
]


def connect(
    folder: Path | None, server: str | None, token_file: Path | None, certificate: Path | None
) -> Client:
    """Return a client for the scheduler that these options select."""
    from headway.live.api.client import find

    return find(folder, server, token_file, certificate)


def connect_when_started(
    folder: Path | None, server: str | None, token_file: Path | None, certificate: Path | None
) -> Client:
    """Return a client as `connect` does, but wait for a scheduler that is starting."""
    from headway.live.daemon.state_folder import default_folder

    path = folder or default_folder()
    until = time.monotonic() + START_S
    announced = False
    while True:
        try:
            return connect(folder, server, token_file, certificate)
        except InputError:
            starting = _is_locked(path)
            if server is not None or not (starting or time.monotonic() < until):
                raise
        if not announced:
            typer.echo(printable(f"waiting for a scheduler on {path} to start …"), err=True)
            announced = True
        time.sleep(_RETRY_S)


def _is_locked(path: Path) -> bool:
    """Return whether a scheduler that runs or starts has locked its state folder."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(folder)
    return False
