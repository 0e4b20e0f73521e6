"""Runs real jobs under four policies on the testbed, and simulates the same jobs.

python benchmarks/live/jct.py measure   # needs root, an idle machine and ten minutes a round
python benchmarks/live/jct.py report    # writes the documentation's tables, figure and findings
python benchmarks/live/jct.py tables    # prints the tables
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jct_runs.jobs import HOSTS, POLICIES, Exported, Profile, draw, simulated_jct_s
from jct_runs.runs import Times, exported, read_times, run, scheduler, shared_job

from headway import testbed
from headway.calibrate.network.fit import fit
from headway.calibrate.network.on_testbed import measure_on_testbed
from headway.calibrate.network.plan import Plan
from headway.calibrate.network.samples import read_samples, write_samples
from headway.calibrate.progress import ProgressLine
from headway.domain.errors import InputError, MachineError
from headway.domain.estimates import Estimate
from headway.domain.graph import Graph
from headway.domain.models import MEBIBYTE
from headway.experiments.statistics import Sample, mean, paired_ratio
from headway.figure_style import COLOURS, INK, house_style, save_figure
from headway.files import open_output
from headway.graphs.ddp import bucketed
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
PERTURBATION, PERTURBED_RUNS = 0.03, 50
BASELINE = "free-for-all"

DATA = Path(__file__).parent / "jct_runs" / "data"
DOCS = Path(__file__).parents[2] / "docs" / "explanation" / "fidelity"
SAMPLES, PROFILES, RUNS, ITERATIONS = (
    DATA / name for name in ("network.samples.csv", "profiles.csv", "runs.csv", "iterations.csv")
)

Runs = Mapping[str, Mapping[int, Sequence[Times]]]
"""The times of all jobs, by policy and repeat."""

Simulated = Mapping[str, Mapping[int, Sequence[float]]]
"""The simulated JCT of all jobs in seconds, by policy and repeat."""


def measure(repeats: int, parts: Sequence[str], minutes: float) -> None:
    """Calibrate the network, profile every job alone, and run all policies in turn.

    No round of all policies begins that would end after so many minutes.
    """
    end_s = time.monotonic() + 60 * minutes
    DATA.mkdir(exist_ok=True)
    if not testbed.up(TESTBED):
        raise InputError(f"testbed '{TESTBED.name}' already exists; take it down first.")
    try:
        with tempfile.TemporaryDirectory(prefix="headway-jct-") as folder:
            if "network" in parts:
                calibrate(TESTBED, SAMPLES)
            path = Path(folder) / "network.toml"
            write_network(path, network())
            if "profiles" in parts:
                _profile(Path(folder), path)
            if "runs" in parts:
                _run_all(Path(folder), path, repeats, end_s)
    finally:
        testbed.down(TESTBED.name)


def calibrate(testbed: Testbed, path: Path) -> None:
    """Measure messages of the sizes of the jobs' gradients, and up to four at a time."""
    plan = Plan(
        tuple(size * MEBIBYTE for size in (1, 4, 16)), concurrent=4, repeats=8, timeout_s=120
    )
    with ProgressLine("calibration") as progress:
        measured = measure_on_testbed(testbed.name, plan, 29400, progress)
    write_samples(path, measured.samples)


def write_network(path: Path, model: NetworkModel) -> None:
    """Write a network as a file for the scheduler."""
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
            ready = state.with_suffix(".ready")
            run(client, [shared_job(few, None, ready)], ready)
        (found,) = exported(state, graphs=False).jobs
        profiles.append(Profile(found.forward_ns, found.backward_ns, found.gradient_bytes))
    columns = [field.name for field in fields(Profile)]
    _write(PROFILES, ("job", *columns), ((n, *astuple(one)) for n, one in enumerate(profiles)))
    print("profiles: measured", file=sys.stderr)


