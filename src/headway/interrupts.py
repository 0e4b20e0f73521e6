"""Ctrl-C and requests to terminate: leave as at any exit, so that nothing stays behind."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143


def handle_signals() -> None:
    """Let both kinds of signal end the program by an ordinary exit."""
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    # Whoever is impatient must not interrupt the cleaning up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if number == signal.SIGINT:
        # Not print, which may be what was interrupted.
        os.write(2, b"\nheadway: interrupted\n")
        sys.exit(INTERRUPTED)
    sys.exit(TERMINATED)
