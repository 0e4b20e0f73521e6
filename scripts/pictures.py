"""Write the pictures of the tutorials anew, from the runs that their pages show."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
TRACE = ROOT / "examples" / "traces" / "philly-two-days.csv"

TWO_JOBS = """\
job_id,arrival_s,gpus,iterations,forward_ms,backward_ms,gradient_mb,memory_mb
1,0,3,200,3,6,15.27,500
2,0.005,3,200,3,6,15.27,500
"""
"""The jobs of "Two jobs on one network", with such times as on a GPU."""


def headway(folder: Path, *words: str) -> None:
    """Run a command in a folder."""
    subprocess.run([sys.executable, "-m", "headway", *words], cwd=folder, check=True)


def own_policy(folder: Path) -> None:
    """Compare the policies of "Your own policy" with the paper's."""
    shutil.copy(ROOT / "examples" / "my_policies.py", folder)
    policies = "paper,my_policies.py:packed+ada-srsf,lwf:1+srsf+my_policies.py:patient:0.25"
    picture = str(PICTURES / "own-policy.svg")
    headway(folder, "compare", "paper", "--seeds", "10", "--policies", policies, "-o", picture)


def your_trace(folder: Path) -> None:
    """Compare policies on the trace of "Your cluster's trace", with five draws of its models."""
    workloads = [f"cluster-{seed}.csv" for seed in range(5)]
    for seed, workload in enumerate(workloads):
        words = ["philly-pollux", str(TRACE), "--seed", str(seed), "-o", workload]
        headway(folder, "workload", "import", *words)
    options = ["--policies", "paper,headway,ff+srsf:1", "--cluster", "4x4"]
    headway(folder, "compare", *workloads, *options, "-o", str(PICTURES / "your-trace.svg"))


def two_jobs(folder: Path) -> None:
    """Draw how the jobs of "Two jobs on one network" take turns, as the simulator has it."""
    (folder / "two-jobs.csv").write_text(TWO_JOBS)
    part = ["--timeline", "two-jobs.parquet", "--to", "0.1"]
    options = ["--cluster", "2x2", "--policy", "ff+srsf:1", "-q", *part]
    headway(folder, "simulate", "two-jobs.csv", *options)
    words = ["--from", "0", "--to", "0.1", "-o", str(PICTURES / "two-jobs.svg")]
    headway(folder, "report", "two-jobs.parquet", *words)


def main() -> None:
    """Write all pictures, or those that are named."""
    made = {"own-policy": own_policy, "your-trace": your_trace, "two-jobs": two_jobs}
    for name in sys.argv[1:] or made:
        with tempfile.TemporaryDirectory() as folder:
            made[name](Path(folder))


if __name__ == "__main__":
    main()
