"""Does the contention model predict? Measure on the testbed, predict, and compare.

python benchmarks/fidelity/run.py measure   # needs root and about half an hour
python benchmarks/fidelity/run.py report    # writes the tables and the figure of the documentation
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from headway import testbed
from headway.calibrate.network.fit import fit
from headway.calibrate.network.on_testbed import measure_on_testbed
from headway.calibrate.network.plan import Plan
from headway.calibrate.network.samples import Sample, read_samples, write_samples
from headway.calibrate.progress import ProgressLine
from headway.network.contention import NetworkModel
from headway.reports.tables import markdown_table
from headway.testbed import Testbed
from mixes import Message, Timed, measure_mixes, random_mixes
from predict import errors_of_half, halves, models, predicted_s

HERE = Path(__file__).parent
DATA = HERE / "data"
DOCS = HERE.parent.parent / "docs" / "explanation" / "fidelity"
SETTINGS = [
    Testbed("fidelity", hosts=hosts, rate_mbit=rate, eta=eta)
    for hosts, rate, eta in ((2, 200, 0), (4, 200, 0), (2, 1000, 0), (4, 1000, 0), (4, 200, 0.3))
]
KINDS = {"on all hosts": True, "on some hosts": False}
"""Whether every message of a mix is on all hosts."""

MIXES = 40
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


def measure(settings: Iterable[Testbed], repeats: int, count: int) -> None:
    """Measure every setting, one testbed after the other."""
    DATA.mkdir(exist_ok=True)
    for setting in settings:
        testbed.up(setting)
        try:
            second = setting.rate_mbit * 1e6 / 8
            sizes = tuple(round(second * 0.01 * 2**power) // 4 * 4 for power in range(6))
            plan = Plan(sizes, concurrent=4, repeats=repeats, timeout_s=120)
            with ProgressLine(f"{title(setting)}: calibration") as progress:
                measured = measure_on_testbed(setting.name, plan, 29400, progress)
            write_samples(samples_path(setting), measured.samples)
            for seed, kind in enumerate(kinds(setting)):
                mixes = random_mixes(setting, count, seed, all_hosts=KINDS[kind])
                _write_mixes(mixes_path(setting, kind), measure_mixes(setting, mixes))
                print(f"{title(setting)}, {kind}: measured", file=sys.stderr)
        finally:
            testbed.down(setting.name)


def _write_mixes(path: Path, mixes: Sequence[Sequence[Timed]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
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


def mix_errors(
    mixes: Sequence[Sequence[Timed]], hosts: int, network: NetworkModel
) -> list[tuple[float, float]]:
    """Return (measured, predicted) seconds of every message."""
    return [
        (timed.end_s - timed.start_s, predicted)
        for mix in mixes
        for timed, predicted in zip(mix, predicted_s(mix, hosts, network), strict=True)
    ]


def percentile(values: Iterable[float], share: float) -> float:
    """Return the linear percentile."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def summary(errors: Iterable[float]) -> str:
    """Return the median and the 95th percentile of the sizes of errors."""
    sizes = [abs(error) for error in errors]
    return f"{statistics.median(sizes):.1%} / {percentile(sizes, 0.95):.1%}"
