"""Does the contention model predict? Measure on the testbed, predict, and compare.

python benchmarks/fidelity/fidelity.py measure   # needs root and about half an hour
python benchmarks/fidelity/fidelity.py report    # makes the documentation's tables and figure
python benchmarks/fidelity/fidelity.py tables    # prints the tables
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from mixes import Message, Timed, measure_mixes, random_mixes
from predict import errors_of_half, halves, models, predicted_s

from headway import testbed
from headway.calibrate.network.fit import fit
from headway.calibrate.network.on_testbed import measure_on_testbed
from headway.calibrate.network.plan import Plan
from headway.calibrate.network.samples import read_samples, write_samples
from headway.calibrate.progress import ProgressLine
from headway.domain.errors import InputError
from headway.figure_style import COLOURS, DASHES, INK, house_style, save_figure
from headway.files import open_output
from headway.interrupts import handle_signals
from headway.network.contention import NetworkModel
from headway.reports.tables import Table
from headway.testbed import Testbed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pair = tuple[float, float]
"""Measured and predicted seconds."""

HERE = Path(__file__).parent
DATA = HERE / "data"
DOCS = HERE.parent.parent / "docs" / "explanation" / "fidelity"
SETTINGS = [
    Testbed("fidelity", hosts=hosts, rate_mbit=rate, eta=eta)
    for hosts, rate, eta in ((2, 200, 0), (4, 200, 0), (2, 1000, 0), (4, 1000, 0), (4, 200, 0.3))
]
KINDS = {"on all hosts": True, "on some hosts": False}
"""Whether every message of a mix is on all hosts."""

MIXES = 14
COLUMNS = ("mix", "hosts", "message_bytes", "offset_s", "start_s", "end_s")


def title(setting: Testbed) -> str:
    """Name a setting for people."""
    penalty = f", eta {setting.eta:g} b" if setting.eta else ""
    return f"{setting.hosts} hosts, {setting.rate_mbit:g} Mbit/s{penalty}"


def stem(setting: Testbed) -> str:
    """Name a setting for files."""
    return f"{setting.hosts}x{setting.rate_mbit:g}-eta{setting.eta:g}"


def kinds(setting: Testbed) -> list[str]:
    """Return the kinds of mixes of a setting: with two hosts there is but one."""
    return [kind for kind, everywhere in KINDS.items() if everywhere or setting.hosts > 2]


def mixes_path(setting: Testbed, kind: str) -> Path:
    """Return where the mixes of a kind are kept."""
    return DATA / f"{stem(setting)}-{kind.replace(' ', '-')}.csv"


def samples_path(setting: Testbed) -> Path:
    """Return where a setting's calibration is kept."""
    return DATA / f"{stem(setting)}.samples.csv"


def measure(settings: Iterable[Testbed], repeats: int, count: int, only_mixes: bool) -> None:
    """Measure every setting, one testbed after the other."""
    DATA.mkdir(exist_ok=True)
    for setting in settings:
        if not testbed.up(setting):
            raise InputError(f"there is a testbed '{setting.name}' already; take it down first.")
        try:
            if not only_mixes:
                _calibrate(setting, repeats)
            for seed, kind in enumerate(kinds(setting)):
                mixes = random_mixes(setting, count, seed, all_hosts=KINDS[kind])
                _write_mixes(mixes_path(setting, kind), measure_mixes(setting, mixes))
                print(f"{title(setting)}, {kind}: measured", file=sys.stderr)
        finally:
            testbed.down(setting.name)


