"""Ctrl-C and requests to terminate: leave as at any exit, so that nothing stays behind."""

from __future__ import annotations

import signal
import sys
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143


def handle_signals() -> None:
    """Let both kinds of signal end the program by an ordinary exit."""
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        print("\nheadway: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    sys.exit(TERMINATED)
