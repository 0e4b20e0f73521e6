"""Run the command line in this process."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from headway.cli.main import run


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str


def headway(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """Run `headway` with these arguments."""
    before = sys.argv
    sys.argv = ["headway", *arguments]
    try:
        with pytest.raises(SystemExit) as caught:
            run()
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    code = caught.value.code
    return Outcome(code if isinstance(code, int) else 0, printed.out, printed.err)