def _calibrate(setting: Testbed, repeats: int) -> None:
    """Measure messages of 0.01 to 0.32 s alone between two hosts, and up to four at a time."""
    second = setting.rate_mbit * 1e6 / 8
    sizes = tuple(round(second * 0.01 * 2**power) // 4 * 4 for power in range(6))
    plan = Plan(sizes, concurrent=4, repeats=repeats, timeout_s=120)
    with ProgressLine(f"{title(setting)}: calibration") as progress:
        measured = measure_on_testbed(setting.name, plan, 29400, progress)
    write_samples(samples_path(setting), measured.samples)


def _write_mixes(path: Path, mixes: Sequence[Sequence[Timed]]) -> None:
    with open_output(path) as stream:
        text = io.TextIOWrapper(stream, newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, mix in enumerate(mixes):
            first = min(timed.start_s for timed in mix)
            for timed in mix:
                message = timed.message
                writer.writerow(
                    (
                        number,
                        " ".join(map(str, message.hosts)),
                        message.message_bytes,
                        f"{message.offset_s:.6f}",
                        f"{timed.start_s - first:.6f}",
                        f"{timed.end_s - first:.6f}",
                    )
                )
        text.detach()


def read_mixes(path: Path) -> list[list[Timed]]:
    """Read the mixes that were measured."""
    mixes: dict[str, list[Timed]] = {}
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            hosts = tuple(map(int, row["hosts"].split()))
            message = Message(hosts, int(row["message_bytes"]), float(row["offset_s"]))
            timed = Timed(message, float(row["start_s"]), float(row["end_s"]))
            mixes.setdefault(row["mix"], []).append(timed)
    return list(mixes.values())


def pairs(mixes: Sequence[Sequence[Timed]], hosts: int, network: NetworkModel) -> list[Pair]:
    """Return the measured and predicted seconds of every message."""
    return [
        (timed.end_s - timed.start_s, predicted)
        for mix in mixes
        for timed, predicted in zip(mix, predicted_s(mix, hosts, network), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Judged:
    """One setting: the half that was predicted, and its mixes under every network model."""

    setting: Testbed
    network: NetworkModel
    half: list[float]
    mixes: dict[str, dict[str, list[Pair]]]
    """By kind of mix, then by network model."""


def judge(setting: Testbed) -> Judged:
    """Fit a setting to one half of its calibration, and predict everything else."""
    samples = read_samples(samples_path(setting))
    known, rest = halves(samples)
    network = fit(known).network
    mixes = {}
    for kind in kinds(setting):
        measured = read_mixes(mixes_path(setting, kind))
        mixes[kind] = {
            name: pairs(measured, setting.hosts, model)
            for name, model in models(network, setting.hosts).items()
        }
    return Judged(setting, network, errors_of_half(rest, network), mixes)


def halves_table(judged: Sequence[Judged]) -> Table:
    """Show how well one half of a calibration predicts the other."""
    rows = [
        (
            title(one.setting),
            f"{one.network.a_ns / 1e6:.2f}",
            f"{one.network.b_ns_per_byte:.2f}",
            f"{one.network.eta_ns_per_byte:.2f}",
            f"{len(one.half):,}",
            *figures(one.half),
        )
        for one in judged
    ]
    header = ("testbed", "a (ms)", "b (ns/byte)", "eta (ns/byte)", "shots", "median", "95th")
    return Table(
        "halves", "Sizes and concurrency that were not fitted: error of the time", header, rows
    )


def mixes_table(judged: Sequence[Judged]) -> Table:
    """Show how well mixes are predicted, by network model."""
    rows = [
        (
            title(one.setting),
            kind,
            *(" / ".join(figures(errors(found))) for found in by_model.values()),
        )
        for one in judged
        for kind, by_model in one.mixes.items()
    ]
    header = ("testbed", "messages", *next(iter(judged[0].mixes.values())))
    caption = "Mixes that were never measured: median and 95th percentile of the error of the time"
    return Table("mixes", caption, header, rows, texts=2)


def all_table(judged: Sequence[Judged]) -> Table:
    """Show the errors over all settings together."""
    rows = [("sizes and concurrency", "paper", *figures([x for one in judged for x in one.half]))]
    for kind in KINDS:
        for name in models(judged[0].network, 2):
            found = [
                error
                for one in judged
                if kind in one.mixes
                for error in errors(one.mixes[kind][name])
            ]
            rows.append((f"mixes, {kind}", name, *figures(found)))
    header = ("predicted", "network model", "median", "95th percentile")
    return Table("all", "All testbeds together: error of the time", header, rows, texts=2)


def errors(found: Iterable[Pair]) -> list[float]:
    """Return predicted / measured - 1."""
    return [predicted / measured - 1 for measured, predicted in found]


def figures(found: Iterable[float]) -> tuple[str, str]:
    """Return the median and the 95th percentile of the sizes of errors."""
    sizes = [abs(error) for error in found]
    return f"{np.median(sizes):.1%}", f"{np.percentile(sizes, 95):.1%}"


def draw(judged: Sequence[Judged]) -> Figure:
    """Draw predicted against measured times of all mixes, and the errors' distribution."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    shown = (("paper", COLOURS[3]), ("max-min, by servers", COLOURS[0]))
    for axes, kind in ((left, "on all hosts"), (middle, "on some hosts")):
        found = [
            [pair for one in judged if kind in one.mixes for pair in one.mixes[kind][name]]
            for name, _ in shown
        ]
        ends = [min(map(min, found[0])) * 0.8, max(map(max, found[0])) * 1.25]
        axes.plot(ends, ends, color=INK, linewidth=0.8)
        for (name, colour), points in zip(shown, found, strict=True):
            axes.plot(
                *zip(*points, strict=True),
                linestyle="",
                marker=".",
                markersize=2.5,
                alpha=0.6,
                color=colour,
                label=name,
            )
        axes.set(
            xscale="log",
            yscale="log",
            xlim=ends,
            ylim=ends,
            xlabel="measured [s]",
            ylabel="predicted [s]",
            title=f"Mixes {kind}",
        )
    left.legend(loc="lower right", markerscale=3)
    for name, colour in shown:
        for dash, kind in zip(DASHES, KINDS, strict=False):
            sizes = np.sort(
                [
                    100 * abs(error)
                    for one in judged
                    if kind in one.mixes
                    for error in errors(one.mixes[kind][name])
                ]
            )
            share = 100 * np.arange(1, len(sizes) + 1) / len(sizes)
            right.plot(
                sizes,
                share,
                color=colour,
                linestyle=dash,
                label=f"{name}, {kind.removeprefix('on ')}",
            )
    right.set(
        xlim=(0, 120), ylim=(0, 100), xlabel="error [%]", ylabel="messages [%]", title="Errors"
    )
    right.legend(loc=(0.4, 0.2), fontsize=5.5, handlelength=2.5)
    return figure


def tables(judged: Sequence[Judged]) -> list[Table]:
    """Return the tables of the documentation."""
    return [halves_table(judged), mixes_table(judged), all_table(judged)]


def report() -> None:
    """Write the tables and the figure of the documentation."""
    judged = [judge(setting) for setting in SETTINGS]
    DOCS.mkdir(exist_ok=True)
    for table in tables(judged):
        (DOCS / f"{table.name}.md").write_text(table.to_markdown())
    with house_style():
        save_figure(draw(judged), DOCS / "mixes.svg")


def main() -> None:
    handle_signals()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "report", "tables"))
    parser.add_argument("--settings", type=int, nargs="*", default=range(len(SETTINGS)))
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--mixes", type=int, default=MIXES)
    parser.add_argument("--only-mixes", action="store_true", help="keep the calibrations")
    options = parser.parse_args()
    if options.what == "measure":
        chosen = [SETTINGS[place] for place in options.settings]
        measure(chosen, options.repeats, options.mixes, options.only_mixes)
    elif options.what == "tables":
        for table in tables([judge(setting) for setting in SETTINGS]):
            print(table.to_markdown())
    else:
        report()


if __name__ == "__main__":
    main()
