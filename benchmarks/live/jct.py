"""Runs real jobs under four policies on the testbed, and simulates the same jobs.

python benchmarks/live/jct.py measure   # needs root, an idle machine and about half an hour
python benchmarks/live/jct.py report    # writes the documentation's tables and figure
python benchmarks/live/jct.py tables    # prints the tables
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jct_runs.jobs import HOSTS, POLICIES, Profile, draw, simulated_jct_s
from jct_runs.runs import Times, read_times, run, scheduler

from headway import testbed
from headway.calibrate.network.fit import fit
from headway.calibrate.network.on_testbed import measure_on_testbed
from headway.calibrate.network.plan import Plan
from headway.calibrate.network.samples import read_samples, write_samples
from headway.calibrate.progress import ProgressLine
from headway.domain.errors import InputError
from headway.domain.estimates import Estimate
from headway.domain.models import MEBIBYTE
from headway.experiments.statistics import mean, paired_ratio
from headway.figure_style import COLOURS, INK, house_style, save_figure
from headway.files import open_output
from headway.interrupts import handle_signals
from headway.network.contention import NetworkModel
from headway.reports.tables import Table
from headway.testbed import Testbed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TESTBED = Testbed("jct", hosts=HOSTS, rate_mbit=200)
SEED = 740
"""The one of 3,000 draws for which the simulated policies differ most and no job has to queue."""

PROFILED_ITERATIONS = 8
BASELINE = "free-for-all"

DATA = Path(__file__).parent / "jct_runs" / "data"
DOCS = Path(__file__).parents[2] / "docs" / "explanation" / "fidelity"
SAMPLES, PROFILES, RUNS = (
    DATA / name for name in ("network.samples.csv", "profiles.csv", "runs.csv")
)

Runs = Mapping[str, Mapping[int, Sequence[Times]]]
"""The times of all jobs, by policy and repeat."""


def measure(repeats: int, parts: Sequence[str]) -> None:
    """Calibrate the network, profile every job alone, and run all policies in turn."""
    DATA.mkdir(exist_ok=True)
    if not testbed.up(TESTBED):
        raise InputError(f"testbed '{TESTBED.name}' already exists; take it down first.")
    try:
        with tempfile.TemporaryDirectory(prefix="headway-jct-") as folder:
            if "network" in parts:
                _calibrate()
            network = Path(folder) / "network.toml"
            _write_network(network)
            if "profiles" in parts:
                _profile(Path(folder), network)
            if "runs" in parts:
                _run_all(Path(folder), network, repeats)
    finally:
        testbed.down(TESTBED.name)


def _calibrate() -> None:
    """Measure messages of the sizes of the jobs' gradients, and up to four at a time."""
    plan = Plan(
        tuple(size * MEBIBYTE for size in (1, 4, 16)), concurrent=4, repeats=8, timeout_s=120
    )
    with ProgressLine("calibration") as progress:
        measured = measure_on_testbed(TESTBED.name, plan, 29400, progress)
    write_samples(SAMPLES, measured.samples)


def _write_network(path: Path) -> None:
    model = network()
    path.write_text(
        f"[network]\na_ns = {model.a_ns}\nb_ns_per_byte = {model.b_ns_per_byte}\n"
        f"eta_ns_per_byte = {model.eta_ns_per_byte}\nring_size = {model.ring_size}\n"
    )


def _profile(folder: Path, network: Path) -> None:
    """Run every job alone for a few iterations, and save what the scheduler measured."""
    profiles = []
    for number, job in enumerate(draw(SEED)):
        state = folder / f"profile-{number}"
        with scheduler(state, TESTBED.name, POLICIES[BASELINE], network) as client:
            few = replace(job, iterations=PROFILED_ITERATIONS)
            run(client, [few], [None], state.with_suffix(".ready"))
        (found,) = read_times(state)[1].history.workload().jobs
        profiles.append(Profile(found.forward_ns, found.backward_ns, found.gradient_bytes))
    columns = [field.name for field in fields(Profile)]
    _write(PROFILES, ("job", *columns), ((n, *astuple(one)) for n, one in enumerate(profiles)))
    print("profiles: measured", file=sys.stderr)


