"""`headway calibrate network`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headway.calibrate.network.figure import draw
from headway.calibrate.network.fit import Fit, fit
from headway.calibrate.network.plan import BACKENDS, SIZES, Plan, sizes_from
from headway.calibrate.network.profile import write_network
from headway.calibrate.network.rank import Measurement, imported, is_rank, measure
from headway.calibrate.network.report import report
from headway.calibrate.network.samples import Sample, read_samples, write_samples
from headway.calibrate.progress import ProgressLine
from headway.domain.errors import InputError, shown
from headway.domain.limits import whole
from headway.files import check_different, check_output
from headway.version import __version__

DESCRIPTION = """\
Measure what all-reduces cost on a network, alone and together, and fit the contention model
T = a + k*b*M + (k-1)*eta*M to it.

Started on every node by torchrun, with one process for every group that is to all-reduce at the
same time:

  torchrun --nnodes 4 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
      -m headway.calibrate network -o network.toml

or here, on a Ray cluster (--on HOST:PORT) or on the testbed (--on testbed). Writes network.toml,
which `headway simulate --network` takes, and beside it the raw samples and a figure."""

DEFAULT_PORT = 29400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    default = Plan()
    parser.add_argument(
        "-o",
        "--output",
        default="network.toml",
        metavar="FILE.toml",
        help="the network; FILE.samples.csv and FILE.svg go beside it (default: %(default)s)",
    )
    parser.add_argument(
        "--on",
        metavar="WHERE",
        help="testbed, testbed:NAME, or the HOST:PORT of a Ray cluster (default: torchrun's nodes)",
    )
    parser.add_argument(
        "--fit-only",
        metavar="SAMPLES.csv",
        help="measure nothing; fit these samples (columns k, message_bytes, time_ns)",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=default.backend,
        help="of torch.distributed (default: %(default)s)",
    )
    parser.add_argument(
        "--sizes",
        metavar="SIZE,…",
        default=SIZES,
        help="of the messages, such as 64KB,1MB,25MB (default: %(default)s)",
    )
    parser.add_argument(
        "--concurrent",
        type=int,
        default=default.concurrent,
        metavar="K",
        help="measure 1 to K all-reduces at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=default.repeats,
        metavar="N",
        help="of every combination (default: %(default)s)",
    )
    parser.add_argument(
        "--warm-up",
        type=int,
        default=default.warm_up,
        metavar="N",
        help="rounds that do not count, before them (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=default.seed,
        help="of the order of measurements (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=int,
        default=default.timeout_s,
        metavar="SECONDS",
        help="how long to wait for a process that does not answer (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help="where processes on the testbed meet, on host 1 (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Measure or read samples, fit, write, and print what was found."""
    output = _Output(options.output)
    if options.fit_only is not None:
        if options.on is not None:
            raise InputError("--fit-only measures nothing; leave --on out.")
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
    """Say whether this process will write the files, as far as one can know before all meet."""
    return os.environ.get("RANK", "0") == "0"


def _measure(
    options: argparse.Namespace, plan: Plan, progress: Callable[[float], None]
) -> Measurement | None:
    """Measure where the options say; return nothing on ranks but the first."""
    where = options.on
    if where is None:
        if not is_rank():
            raise InputError(
                "say where to measure with --on, or start it on the nodes with torchrun (see "
                "--help)."
            )
        return measure(plan, progress)
    imported()
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
        """Refuse what cannot be written, before anything is measured."""
        outputs = [self.network, self.figure, *([self.samples] if samples is None else [])]
        for path in outputs:
            check_output(path)
        if samples is not None:
            check_different([samples], [str(path) for path in outputs], "samples and outputs")

    def write(self, fitted: Fit, samples: Sequence[Sample], about: Mapping[str, Any]) -> None:
        """Write the network and its figure; print the report."""
        write_network(self.network, fitted, about)
        written = [self.network, *([self.samples] if "measured_at" in about else [])]
        try:
            draw(fitted, samples, self.figure)
            written.append(self.figure)
        except ImportError:
            print(
                "No figure: matplotlib is not installed here; --fit-only draws it elsewhere.",
                file=sys.stderr,
            )
        print(report(fitted))
        print(f"Written: {', '.join(map(str, written))}", file=sys.stderr)