def _run_all(folder: Path, network: Path, repeats: int, end_s: float) -> None:
    """Run all policies once, then again, in a different order each time."""
    rows: list[tuple[Any, ...]] = []
    iterations: list[tuple[Any, ...]] = []
    names = list(POLICIES)
    for repeat in range(repeats):
        began_s = time.monotonic()
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            state = folder / f"{name.lower().replace('(', '').replace(')', '')}-{repeat}"
            with scheduler(state, TESTBED.name, POLICIES[name], network) as client:
                ready = state.with_suffix(".ready")
                jobs = zip(draw(SEED), profiles(), strict=True)
                run(client, [shared_job(job, profile, ready) for job, profile in jobs], ready)
            times = read_times(ready)
            for job, one in enumerate(exported(state)):
                iterations.append((name, repeat, job, *astuple(_parts(one.graph))))
            columns = [field.name for field in fields(Exported)]
            _write(ITERATIONS, ("policy", "repeat", "job", *columns), iterations)
            rows += [(name, repeat, job, *astuple(one)) for job, one in enumerate(times)]
            columns = [field.name for field in fields(Times)]
            _write(RUNS, ("policy", "repeat", "job", *columns), rows)
            average_s = np.mean([one.trained_s for one in times])
            print(f"{name}, repeat {repeat + 1}: average JCT {average_s:.1f} s", file=sys.stderr)
        now_s = time.monotonic()
        if now_s + (now_s - began_s) > end_s:
            return


