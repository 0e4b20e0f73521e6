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
    """Run `headway` with these arguments; what it says about compiling, once, is left out."""
    before = sys.argv
    sys.argv = ["headway", *arguments]
    try:
        with pytest.raises(SystemExit) as caught:
            run()
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    code = caught.value.code
    lines = printed.err.splitlines(keepends=True)
    err = "".join(line for line in lines if not line.startswith("Compiling "))
    return Outcome(code if isinstance(code, int) else 0, printed.out, err)
