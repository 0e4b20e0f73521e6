"""`python -m headway.calibrate`."""

from __future__ import annotations

import sys

from headway.calibrate.command import main
from headway.interrupts import handle_signals, leave_now

if __name__ == "__main__":
    handle_signals()
    try:
        sys.exit(main())
    finally:
        leave_now()
