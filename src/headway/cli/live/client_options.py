"""The options that select a scheduler, shared by its commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headway.live.api.client import Client

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
