"""`python -m headway.calibrate.models`: the command by itself, where only PyTorch is installed."""

from __future__ import annotations

import argparse
import sys

from headway.calibrate.models.command import add_arguments, run
from headway.domain.errors import HeadwayError

BAD_INPUT, INTERRUPTED = 2, 130


def main() -> int:
    """Run the command; what Headway reports on purpose ends it with one line and a 2."""
    parser = argparse.ArgumentParser(prog="headway calibrate model", allow_abbrev=False)
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except HeadwayError as error:
        print(f"headway: error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("\nheadway: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
