"""Runs jobs whose gradients overlap with the backward pass on the testbed, and simulates them.

python benchmarks/live/overlap.py measure   # needs root, an idle machine and about ten minutes
python benchmarks/live/overlap.py report    # writes the documentation's table

The jobs have GPUs of their own and contend for the network only. They are simulated as they are
exported from a run under free-for-all, with their buckets, and as chains for comparison: the same
times, but all gradients in one message after the backward pass.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jct import DATA, DOCS, calibrate, network, write_network
from jct_runs.jobs import HOSTS, Drawn
from jct_runs.runs import exported, read_times, run, scheduler, specification

from headway import testbed
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.models import MEBIBYTE
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.files import open_output
from headway.interrupts import handle_signals
from headway.reports.tables import Table
from headway.testbed import Testbed
from headway.workload.files import read_workload, write_workload

TESTBED = Testbed("overlap", hosts=HOSTS, rate_mbit=200)
SLOTS = 3
POLICIES = {
    "free-for-all": "spread+srsf:20",
    "SRSF(1)": "spread+srsf:1",
    "Ada-SRSF": "spread+ada-srsf",
}
"""All on different hosts; free-for-all admits every message immediately."""

BASELINE = "free-for-all"
JOBS = [
    (4, Drawn(2, 12 * MEBIBYTE, 100, 300, 20)),
    (3, Drawn(2, 6 * MEBIBYTE, 60, 200, 30)),
    (4, Drawn(3, 8 * MEBIBYTE, 100, 300, 20)),
    (4, Drawn(3, 16 * MEBIBYTE, 150, 450, 12)),
    (4, Drawn(2, 8 * MEBIBYTE, 80, 240, 25)),
]
"""Buckets, and the job."""

RUNS, SAMPLES = DATA / "overlap.csv", DATA / "overlap.samples.csv"

Times = Mapping[str, Mapping[int, Sequence[float]]]
"""The JCT of all jobs in seconds, by policy and repeat."""


def export_path(repeat: int) -> Path:
    """Return where the jobs exported from a run under the baseline are."""
    return DATA / f"overlap-{repeat}.csv"


def measure(repeats: int) -> None:
    """Calibrate the network, and run all policies in turn, several times."""
    if not testbed.up(TESTBED):
        raise InputError(f"testbed '{TESTBED.name}' already exists; take it down first.")
    rows: list[tuple[object, ...]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="headway-overlap-") as folder:
            calibrate(TESTBED, SAMPLES)
            net = Path(folder) / "network.toml"
            write_network(net, network(SAMPLES))
            for repeat in range(repeats):
                for name, policy in POLICIES.items():
                    state = Path(folder) / f"{name.strip(')').replace('(', '')}-{repeat}"
                    ready = state.with_suffix(".ready")
                    with scheduler(state, TESTBED.name, policy, net, SLOTS) as client:
                        run(client, [specification(job, n, ready) for n, job in JOBS], ready)
                    if name == BASELINE:
                        write_workload(exported(state), export_path(repeat))
                    jct_s = [one.trained_s for one in read_times(ready)]
                    rows += [(name, repeat, job, f"{one:.6f}") for job, one in enumerate(jct_s)]
                    _write(rows)
                    print(f"{name}, repeat {repeat + 1}: {np.mean(jct_s):.1f} s", file=sys.stderr)
    finally:
        testbed.down(TESTBED.name)


def _write(rows: Sequence[Sequence[object]]) -> None:
    with open_output(RUNS) as stream:
        text = io.TextIOWrapper(stream, newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("policy", "repeat", "job", "jct_s"))
        writer.writerows(rows)
        text.detach()


def runs() -> Times:
    """Read the times of all runs."""
    found: dict[str, dict[int, list[float]]] = {}
    with RUNS.open(newline="") as stream:
        for row in csv.DictReader(stream):
            by_repeat = found.setdefault(row["policy"], {})
            by_repeat.setdefault(int(row["repeat"]), []).append(float(row["jct_s"]))
    return found


def simulated(measured: Times, *, chains: bool) -> Times:
    """Simulate the exported jobs under every policy, all submitted at the start."""
    cluster, model = Cluster(HOSTS, SLOTS), network(SAMPLES)
    found: dict[str, dict[int, list[float]]] = {name: {} for name in POLICIES}
    for repeat in measured[BASELINE]:
        jobs = [
            replace(
                _chain(job) if chains else job,
                arrival_ns=number,
                iterations=drawn.iterations,
                memory_bytes=cluster.gpu_memory_bytes,
            )
            for number, ((_, drawn), job) in enumerate(
                zip(JOBS, read_workload(export_path(repeat)), strict=True)
            )
        ]
        for name, policy in POLICIES.items():
            result = simulate(Workload(jobs), cluster, network=model, policy=policy)
            found[name][repeat] = [float(jct) for jct in result.jct_s]
    return found


def _chain(job: Job) -> Job:
    """Return a job that sends all gradients after its backward pass, in the same times."""
    assert job.graph is not None
    forward, *backward = (task.duration_ns for task in job.graph.tasks)
    return replace(
        job,
        graph=None,
        forward_ns=forward,
        backward_ns=sum(backward),
        gradient_bytes=sum(message.buffer_bytes for message in job.graph.messages),
    )


def table(measured: Times) -> Table:
    """Show the average JCT of every policy, measured, simulated, and simulated as chains."""
    graphs, chains = simulated(measured, chains=False), simulated(measured, chains=True)
    rows = []
    for name, by_repeat in measured.items():
        real_s, graph_s, chain_s = (
            np.array([one[name][repeat] for repeat in by_repeat])
            for one in (measured, graphs, chains)
        )
        sizes = np.abs(graph_s / real_s - 1)
        rows.append(
            (
                name,
                f"{real_s.mean():.1f}",
                f"{graph_s.mean():.1f}",
                f"{graph_s.mean() / real_s.mean() - 1:+.1%}",
                f"{np.median(sizes):.1%}",
                f"{sizes.max():.1%}",
                f"{chain_s.mean() / real_s.mean() - 1:+.1%}",
            )
        )
    header = (
        "policy",
        "average JCT [s]",
        "simulated [s]",
        "off by",
        "a job's error: median",
        "largest",
        "off by, as chains",
    )
    repeats = len(measured[BASELINE])
    times = f"{repeats} runs of each policy" if repeats > 1 else "one run each"
    caption = f"Jobs that send gradients during the backward pass: {times}"
    return Table("live-overlap", caption, header, rows)


def main() -> None:
    handle_signals()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "report"))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.repeats)
        return
    text = table(runs()).to_markdown()
    (DOCS / "live-overlap.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
