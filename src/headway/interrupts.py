"""SIGINT and SIGTERM end the program by an ordinary exit, so that cleanup runs."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143


def handle_signals() -> None:
    """Install handlers for SIGINT and SIGTERM that exit the program."""
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    # A second signal must not interrupt the cleanup.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if number == signal.SIGINT:
        # Not print(), which may be what the signal interrupted.
        os.write(2, b"\nheadway: interrupted\n")
        sys.exit(INTERRUPTED)
    sys.exit(TERMINATED)
