"""Runs real jobs on the testbed, and compares the scheduler's predictions with what happened.

python benchmarks/live/forecasts.py measure    # needs root, an idle machine and eight minutes
python benchmarks/live/forecasts.py measure --quick   # two minutes, prints the table only
python benchmarks/live/forecasts.py report     # writes the documentation's table

The jobs are those of jct.py, with so many iterations that each takes 40 to 60 s alone. They arrive
one after another, train as soon as they have started, and say nothing of their times: the scheduler
measures them. For each finished
job the scheduler tells the first prediction of its end and the one made closest to the half of its
life (`first_prediction` and `half_prediction` of `GET /v1/jobs`).
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jct import SEED, TESTBED, write_network
from jct import network as calibrated_network
from jct_runs.jobs import POLICIES, Drawn, draw
from jct_runs.runs import scheduler, shared_job
from scheduler_process import START_TIMEOUT_S, wait_until

from headway import testbed
from headway.domain.errors import InputError, MachineError
from headway.files import open_output
from headway.interrupts import handle_signals
from headway.live.api.client import Client
from headway.reports.tables import Table

MEASURED = ("headway", "free-for-all")
JOBS, QUICK_JOBS = 6, 3
ALONE_S = (40, 45, 50, 55, 60)
"""How long jobs take alone, roughly, in turn."""
WANTED_SHARE = 0.10
"""The median error at the half of a job's life, at most."""

DATA = Path(__file__).parent / "data" / "forecasts.csv"
DOCS = Path(__file__).parents[2] / "docs" / "explanation" / "fidelity" / "forecasts.md"

_RUN_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was predicted of a job and what happened, in seconds since its submission."""

    started_s: float
    ended_s: float
    first_made_s: float
    first_end_s: float
    half_made_s: float
    half_end_s: float

    @property
    def first_error(self) -> float:
        """The first prediction's error, as a share of the time that was left."""
        return abs(self.first_end_s - self.ended_s) / (self.ended_s - self.first_made_s)

    @property
    def half_error(self) -> float:
        """The same of the prediction at the half of its life."""
        return abs(self.half_end_s - self.ended_s) / (self.ended_s - self.half_made_s)


def longer(jobs: Sequence[Drawn]) -> list[Drawn]:
    """Return the jobs with more iterations."""
    found = []
    for number, job in enumerate(jobs):
        sending_ms = 50 * job.gradient_bytes / 1e6  # at 200 Mbit/s, about
        iteration_ms = job.forward_ms + job.backward_ms + sending_ms
        iterations = round(1000 * ALONE_S[number % len(ALONE_S)] / iteration_ms)
        found.append(replace(job, iterations=iterations))
    return found


Outcomes = Mapping[str, Sequence[Outcome]]
"""By policy, in the order of submission."""


def measure(names: Sequence[str], jobs: Sequence[Drawn]) -> dict[str, list[Outcome]]:
    """Run the jobs under each policy."""
    if not testbed.up(TESTBED):
        raise InputError(f"testbed '{TESTBED.name}' already exists; take it down first.")
    found: dict[str, list[Outcome]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="headway-forecasts-") as folder:
            network = Path(folder) / "network.toml"
            write_network(network, calibrated_network())
            for name in names:
                state = Path(folder) / name.lower()
                with scheduler(state, TESTBED.name, POLICIES[name], network) as client:
                    found[name] = _run(client, jobs, state.with_suffix(".ready"))
                for number, one in enumerate(found[name], start=1):
                    print(f"{name}, job {number}: {one}, {one.half_error:.1%}", file=sys.stderr)
    finally:
        testbed.down(TESTBED.name)
    return found


