"""Write the pictures of the tutorials anew, from the runs that their pages show."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
TRACE = ROOT / "examples" / "traces" / "philly-two-days.csv"

TWO_JOBS = """\
job_id,arrival_s,gpus,iterations,forward_ms,backward_ms,gradient_mb,memory_mb
1,0,3,200,3,6,15.27,500
2,0.005,3,200,3,6,15.27,500
"""
"""The jobs of "Two jobs on one network", with such times as on a GPU."""

SERVE = """\
[serve]
policy = "ff+srsf:1"

[executor]
kind = "local"
nodes = 2
slots = 2
memory_mb = 2048
"""
"""The settings of "Two jobs on one network"."""

PATIENCE_MS = 120_000


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


def view(folder: Path) -> None:
    """Take the screenshots of "Look at a run", in Chromium."""
    from playwright.sync_api import sync_playwright

    runs = ("paper", "headway")
    for policy in runs:
        options = ["--policy", policy, "--timeline", f"{policy}.parquet", "-q"]
        headway(folder, "simulate", "paper", *options)
    headway(folder, "view", *(f"{policy}.parquet" for policy in runs), "-o", "runs.html")
    address = (folder / "runs.html").as_uri()
    shots = [
        ("view-run", "run", 1440, 900, "light"),
        ("view-jobs", "jobs", 1200, 420, "light"),
        ("view-job", "job/48", 1000, 560, "light"),
        ("view-compare", "compare", 1440, 900, "dark"),
    ]
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, tab, width, height, scheme in shots:
            size: Any = {"width": width, "height": height}
            look: Any = scheme
            page = browser.new_page(viewport=size, color_scheme=look)
            page.set_default_timeout(PATIENCE_MS)
            page.goto(f"{address}#{tab}")
            # Exact messages come after the first drawing.
            page.wait_for_selector("body[data-exact=true]")
            page.screenshot(path=PICTURES / f"{name}.png")
            page.close()
        browser.close()


def live(folder: Path) -> None:
    """Take the screenshots of "Watch a live cluster": the jobs of "Watch two jobs share a link"."""
    from playwright.sync_api import expect, sync_playwright

    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "HEADWAY_PORT": "0"}
    script = (ROOT / "examples" / "train.py").read_text()
    (folder / "train.py").write_text(script.replace("range(200)", "range(2000)"))
    (folder / "serve.toml").write_text(SERVE)
    expect.set_options(timeout=PATIENCE_MS)
    words = [sys.executable, "-m", "headway", "serve", "--config", "serve.toml"]
    with subprocess.Popen(words, cwd=folder) as scheduler, sync_playwright() as playwright:
        try:
            while not list(folder.glob("state/headway/address.json")):
                time.sleep(0.1)
            words = [sys.executable, "-m", "headway", "web", "--no-browser"]
            printed = subprocess.run(words, check=True, capture_output=True, text=True)
            link = re.search(r"http://\S+", printed.stdout + printed.stderr)
            assert link is not None
            chromium = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            size: Any = {"width": 1440, "height": 860}
            page = browser.new_page(viewport=size)
            page.goto(link[0])
            address = page.url
            for name in ("first", "second"):
                options = ["--gpus", "3", "--memory-mb", "500", "--iterations", "2000"]
                headway(folder, "submit", *options, "--name", name, "train.py")
            # Until one sends while the other waits, some time after the first iterations.
            page.wait_for_timeout(40_000)
            page.set_viewport_size({"width": 1100, "height": 640})
            expect(page.locator(".messages tbody tr")).to_contain_text(["15.27 MB", "has waited"])
            page.screenshot(path=PICTURES / "two-jobs-live.png")
            page.set_viewport_size({"width": 1440, "height": 860})
            options = ["--gpus", "4", "--iterations", "300", "--name", "third"]
            headway(folder, "submit", *options, "train.py")
            page.goto(f"{address}#jobs")
            expect(page.locator("tr[data-job='3'] td:nth-child(8)")).to_contain_text("in ")
            page.goto(f"{address}#overview")
            expect(page.locator(".messages tbody tr")).to_contain_text(["15.27 MB", "has waited"])
            page.screenshot(path=PICTURES / "live-cluster.png")
            page.set_viewport_size({"width": 1100, "height": 640})
            page.goto(f"{address}#job/1")
            expect(page.locator("#log")).to_contain_text("step 50")
            page.screenshot(path=PICTURES / "live-job.png")
            page.goto(f"{address}#what-if")
            page.locator("#if-nodes").fill("2")
            page.locator("#if-ask").click()
            expect(page.locator("#if-averages")).to_be_visible()
            page.screenshot(path=PICTURES / "live-what-if.png")
            browser.close()
            for job in ("1", "2", "3"):
                headway(folder, "cancel", job)
        finally:
            scheduler.terminate()


def main() -> None:
    """Write all pictures, or those that are named."""
    made = {
        "own-policy": own_policy,
        "your-trace": your_trace,
        "two-jobs": two_jobs,
        "view": view,
        "live": live,
    }
    for name in sys.argv[1:] or made:
        with tempfile.TemporaryDirectory() as folder:
            made[name](Path(folder))


if __name__ == "__main__":
    main()