def _run_all(folder: Path, network: Path, repeats: int) -> None:
    """Run all policies once, then again, in a different order each time."""
    rows: list[tuple[Any, ...]] = []
    names = list(POLICIES)
    for repeat in range(repeats):
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            state = folder / f"{name.lower().replace('(', '').replace(')', '')}-{repeat}"
            with scheduler(state, TESTBED.name, POLICIES[name], network) as client:
                run(client, draw(SEED), profiles(), state.with_suffix(".ready"))
            times, _ = read_times(state)
            rows += [(name, repeat, job, *astuple(one)) for job, one in enumerate(times)]
            columns = [field.name for field in fields(Times)]
            _write(RUNS, ("policy", "repeat", "job", *columns), rows)
            average_s = np.mean([one.trained_s for one in times])
            print(f"{name}, repeat {repeat + 1}: average JCT {average_s:.1f} s", file=sys.stderr)


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with open_output(path) as stream:
        text = io.TextIOWrapper(stream, newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow(f"{one:.6f}" if isinstance(one, float) else one for one in row)
        text.detach()


def network() -> NetworkModel:
    """Return the calibrated network, with the ring law for jobs on fewer hosts."""
    return replace(fit(read_samples(SAMPLES)).network(), ring_size=HOSTS)


def profiles() -> list[Profile]:
    """Read the measured profiles of the jobs."""
    with PROFILES.open(newline="") as stream:
        return [
            Profile(*(int(row[field.name]) for field in fields(Profile)))
            for row in csv.DictReader(stream)
        ]


def runs() -> Runs:
    """Read the times of all runs."""
    found: dict[str, dict[int, list[Times]]] = {name: {} for name in POLICIES}
    with RUNS.open(newline="") as stream:
        for row in csv.DictReader(stream):
            times = (float(row[field.name]) for field in fields(Times))
            found[row["policy"]].setdefault(int(row["repeat"]), []).append(Times(*times))
    return found


def simulated() -> dict[str, list[float]]:
    """Simulate the profiled jobs on the calibrated network under every policy."""
    jobs, found, model = draw(SEED), profiles(), network()
    return {name: simulated_jct_s(jobs, found, model, text) for name, text in POLICIES.items()}


def averages_s(measured: Runs) -> dict[str, Any]:
    """Return the average JCT of each repeat, by policy."""
    return {
        name: np.array(
            [np.mean([one.trained_s for one in jobs]) for _, jobs in sorted(all_of.items())]
        )
        for name, all_of in measured.items()
    }


def errors(measured: Runs, predicted_s: Mapping[str, Sequence[float]], name: str) -> list[float]:
    """Return simulated / measured - 1 for every job of every run of a policy."""
    return [
        jct_s / one.trained_s - 1
        for jobs in measured[name].values()
        for one, jct_s in zip(jobs, predicted_s[name], strict=True)
    ]


def overlapping(jobs: Sequence[Times]) -> int:
    """Return the largest number of jobs that trained at the same time."""
    return max(sum(one.began_s <= at.began_s < one.trained_s for one in jobs) for at in jobs)


def jct_table(measured: Runs, predicted_s: Mapping[str, Sequence[float]]) -> Table:
    """Show the average JCT of every policy, measured and simulated."""
    averages = averages_s(measured)
    rows = []
    for name, found in averages.items():
        simulated_s = float(np.mean(predicted_s[name]))
        saved = paired_ratio(found, averages[BASELINE])
        sizes = np.abs(errors(measured, predicted_s, name))
        rows.append(
            (
                name,
                _with_interval(mean(found), "{:.1f}"),
                "" if name == BASELINE else _with_interval(saved, "{:.2f}"),
                f"{simulated_s:.1f}",
                f"{simulated_s / found.mean() - 1:+.1%}",
                f"{np.median(sizes):.1%}",
                f"{np.percentile(sizes, 95):.1%}",
                str(min(overlapping(jobs) for jobs in measured[name].values())),
            )
        )
    header = (
        "policy",
        "average JCT [s]",
        f"of {BASELINE}'s",
        "simulated [s]",
        "off by",
        "a job's error: median",
        "95th",
        "jobs at once",
    )
    repeats = len(next(iter(measured.values())))
    caption = f"Real jobs and simulated ones: {repeats} runs of each policy, 95% intervals"
    return Table("live", caption, header, rows)


def jobs_table(predicted_s: Mapping[str, Sequence[float]], measured: Runs) -> Table:
    """Show the jobs, and the JCT of each under every policy: measured mean and simulated."""
    rows = []
    for number, (job, profile) in enumerate(zip(draw(SEED), profiles(), strict=True)):
        cells = (
            f"{np.mean([jobs[number].trained_s for jobs in measured[name].values()]):.0f} / "
            f"{predicted_s[name][number]:.0f}"
            for name in POLICIES
        )
        rows.append(
            (
                str(number + 1),
                str(job.gpus),
                f"{job.gradient_bytes / MEBIBYTE:g}",
                f"{profile.forward_ns / 1e6:.0f} + {profile.backward_ns / 1e6:.0f}",
                str(job.iterations),
                *cells,
            )
        )
    header = ("job", "hosts", "MB", "forward + backward [ms]", "iterations", *POLICIES)
    return Table("live-jobs", "The jobs, and their JCT: measured / simulated [s]", header, rows)


def all_errors(measured: Runs, predicted_s: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the sizes of all errors."""
    return [abs(error) for name in POLICIES for error in errors(measured, predicted_s, name)]


def draw_figure(measured: Runs, predicted_s: Mapping[str, Sequence[float]]) -> Figure:
    """Draw average JCTs, measured and simulated, and every job's simulated against measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    averages = averages_s(measured)
    for index, (name, found) in enumerate(averages.items()):
        estimate = mean(found)
        left.bar(index, estimate.value, 0.6, color=COLOURS[index], alpha=0.75)
        left.vlines(index, estimate.low, estimate.high, color=INK, linewidth=1)
        left.plot(
            index, np.mean(predicted_s[name]), marker="D", color=INK, markersize=5, linestyle=""
        )
    left.plot([], [], marker="D", color=INK, markersize=5, linestyle="", label="simulated")
    left.set_xticks(range(len(averages)), list(averages))
    left.set(ylabel="average JCT [s]", title="Real jobs on the testbed")
    left.set_ylim(0, 1.25 * max(float(found.max()) for found in averages.values()))
    left.legend(loc="upper right")
    everything = [
        one.trained_s for all_of in measured.values() for x in all_of.values() for one in x
    ]
    ends = [0.8 * min(everything), 1.25 * max(everything)]
    right.plot(ends, ends, color=INK, linewidth=0.8)
    for colour, (name, all_of) in zip(COLOURS, measured.items(), strict=False):
        points = [
            (one.trained_s, jct_s)
            for jobs in all_of.values()
            for one, jct_s in zip(jobs, predicted_s[name], strict=True)
        ]
        right.plot(*zip(*points, strict=True), linestyle="", marker=".", color=colour, label=name)
    right.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=ends,
        xlabel="measured JCT [s]",
        ylabel="simulated JCT [s]",
        title="Every job of every run",
    )
    right.legend(loc="upper left", fontsize=6)
    return figure


def tables(measured: Runs, predicted_s: Mapping[str, Sequence[float]]) -> list[Table]:
    """Return the tables of the documentation."""
    return [jct_table(measured, predicted_s), jobs_table(predicted_s, measured)]


def _with_interval(estimate: Estimate, form: str) -> str:
    value, low, high = (form.format(x) for x in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _ranking(means: Mapping[str, float]) -> str:
    return " < ".join(sorted(means, key=lambda name: means[name]))


def main() -> None:
    handle_signals()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "report", "tables"))
    parser.add_argument("--repeats", type=int, default=3)
    parts = ("network", "profiles", "runs")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.repeats, options.parts)
        return
    measured, predicted_s = runs(), simulated()
    if options.what == "report":
        DOCS.mkdir(exist_ok=True)
        for table in tables(measured, predicted_s):
            (DOCS / f"{table.name}.md").write_text(table.to_markdown())
        with house_style():
            save_figure(draw_figure(measured, predicted_s), DOCS / "live.svg")
    for table in tables(measured, predicted_s):
        print(table.to_markdown())
    sizes = all_errors(measured, predicted_s)
    print(f"median error of a job's JCT {np.median(sizes):.1%}, 95% {np.percentile(sizes, 95):.1%}")
    print("measured: ", _ranking({name: one.mean() for name, one in averages_s(measured).items()}))
    print("simulated:", _ranking({name: float(np.mean(one)) for name, one in predicted_s.items()}))


if __name__ == "__main__":
    main()
