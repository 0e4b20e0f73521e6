"""A soak test of the live scheduler: many short jobs, with everything killed at random.

python benchmarks/live/soak.py [--jobs 500] [--seed 0] [--kills WORKERS SHIMS SCHEDULER]

`headway serve` runs jobs on four nodes of this machine. Some attempts have a worker or the shim
killed (SIGKILL) or a rank stopped (SIGSTOP); some fail by themselves, ignore SIGTERM, flood their
log and the gate, or are cancelled. Now and then the disk is full, which needs root. During the
first half of the jobs the scheduler is killed too, sometimes while it starts. Then its database is
lost, and its successor rebuilds the jobs; it runs through the second half without interruption
while its memory is watched. At the end every job must have ended exactly once, no grant may be
held, and the logs of all runs must replay. Exits 1 if anything is wrong.

The seed determines the jobs, which attempts are hit at what point of their work, and after how many
starts the scheduler is killed. How all this interleaves depends on the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from soaking.drive import Soak
from soaking.plan import Rates
from soaking.scheduler import SoakError
from soaking.verdict import Verdict, judge

MAX_JOBS = 10_000
"""A scheduler remembers this many finished jobs."""


def soak(jobs: int, seed: int, rates: Rates) -> int:
    """Run a soak and print its results; return 1 if anything is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="headway-soak-"))
    running = Soak(folder, jobs, seed, rates)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, running.interrupt)
    began_s = time.monotonic()
    verdict = Verdict()
    try:
        try:
            running.run()
            judge(running, verdict)
        except SoakError as error:
            verdict.problems.append(str(error))
    except BaseException:
        running.scheduler.clear()
        running.scheduler.unmount()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    running.scheduler.clear()
    verdict.rows["seconds"] = f"{time.monotonic() - began_s:.0f}"
    print(f"| {jobs} jobs, seed {seed} | |\n|---|--:|")
    for name, value in verdict.rows.items():
        print(f"| {name} | {value} |")
    for problem in verdict.problems:
        print(f"WRONG: {problem}")
    running.scheduler.unmount(keep=bool(verdict.problems))
    if verdict.problems:
        print(f"{len(verdict.problems)} problems; all files are kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kills",
        type=float,
        nargs=3,
        default=(0.2, 0.1, 0.08),
        metavar=("WORKERS", "SHIMS", "SCHEDULER"),
        help="shares of attempts whose worker or shim is killed, and scheduler kills per job",
    )
    given = parser.parse_args()
    if not 2 <= given.jobs <= MAX_JOBS:
        parser.error(f"--jobs must be from 2 to {MAX_JOBS:,}")
    if min(given.kills) < 0 or sum(given.kills[:2]) > 0.9 or given.kills[2] > 1:
        parser.error("--kills: workers and shims together at most 0.9, the scheduler at most 1")
    # Policies as plain Python, as in the scheduler: the same decisions without compiling.
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return soak(given.jobs, given.seed, Rates(*given.kills))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
