"""The start of the `headway` command: signals first, then everything slow to import."""

from __future__ import annotations

import signal
import sys
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143


def _leave(number: int, _frame: FrameType | None) -> None:
    """Leave as at any exit, so that temporary files are removed on the way."""
    if number == signal.SIGINT:
        print("\nheadway: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    sys.exit(TERMINATED)


def main() -> None:
    """Run the command line and exit: 0 well, 2 bad input, 130 interrupted."""
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)
    from headway.cli.main import run

    run()


if __name__ == "__main__":
    main()
