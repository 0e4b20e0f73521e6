"""`headway web`."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.live.client_options import (
    CertificateOption,
    FolderOption,
    ServerOption,
    TokenOption,
    connect_when_started,
)
from headway.text_table import printable
from headway.web.browser import open_in_browser


def web_command(
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Open the page of the running scheduler in a browser, signed in.

    It prints the link, which works once and within a minute. A browser stays signed in for a week.
    """
    link = connect_when_started(folder, server, token_file, certificate).sign_in()
    typer.echo(printable(link))
    if browser:
        open_in_browser(link)
