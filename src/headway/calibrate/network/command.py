"""`headway calibrate network`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headway.calibrate.network.figure import draw
from headway.calibrate.network.fit import Fit, fit
from headway.calibrate.network.plan import BACKENDS, SIZES, Plan, sizes_from
from headway.calibrate.network.profile import write_network
from headway.calibrate.network.rank import Measurement, import_torch, is_rank, measure
from headway.calibrate.network.report import report
from headway.calibrate.network.samples import Sample, read_samples, write_samples
from headway.calibrate.progress import ProgressLine
from headway.domain.errors import InputError, shown
from headway.domain.limits import whole, whole_from
from headway.files import check_outputs
from headway.text_table import UNLIMITED, printable
from headway.version import __version__

DESCRIPTION = """\
Measure the time of all-reduces on a network, alone and several at once, and fit the contention
model T = a + k*b*M + (k-1)*eta*M.

Start it on every node with torchrun, with one process for each group that all-reduces at the same
time:

  torchrun --nnodes 4 --nproc-per-node 4 \\
      --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
      -m headway.calibrate network -o network.toml

or start it here, on a Ray cluster (--on HOST:PORT) or on the testbed (--on testbed). It writes
network.toml, for `headway simulate --network`, and beside it the raw samples and a figure."""

DEFAULT_PORT = 29400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    default = Plan()
    parser.add_argument(
        "-o",
        "--output",
        default="network.toml",
        metavar="FILE.toml",
        help="file to write; FILE.samples.csv and FILE.svg go beside it (default: %(default)s)",
    )
    parser.add_argument(
        "--on",
        metavar="WHERE",
        help="testbed, testbed:NAME, or HOST:PORT of a Ray cluster (default: torchrun's nodes)",
    )
    parser.add_argument(
        "--fit-only",
        metavar="SAMPLES.csv",
        help="fit these samples instead of measuring (columns k, message_bytes, time_ns)",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=default.backend,
        help="backend of torch.distributed (default: %(default)s)",
    )
    parser.add_argument(
        "--sizes",
        metavar="SIZE,…",
        default=SIZES,
        help="message sizes, such as 64KB,1MB,25MB (default: %(default)s)",
    )
    parser.add_argument(
        "--concurrent",
        type=_whole,
        default=default.concurrent,
        metavar="K",
        help="measure 1 to K concurrent all-reduces (default: %(default)s)",
    )
    parser.add_argument(
        "--repeats",
        type=_whole,
        default=default.repeats,
        metavar="N",
        help="measurements of every combination (default: %(default)s)",
    )
    parser.add_argument(
        "--warm-up",
        type=_whole,
        default=default.warm_up,
        metavar="N",
        help="rounds to discard before them (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=_whole,
        default=default.seed,
        help="seed for the order of measurements (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=_whole,
        default=default.timeout_s,
        metavar="SECONDS",
        help="how long to wait for an unresponsive process (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=_whole,
        default=DEFAULT_PORT,
        help="rendezvous port on host 1 of the testbed (default: %(default)s)",
    )


def _whole(text: str) -> int:
    try:
        return whole_from(text)
    except ValueError:
        problem = f"must be a whole number, not {shown(text)}."
        raise argparse.ArgumentTypeError(problem) from None


def run(options: argparse.Namespace) -> int:
    """Measure or read samples, fit them, write the files and print a report."""
    output = _Output(options.output)
    if options.fit_only is not None:
        if options.on is not None:
            raise InputError("--fit-only measures nothing; omit --on.")
        output.check(options.fit_only)
        samples = read_samples(options.fit_only)
        try:
            fitted = fit(samples)
        except InputError as error:
            raise error.at(options.fit_only) from None
        output.write(fitted, samples, {"samples": options.fit_only})
        return 0
    plan = _plan(options)
    if options.on is not None or _is_first():
        output.check()
    started = datetime.now(UTC)
    with ProgressLine("measuring") as progress:
        measurement = _measure(options, plan, progress)
    if measurement is None:
        return 0
    about = {
        **measurement.about,
        "measured_at": started.isoformat(timespec="seconds"),
        "took_s": round((datetime.now(UTC) - started).total_seconds(), 1),
        "concurrent": plan.concurrent,
        "repeats": plan.repeats,
        "warm_up": plan.warm_up,
        "seed": plan.seed,
        "headway": __version__,
        "samples": output.samples.name,
    }
    write_samples(output.samples, measurement.samples)
    output.write(fit(measurement.samples), measurement.samples, about)
    return 0


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        sizes_bytes=sizes_from(options.sizes),
        concurrent=options.concurrent,
        repeats=options.repeats,
        warm_up=options.warm_up,
        backend=options.backend,
        seed=options.seed,
        timeout_s=options.timeout,
    )


def _is_first() -> bool:
    """Return whether this process will write the files, as far as known before the rendezvous."""
    return os.environ.get("RANK", "0") == "0"


def _measure(
    options: argparse.Namespace, plan: Plan, progress: Callable[[float], None]
) -> Measurement | None:
    """Measure as the options say; return None on all ranks but the first."""
    where = options.on
    if where is None:
        if not is_rank():
            raise InputError(
                "say where to measure with --on, or start it on the nodes with torchrun (see "
                "--help)."
            )
        return measure(plan, progress)
    import_torch()
    if where == "testbed" or where.startswith("testbed:"):
        from headway.calibrate.network.on_testbed import measure_on_testbed

        name = where.partition(":")[2] or "default"
        return measure_on_testbed(name, plan, whole(options.port, "--port", 1, 65535), progress)
    from headway.calibrate.network.on_ray import measure_on_ray

    return measure_on_ray(where, plan, progress)


class _Output:
    """The files that a calibration writes: FILE.toml, FILE.samples.csv, FILE.svg."""

    def __init__(self, text: str) -> None:
        self.network = Path(text)
        if self.network.suffix != ".toml":
            raise InputError(f"must end in .toml, not {shown(text)}.", field="--output")
        self.samples = self.network.with_suffix(".samples.csv")
        self.figure = self.network.with_suffix(".svg")

    def check(self, samples: str | None = None) -> None:
        """Refuse paths that cannot be written, before measuring."""
        outputs = [self.network, self.figure, *([self.samples] if samples is None else [])]
        check_outputs(outputs, [samples])

    def write(self, fitted: Fit, samples: Sequence[Sample], about: Mapping[str, Any]) -> None:
        """Write the network and its figure; print the report."""
        write_network(self.network, fitted, about)
        written = [self.network, *([self.samples] if "measured_at" in about else [])]
        try:
            draw(fitted, samples, self.figure)
            written.append(self.figure)
        except ImportError:
            print(
                "No figure: matplotlib is not installed; draw it elsewhere with --fit-only.",
                file=sys.stderr,
            )
        on_terminal = sys.stdout.isatty()
        print(report(fitted, shutil.get_terminal_size().columns if on_terminal else UNLIMITED))
        print(printable(f"Written: {', '.join(map(str, written))}"), file=sys.stderr)
