"""The start of the `headway` command: signals first, then everything slow to import."""

from __future__ import annotations

from headway.interrupts import handle_signals, leave_now


def main() -> None:
    """Run the command line and exit: 0 well, 2 bad input, 130 interrupted."""
    handle_signals()
    try:
        from headway.cli.main import run

        run()
    finally:
        leave_now()


if __name__ == "__main__":
    main()
