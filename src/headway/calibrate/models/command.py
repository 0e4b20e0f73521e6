"""`headway calibrate model`: its options, and the loop over all measurements."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headway.calibrate.progress import ProgressLine
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import number_from, scaled, whole, whole_from
from headway.domain.models import MAX_BATCH, MEBIBYTE
from headway.files import check_output
from headway.text_table import printable_lines

if TYPE_CHECKING:
    from headway.calibrate.models.definitions import Definition
    from headway.calibrate.models.devices import Device
    from headway.calibrate.models.measure import Measurement, PassSettings

MAX_PASSES = 10**6
MAX_BUCKET_BYTES = 2**40


DESCRIPTION = """\
Measure the cost of an iteration of a model on this machine's GPU: forward and backward time, in
all and layer by layer, gradient size, memory, the optimizer's step, and when each bucket of
gradients is ready. Needs PyTorch."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="a shipped model such as resnet50, or all for all of them; or your own, "
        "path/to/file.py:function or module:function, a function of a batch size that returns "
        "(model, batch)",
    )
    parser.add_argument(
        "--batch-sizes",
        metavar="N,…",
        help="mini-batch sizes of one GPU (default: a shipped model's own list, else 16)",
    )
    parser.add_argument(
        "--precisions", metavar="NAME,…", default="fp32", help="fp32, tf32, bf16 (default: fp32)"
    )
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), help="default: cuda if PyTorch sees a GPU"
    )
    parser.add_argument(
        "--warm-up", metavar="N", default="5", help="iterations before timing starts (default: 5)"
    )
    parser.add_argument(
        "--repeats", metavar="N", default="20", help="timed iterations (default: 20)"
    )
    parser.add_argument(
        "--bucket-mb",
        metavar="MB",
        default="25",
        help="bucket size of gradients; the first bucket has 1 MB (default: 25)",
    )
    parser.add_argument(
        "--optimizer",
        metavar="NAME",
        help="sgd (with momentum) or adamw (default: a shipped model's usual one, else adamw)",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="type of GPU, as clusters name it (default: from the driver's name)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="models.toml",
        help="profile file to write (default: models.toml)",
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """One configuration to measure."""

    definition: Definition
    batch_size: int
    precision: str

    def __str__(self) -> str:
        return f"{self.definition.name}, batch {self.batch_size}, {self.precision}"


def run(options: argparse.Namespace) -> int:
    """Measure every model at every batch size in every precision, and write the file."""
    check_output(options.output)
    sizes = None
    if options.batch_sizes is not None:
        sizes = [
            _whole(text, "--batch-sizes", 1, MAX_BATCH)
            for text in _parts(options.batch_sizes, "--batch-sizes")
        ]
        if len(set(sizes)) < len(sizes):
            raise InputError("has a duplicate batch size.", field="--batch-sizes")
    precisions = _parts(options.precisions, "--precisions")
    passes = (
        _whole(options.warm_up, "--warm-up", 1, MAX_PASSES),
        _whole(options.repeats, "--repeats", 2, MAX_PASSES),
    )
    bucket_bytes = _bucket_bytes(options.bucket_mb)
    if options.gpu is not None and not options.gpu.strip():
        raise InputError("must not be empty.", field="--gpu")
    try:
        from headway.calibrate.models.definitions import find_definitions
        from headway.calibrate.models.devices import find_device
        from headway.calibrate.models.document import write_models
        from headway.calibrate.models.measure import OPTIMIZERS, PRECISIONS, PassSettings
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("measuring models needs PyTorch: pip install torch.") from None

    device = find_device(options.device)
    if device.kind == "cpu" and options.device is None:
        _report(
            "note: PyTorch finds no GPU, so this measures the CPU. To simulate a cluster of GPUs, "
            "use profiles that were measured on them."
        )
    for precision in precisions:
        if precision not in PRECISIONS:
            raise InputError(
                f"unknown precision {shown(precision)}.{did_you_mean(precision, PRECISIONS)}",
                field="--precisions",
            )
        if precision == "tf32" and device.kind == "cpu":
            raise InputError("tf32 needs an NVIDIA GPU.", field="--precisions")
    if options.optimizer is not None and options.optimizer not in OPTIMIZERS:
        raise InputError(
            f"unknown optimizer {shown(options.optimizer)}."
            f"{did_you_mean(options.optimizer, OPTIMIZERS)}",
            field="--optimizer",
        )
    cases = [
        _Case(definition, size, precision)
        for definition in find_definitions(options.targets)
        for precision in precisions
        for size in (definition.batch_sizes if sizes is None else sizes)
    ]
    started_at = datetime.now(UTC)
    settings = PassSettings(*passes, bucket_bytes, options.optimizer)
    found = _measure_all(cases, device, settings)
    write_models(found, device, (options.gpu or device.gpu).strip(), started_at, options.output)
    _report(f"{len(found)} of {len(cases)} written to {options.output}")
    return 0


def _measure_all(cases: list[_Case], device: Device, settings: PassSettings) -> list[Measurement]:
    """Measure all cases and report progress; raise if none succeeds.

    Cases that do not fit in memory are left out, and so is a model that fails.
    """
    from headway.calibrate.models.definitions import is_out_of_memory
    from headway.calibrate.models.measure import measure

    _report(f"configurations to measure on {device.name}: {len(cases)}")
    if notice := device.notice():
        _report(f"note: {notice}")
    found: list[Measurement] = []
    failed: set[str] = set()
    # A pass takes about as long as its batch is large.
    total, done = sum(case.batch_size for case in cases), 0
    with ProgressLine("") as line:
        for number, case in enumerate(cases, 1):
            done += case.batch_size
            if case.definition.name in failed:
                continue
            line.title = f"measuring {case} ({number} of {len(cases)})"
            passes = _share_of(line, (done - case.batch_size) / total, case.batch_size / total)
            passes(0.0)
            try:
                one = measure(
                    case.definition, case.batch_size, case.precision, device, settings, passes
                )
                found.append(one)
                said = (
                    f"forward {one.forward.median_ns / 1e6:.3g} ms, "
                    f"backward {one.backward.median_ns / 1e6:.3g} ms, "
                    f"{one.optimizer} {one.optimizer_step.median_ns / 1e6:.3g} ms, "
                    f"{len(one.layers)} layer{'s' * (len(one.layers) > 1)}"
                )
            except InputError as error:
                failed.add(case.definition.name)
                if not found and all(other.definition.name in failed for other in cases[number:]):
                    raise
                said = f"left out with the rest of this model: {error}"
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                said = "left out: out of memory"
            left = f"; {line.time_left(done / total)}" if number < len(cases) else ""
            line.print(f"[{number}/{len(cases)}] {case}: {said}{left}")
    if not found:
        raise InputError(f"nothing was measured: no configuration fits in {device.name}'s memory.")
    return found


def _share_of(line: ProgressLine, before: float, part: float) -> Callable[[float], None]:
    """Return a function that shows the progress of a part of the work."""
    return lambda share: line(before + part * share)


def _parts(text: str, field: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(f"must be comma-separated values, not {shown(text)}.", field=field)
    if len(set(parts)) < len(parts):
        raise InputError(f"has a duplicate value: {shown(text)}.", field=field)
    return parts


def _whole(text: str, field: str, least: int, most: int) -> int:
    try:
        return whole(whole_from(text), field, least, most)
    except ValueError:
        raise InputError(f"must be a whole number, not {shown(text)}.", field=field) from None


def _bucket_bytes(text: str) -> int:
    try:
        number = number_from(text)
    except ValueError:
        raise InputError(
            f"must be a number of MB, not {shown(text)}.", field="--bucket-mb"
        ) from None
    return scaled(number, MEBIBYTE, "--bucket-mb", 1, MAX_BUCKET_BYTES, "MB", given=text)


def _report(text: str) -> None:
    print(printable_lines(text), file=sys.stderr, flush=True)