def _parts(graph: Graph | None) -> Exported:
    """Return the times and bytes of an exported graph; these jobs have one bucket."""
    if graph is None:
        raise MachineError("a job was exported without a graph: it measured no iteration.")
    forward, backward, optimizer = (task.duration_ns for task in graph.tasks)
    (message,) = graph.messages
    return Exported(forward, backward, message.buffer_bytes, optimizer)


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with open_output(path) as stream:
        text = io.TextIOWrapper(stream, newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow(f"{one:.6f}" if isinstance(one, float) else one for one in row)
        text.detach()


def network(samples: Path = SAMPLES) -> NetworkModel:
    """Return the calibrated network, with the ring law for jobs on fewer hosts."""
    return replace(fit(read_samples(samples)).network, ring_size=HOSTS)


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


def exports() -> dict[int, list[Graph]]:
    """Read the graphs that were exported from the runs of the baseline, by repeat."""
    found: dict[int, list[Graph]] = {}
    gpus = [job.gpus for job in draw(SEED)]
    with ITERATIONS.open(newline="") as stream:
        for row in csv.DictReader(stream):
            if row["policy"] != BASELINE:
                continue
            one = Exported(*(int(row[field.name]) for field in fields(Exported)))
            ranks = gpus[int(row["job"])]
            graph = bucketed(
                ranks, one.forward_ns, [(one.backward_ns, one.gradient_bytes)], one.optimizer_ns
            )
            found.setdefault(int(row["repeat"]), []).append(graph)
    return found


def simulated() -> dict[str, dict[int, list[float]]]:
    """Simulate the jobs exported from each run of the baseline under every policy."""
    jobs, model = draw(SEED), network()
    return {
        name: {
            repeat: simulated_jct_s(jobs, graphs, model, text)
            for repeat, graphs in exports().items()
        }
        for name, text in POLICIES.items()
    }


def simulated_alone() -> dict[str, dict[int, list[float]]]:
    """Simulate jobs with the forward and backward times and the gradients measured alone."""
    jobs, found, model = draw(SEED), profiles(), network()
    return {
        name: dict.fromkeys(exports(), simulated_jct_s(jobs, found, model, text))
        for name, text in POLICIES.items()
    }


def averages_s(measured: Runs) -> dict[str, Any]:
    """Return the average JCT of each repeat, by policy."""
    return {
        name: np.array(
            [np.mean([one.trained_s for one in jobs]) for _, jobs in sorted(all_of.items())]
        )
        for name, all_of in measured.items()
    }


def errors(measured: Runs, predicted_s: Simulated, name: str) -> list[float]:
    """Return simulated / measured - 1 for every job of every run of a policy."""
    return [
        jct_s / one.trained_s - 1
        for repeat, jobs in measured[name].items()
        for one, jct_s in zip(jobs, predicted_s[name][repeat], strict=True)
    ]


def average_error(measured: Runs, predicted_s: Simulated, name: str) -> float:
    """Return simulated / measured - 1 of the average JCT of a policy."""
    return simulated_average_s(predicted_s, name) / float(averages_s(measured)[name].mean()) - 1


def simulated_average_s(predicted_s: Simulated, name: str) -> float:
    """Return the simulated average JCT of a policy."""
    return float(np.mean([*predicted_s[name].values()]))


def overlapping(jobs: Sequence[Times]) -> int:
    """Return the largest number of jobs that trained at the same time."""
    return max(sum(one.began_s <= at.began_s < one.trained_s for one in jobs) for at in jobs)


def jct_table(measured: Runs, predicted_s: Simulated, alone_s: Simulated) -> Table:
    """Show the average JCT of every policy, measured and simulated."""
    averages = averages_s(measured)
    rows = []
    for name, found in averages.items():
        saved = _paired_ratio(found, averages[BASELINE])
        sizes = np.abs(errors(measured, predicted_s, name))
        rows.append(
            (
                name,
                _with_interval(_mean(found), "{:.1f}"),
                "" if name == BASELINE else _with_interval(saved, "{:.2f}"),
                f"{simulated_average_s(predicted_s, name):.1f}",
                f"{average_error(measured, predicted_s, name):+.1%}",
                f"{average_error(measured, alone_s, name):+.1%}",
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
        "without graphs",
        "a job's error: median",
        "95th",
        "jobs at once",
    )
    repeats = len(next(iter(measured.values())))
    times = f"{repeats} runs of each policy, 95% intervals" if repeats > 1 else "one run each"
    caption = f"Real jobs and simulated ones: {times}"
    return Table("live", caption, header, rows)


def jobs_table(measured: Runs, predicted_s: Simulated) -> Table:
    """Show the jobs, and the JCT of each under every policy: measured mean and simulated."""
    rows = []
    graphs = next(iter(exports().values()))
    for number, (job, graph) in enumerate(zip(draw(SEED), graphs, strict=True)):
        cells = (
            f"{np.mean([jobs[number].trained_s for jobs in measured[name].values()]):.0f} / "
            f"{np.mean([jobs[number] for jobs in predicted_s[name].values()]):.0f}"
            for name in POLICIES
        )
        rows.append(
            (
                str(number + 1),
                str(job.gpus),
                f"{job.gradient_bytes / MEBIBYTE:g}",
                " + ".join(f"{task.duration_ns / 1e6:.0f}" for task in graph.tasks),
                str(job.iterations),
                *cells,
            )
        )
    times = "forward + backward + optimizer [ms]"
    header = ("job", "hosts", "MB", times, "iterations", *POLICIES)
    return Table("live-jobs", "The jobs, and their JCT: measured / simulated [s]", header, rows)


def all_errors(measured: Runs, predicted_s: Simulated) -> list[float]:
    """Return the sizes of all errors."""
    return [abs(error) for name in POLICIES for error in errors(measured, predicted_s, name)]


def draw_figure(measured: Runs, predicted_s: Simulated) -> Figure:
    """Draw average JCTs, measured and simulated, and every job's simulated against measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    averages = averages_s(measured)
    for index, (name, found) in enumerate(averages.items()):
        estimate = _mean(found)
        left.bar(index, estimate.value, 0.6, color=COLOURS[index], alpha=0.75)
        left.vlines(index, estimate.low, estimate.high, color=INK, linewidth=1)
        left.plot(
            index,
            simulated_average_s(predicted_s, name),
            marker="D",
            color=INK,
            markersize=5,
            linestyle="",
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
            for repeat, jobs in all_of.items()
            for one, jct_s in zip(jobs, predicted_s[name][repeat], strict=True)
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


def tables(measured: Runs, predicted_s: Simulated, alone_s: Simulated) -> list[Table]:
    """Return the tables of the documentation."""
    return [jct_table(measured, predicted_s, alone_s), jobs_table(measured, predicted_s)]


def findings(measured: Runs, predicted_s: Simulated, alone_s: Simulated) -> str:
    """Return the documentation's list of what the numbers say."""
    averages = averages_s(measured)
    ranked = _ranking({name: one.mean() for name, one in averages.items()})
    expected = _ranking({name: simulated_average_s(predicted_s, name) for name in POLICIES})
    saved = _paired_ratio(averages["headway"], averages[BASELINE])
    simulated_saved = 1 - simulated_average_s(predicted_s, "headway") / simulated_average_s(
        predicted_s, BASELINE
    )
    ranking = (
        f"- **The policies rank as simulated** ({ranked})"
        if ranked == expected
        else f"- **The policies rank otherwise than simulated** (measured: {ranked}; simulated: "
        f"{expected})"
    )
    interval = (
        f" ({1 - saved.high:.0%} to {1 - saved.low:.0%})" if len(averages[BASELINE]) > 1 else ""
    )
    sizes, before = all_errors(measured, predicted_s), all_errors(measured, alone_s)
    lines = [
        f"{ranking}: `headway` is {1 - saved.value:.0%} below {BASELINE}{interval}, simulated "
        f"{simulated_saved:.0%}.",
        f"- **Half of all jobs are within {np.median(sizes):.1%}** of the simulated times, and 95% "
        f"within {np.percentile(sizes, 95):.0%}. Simulated averages are off by "
        f"{_range(measured, predicted_s)}.",
        "- **Without graphs**, with the forward and backward times and the gradients that were "
        f"measured for each job alone, the median is {np.median(before):.1%}, the 95th percentile "
        f"{np.percentile(before, 95):.0%}, and averages are off by {_range(measured, alone_s)}: "
        "the optimizer step is missing.",
        "- **A few milliseconds** decide which of two jobs goes first, and thus which ends seconds "
        f"before the other: changing each job's times by up to {PERTURBATION:.0%} at random "
        f"changes simulated averages by {_sensitivity()}.",
    ]
    return "\n".join(lines) + "\n"


def _sensitivity() -> str:
    """Return how far simulated averages are apart if jobs compute a little faster or slower."""
    jobs, model, rng = draw(SEED), network(), random.Random(0)
    graphs = next(iter(exports().values()))
    found: dict[str, list[float]] = {name: [] for name in POLICIES}
    for _ in range(PERTURBED_RUNS):
        perturbed = [_scaled(graph, 1 + PERTURBATION * rng.uniform(-1, 1)) for graph in graphs]
        for name, policy in POLICIES.items():
            found[name].append(float(np.mean(simulated_jct_s(jobs, perturbed, model, policy))))
    apart = sorted(max(averages) / min(averages) - 1 for averages in found.values())
    return f"{apart[0]:.0%} to {apart[-1]:.0%}"


def _scaled(graph: Graph, factor: float) -> Graph:
    tasks = [replace(task, duration_ns=round(task.duration_ns * factor)) for task in graph.tasks]
    return Graph(graph.ranks, tasks, graph.messages)


def _range(measured: Runs, predicted_s: Simulated) -> str:
    found = [average_error(measured, predicted_s, name) for name in POLICIES]
    return f"{min(found):+.1%} to {max(found):+.1%}"


def _with_interval(estimate: Estimate, form: str) -> str:
    """Return an estimate with its interval, which a single run does not have."""
    value, low, high = (form.format(x) for x in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]" if math.isfinite(estimate.low) else value


def _mean(sample: Sample) -> Estimate:
    return mean(sample) if len(sample) > 1 else _single(float(sample[0]))


def _paired_ratio(sample: Sample, other: Sample) -> Estimate:
    return paired_ratio(sample, other) if len(sample) > 1 else _single(float(sample[0] / other[0]))


def _single(value: float) -> Estimate:
    return Estimate(value, math.nan, math.nan)


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
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.repeats, options.parts, options.minutes)
        return
    measured, predicted_s, alone_s = runs(), simulated(), simulated_alone()
    if options.what == "report":
        DOCS.mkdir(exist_ok=True)
        for table in tables(measured, predicted_s, alone_s):
            (DOCS / f"{table.name}.md").write_text(table.to_markdown())
        text = findings(measured, predicted_s, alone_s)
        (DOCS / "live-findings.md").write_text(text)
        with house_style():
            save_figure(draw_figure(measured, predicted_s), DOCS / "live.svg")
    for table in tables(measured, predicted_s, alone_s):
        print(table.to_markdown())
    print(findings(measured, predicted_s, alone_s))


if __name__ == "__main__":
    main()
