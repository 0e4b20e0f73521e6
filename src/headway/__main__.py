"""The start of the `headway` command: signals first, then everything slow to import."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

from headway.interrupts import handle_signals, leave_now


def main() -> None:
    """Run the command line and exit: 0 well, 2 bad input, 130 interrupted."""
    handle_signals()
    _occupy_standard_streams()
    sys.stderr = _open_messages()
    try:
        from headway.cli.main import run

        run()
    finally:
        leave_now()


def _occupy_standard_streams() -> None:
    """Open the null device in place of standard streams that are closed.

    Otherwise the next file to be opened would get their descriptor, and messages be written to it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


class _Messages(io.FileIO):
    """Standard error: a message that cannot be written, as the disk is full, is dropped."""

    def write(self, data: Any) -> int:
        """Write what can be written; return that all is."""
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)


def _open_messages() -> io.TextIOWrapper:
    # One that is None would have print() write to standard output.
    stream = io.BufferedWriter(_Messages(2, "w", closefd=False))
    encoding = getattr(sys.stderr, "encoding", "utf-8")
    return io.TextIOWrapper(stream, encoding, "backslashreplace", line_buffering=True)


if __name__ == "__main__":
    main()
