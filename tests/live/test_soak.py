"""A short soak: jobs, their workers and shims, and the scheduler itself, killed at random."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from waiting import eventually

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "live" / "soak.py"
PATIENCE_S = 300.0


@contextlib.contextmanager
def soaking(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a soak with its files in this folder."""
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def leftovers(folder: Path) -> list[str]:
    """Return the command lines of all processes that mention this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in words:
                found.append(words)
    return found


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a folder whose path is short enough for a Unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        yield Path(folder)


def test_whatever_is_killed_every_job_ends_once_and_nothing_is_left_behind(short: Path) -> None:
    rates = ("--kills", "0.3", "0.2", "0.25")
    with soaking(short, "--jobs", "25", "--seed", "2", *rates) as process:
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, printed
    assert (leftovers(short), list(short.iterdir())) == ([], [])


def test_a_soak_that_is_interrupted_leaves_no_process_and_no_file(short: Path) -> None:
    with soaking(short, "--jobs", "25") as process:
        eventually(lambda: any("job.py" in line for line in leftovers(short)))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert (leftovers(short), list(short.iterdir())) == ([], [])
