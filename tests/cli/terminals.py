"""Run the command line in this process, on a terminal of its own."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Mapping

import pytest

from headway.cli.main import run

_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")


def on_terminal(
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    *arguments: str,
    quit_with: bytes = b"",
    height: int = 40,
) -> list[str]:
    """Return the lines that `headway` prints on a terminal of this width, without its controls."""
    code, received = received_by_terminal(
        monkeypatch, width, *arguments, quit_with=quit_with, height=height
    )
    text = _CONTROL.sub("", received.decode())
    assert not code, text
    return [line.rstrip() for line in re.split(r"[\r\n]+", text)]


def received_by_terminal(
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    *arguments: str,
    quit_with: bytes = b"",
    height: int = 40,
    environment: Mapping[str, str] | None = None,
) -> tuple[object, bytes]:
    """Return the exit status of `headway` and all that it sends to a terminal of this width."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    received: list[bytes] = []
    reader = threading.Thread(target=_read, args=(main, received, quit_with))
    reader.start()
    kept = [os.dup(number) for number in range(3)]
    for number in range(3):
        os.dup2(side, number)
    streams = [os.fdopen(number, "w" if number else "r", closefd=False) for number in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["headway", *arguments])
        patch.setenv("TERM", "xterm-256color")
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            patch.delenv(name, raising=False)
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        try:
            with pytest.raises(SystemExit) as caught:
                run()
        finally:
            for stream in streams[1:]:
                stream.flush()
            for number, copy in enumerate(kept):
                os.dup2(copy, number)
                os.close(copy)
            os.close(side)
            reader.join()
            os.close(main)
    return caught.value.code, b"".join(received)


def _read(terminal: int, received: list[bytes], quit_with: bytes) -> None:
    """Collect what is printed until the other side is closed; press a key once it says `quits`."""
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return
        if not part:
            return
        received.append(part)
        # A terminal passes text on in pieces: the word may be divided among them.
        if quit_with and b"quits" in b"".join(received):
            os.write(terminal, quit_with)
            quit_with = b""
