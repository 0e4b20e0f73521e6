"""`headway calibrate gpu`: its options, and the loop over all measurements."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headway.calibrate.gpus.grid import Grid, full_grid, small_grid
from headway.calibrate.gpus.samples import (
    LayerSample,
    Sample,
    read_layer_samples,
    read_samples,
    write_samples,
)
from headway.calibrate.progress import ProgressLine
from headway.domain.errors import InputError, shown
from headway.domain.gpus import ALIASES
from headway.domain.limits import number_from
from headway.files import check_outputs
from headway.llm.gpu_file import gpu_names
from headway.text_table import printable_lines

if TYPE_CHECKING:
    from headway.calibrate.models.devices import Device

DESCRIPTION = """\
Measure how fast this machine's GPU runs the operations of transformers: matrix products,
attention, element-wise operations and kernel launches. Fits the parameters of a GPU type to them,
for --gpu of `headway model`. Needs PyTorch; takes a few minutes."""

GRIDS: dict[str, Callable[[], Grid]] = {"full": full_grid, "small": small_grid}
_BATCH_NS = {"full": 20e6, "small": 1e6}
_LONGEST_MINUTES = 24 * 60

Measured = TypeVar("Measured", Sample, LayerSample)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.toml",
        default="gpu.toml",
        help="GPU file to write; FILE.samples.csv and FILE.layers.csv go beside it (default: "
        "gpu.toml)",
    )
    parser.add_argument(
        "--gpu", metavar="NAME", help="name of the type of GPU (default: from the driver's name)"
    )
    parser.add_argument(
        "--like",
        metavar="NAME|FILE",
        help="type of GPU whose parameters hold for what is not measured, such as links between "
        "GPUs (default: that of the same name, if there is one)",
    )
    parser.add_argument(
        "--fit-only",
        metavar="FILE.samples.csv",
        help="fit these samples instead of measuring; needs --gpu",
    )
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), help="default: cuda if PyTorch sees a GPU"
    )
    parser.add_argument(
        "--grid",
        choices=tuple(GRIDS),
        default="full",
        help="full for a GPU; small takes seconds, to try the command (default: full)",
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        default="10",
        help="stop measuring after this time and fit to what there is (default: 10)",
    )


def run(options: argparse.Namespace) -> int:
    """Measure, or read samples; fit; write the file."""
    if options.gpu is not None and not options.gpu.strip():
        raise InputError("must not be empty.", field="--gpu")
    if not Path(options.output).name:
        raise InputError(f"must name a file, not {shown(options.output)}.", field="--output")
    limit_s = 60 * _minutes(options.minutes)
    from headway.calibrate.gpus.fit import describe_fit, fitted_model, start_model, write_model

    if options.fit_only is not None:
        check_outputs([options.output], [options.fit_only])
        if options.gpu is None:
            raise InputError("must be given with --fit-only.", field="--gpu")
        name, source = options.gpu.strip(), f"fitted to {Path(options.fit_only).name}"
        samples, layers = read_samples(options.fit_only), _layers_beside(options.fit_only)
        if options.like is None and not name.endswith(".toml") and name not in gpu_names():
            raise InputError(
                f"must be given for a new type such as {shown(name)}: the type whose parameters "
                f"hold for what is not measured. Known: {', '.join(gpu_names())}.",
                field="--like",
            )
        start = start_model(options.like or name)
    else:
        check_outputs([options.output, *_beside(options.output)])
        device = _device(options.device)
        name = (options.gpu or _short_name(device.gpu)).strip()
        source = f"headway calibrate gpu on {device.name}"
        start = start_model(options.like or name, device)
        samples, layers = measure_all(options.grid, device, limit_s, options.output)
    found = fitted_model(start, samples, name, source)
    write_model(found, options.output)
    for line in describe_fit(found, samples, layers):
        print(line)
    _report(f"written to {options.output}")
    return 0


def _layers_beside(samples_path: str) -> list[LayerSample]:
    """Return the layers that were measured along with samples, if they are still beside them."""
    found = samples_path.removesuffix(".samples.csv") + ".layers.csv"
    return read_layer_samples(found) if Path(found).is_file() else []


def _short_name(gpu: str) -> str:
    """Return the short name of a built-in type of GPU, under which its GPU file is known."""
    return next((short for short, name in ALIASES.items() if name == gpu), gpu)


def _beside(output: str) -> tuple[Path, Path]:
    """Return the files of samples of operations and of layers that go beside a GPU file."""
    path = Path(output)
    return path.with_suffix(".samples.csv"), path.with_suffix(".layers.csv")


def _device(kind: str | None) -> Device:
    try:
        from headway.calibrate.models.devices import find_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("measuring a GPU needs PyTorch: pip install torch.") from None
    device = find_device(kind)
    if device.kind == "cpu" and kind is None:
        _report("note: PyTorch finds no GPU, so this measures the CPU.")
    if notice := device.notice():
        _report(f"note: {notice}")
    return device


def measure_all(
    grid_name: str, device: Device, limit_s: float, output: str
) -> tuple[list[Sample], list[LayerSample]]:
    """Measure operations and layers, and write both beside an output as soon as they are known."""
    from headway.calibrate.gpus.measure import measure_layer, measure_operation

    grid, batch_ns = GRIDS[grid_name](), _BATCH_NS[grid_name]
    samples_path, layers_path = _beside(output)
    end_s = time.monotonic() + limit_s
    count = f"{len(grid.operations)} operations, {len(grid.layers)} layers"
    _report(f"to measure on {device.name}: {count}")
    layers = _measured(
        grid.layers, lambda one: measure_layer(one, device, batch_ns), "layers", device, end_s
    )
    if layers:
        write_samples(layers_path, layers)
    # In random order, so that a GPU that warms up does not slow down one kind alone.
    order = random.Random(0).sample(grid.operations, len(grid.operations))
    samples = _measured(
        order, lambda one: measure_operation(one, device, batch_ns), "operations", device, end_s
    )
    rank = {_shape(sample): number for number, sample in enumerate(grid.operations)}
    samples.sort(key=lambda sample: rank[_shape(sample)])
    if samples:
        write_samples(samples_path, samples)
    return samples, layers


def _shape(sample: Sample) -> tuple[object, ...]:
    return (
        sample.kind, sample.name, sample.precision, sample.batch, sample.m, sample.n, sample.k
    )  # fmt: skip


def _measured(
    cases: Sequence[Measured],
    measure: Callable[[Measured], Measured],
    what: str,
    device: Device,
    end_s: float,
) -> list[Measured]:
    """Measure cases until the time is up; those that do not fit in memory are left out."""
    from headway.calibrate.models.definitions import is_out_of_memory

    found: list[Measured] = []
    left_out = 0
    with ProgressLine(f"measuring {what}") as line:
        for number, case in enumerate(cases):
            if time.monotonic() > end_s:
                line.print(f"time is up: {number} of {len(cases)} {what} measured")
                break
            line(number / len(cases))
            try:
                found.append(measure(case))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                left_out += 1
                device.clear()
    if left_out:
        _report(f"left out, as the device's memory is too small: {left_out} {what}")
    return found


def _minutes(text: str) -> float:
    try:
        minutes = number_from(text)
    except ValueError:
        raise InputError(f"must be a number, not {shown(text)}.", field="--minutes") from None
    if not 0 < minutes <= _LONGEST_MINUTES:
        raise InputError(
            f"must be above 0 and at most {_LONGEST_MINUTES:,}, not {shown(text)}.",
            field="--minutes",
        )
    return minutes


def _report(text: str) -> None:
    print(printable_lines(text), file=sys.stderr, flush=True)
