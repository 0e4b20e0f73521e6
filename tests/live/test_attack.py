"""The attack script: some of its attacks, which must be repelled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "live" / "attack.py"


def test_attacks_are_repelled_and_listed() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "token", "host", "socket"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, 5), done
    assert lines[0] == "| attack | expected | seen | |"
    assert "WRONG" not in done.stdout