def _run(client: Client, jobs: Sequence[Drawn], ready: Path) -> list[Outcome]:
    """Submit each job when the one before it trains, and wait until all have ended."""
    ready.mkdir()
    (ready / "go").touch()
    ids = []
    for job in jobs:
        ids.append(str(client.submit(shared_job(job, None, ready))["job_id"]))
        # Many processes starting at once would slow each other down.
        wait_until((ready / ids[-1]).exists, START_TIMEOUT_S, f"job {ids[-1]} did not start")
    wait_until(lambda: _all_done(client, ids), _RUN_TIMEOUT_S, "jobs did not end")
    time.sleep(1.0)
    outcomes = [_outcome(client.job(job_id)) for job_id in ids]
    return [one for one in outcomes if one is not None]


def _all_done(client: Client, ids: Sequence[str]) -> bool:
    states = {one["job_id"]: one["state"] for one in client.jobs()}
    if failed := [job_id for job_id in ids if states[job_id] in ("failed", "cancelled")]:
        raise MachineError(f"job {failed[0]} {states[failed[0]]}.")
    return all(states[job_id] == "done" for job_id in ids)


def _outcome(job: Mapping[str, Any]) -> Outcome | None:
    first, half = job["first_prediction"], job["half_prediction"]
    if first is None or half is None:
        print(f"job {job['job_id']} was never predicted.", file=sys.stderr)
        return None
    times_ns = (
        job["started_ns"],
        job["ended_ns"],
        *(one[key] for one in (first, half) for key in ("made_ns", "finish_ns")),
    )
    return Outcome(*((time_ns - job["submitted_ns"]) / 1e9 for time_ns in times_ns))


def write(outcomes: Outcomes) -> None:
    """Save what was measured."""
    DATA.parent.mkdir(exist_ok=True)
    columns = ["policy", "job", *(field.name for field in fields(Outcome))]
    lines = [",".join(columns)]
    for name, jobs in outcomes.items():
        for number, job in enumerate(jobs, start=1):
            values = [f"{value:.3f}" for value in astuple(job)]
            lines.append(",".join([name, str(number), *values]))
    with open_output(DATA) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


def read() -> dict[str, list[Outcome]]:
    """Read what was measured."""
    found: dict[str, list[Outcome]] = {}
    with DATA.open(newline="") as stream:
        for row in csv.DictReader(stream):
            values = (float(row[field.name]) for field in fields(Outcome))
            found.setdefault(row["policy"], []).append(Outcome(*values))
    return found


def table(outcomes: Outcomes) -> Table:
    """Show the errors by policy, and of all jobs."""
    groups = dict(outcomes)
    if len(groups) > 1:
        groups["all"] = [job for jobs in outcomes.values() for job in jobs]
    rows = []
    for name, jobs in groups.items():
        first, half = (
            np.array([getattr(job, which) for job in jobs])
            for which in ("first_error", "half_error")
        )
        rows.append(
            (
                name,
                str(len(jobs)),
                f"{np.mean([job.ended_s for job in jobs]):.0f}",
                f"{np.median(half):.1%}",
                f"{half.max():.1%}",
                f"{np.mean([job.half_made_s / job.ended_s for job in jobs]):.0%}",
                f"{np.median(first):.1%}",
                f"{np.mean([job.first_made_s for job in jobs]):.0f}",
            )
        )
    header = (
        "policy",
        "jobs",
        "average JCT [s]",
        "error at half: median",
        "largest",
        "made at",
        "first error: median",
        "made at [s]",
    )
    caption = "Predicted ends of real jobs: error as a share of the time that was left"
    return Table("forecasts", caption, header, rows)


def main() -> None:
    """Measure or report."""
    handle_signals()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "report"))
    parser.add_argument("--quick", action="store_true", help="a few short jobs, nothing is saved")
    options = parser.parse_args()
    if options.what == "report":
        found = read()
        DOCS.write_text(table(found).to_markdown())
    elif options.quick:
        found = measure(MEASURED[:1], longer(draw(SEED)[:QUICK_JOBS]))
    else:
        found = measure(MEASURED, longer(draw(SEED)[:JOBS]))
        write(found)
    print(table(found).to_markdown())
    median = np.median([job.half_error for jobs in found.values() for job in jobs])
    if median > WANTED_SHARE:
        print(f"The median error at half is above {WANTED_SHARE:.0%}.", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
