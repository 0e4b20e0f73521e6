"""Writes measured models as a profile file, `models.toml`."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime

from headway import toml_text as toml
from headway.calibrate.models.devices import Device
from headway.calibrate.models.measure import Measurement, Spread
from headway.domain.layers import Layer
from headway.domain.models import MEBIBYTE
from headway.files import open_output
from headway.version import __version__


def profile_name(model: str, precision: str) -> str:
    """Return the name of a model in a precision, as workloads use it."""
    return model if precision == "fp32" else f"{model}-{precision}"


def write_models(
    measurements: Sequence[Measurement],
    device: Device,
    gpu: str,
    measured_at: datetime,
    path: str | os.PathLike[str],
) -> None:
    """Write the measurements on a type of GPU; an existing file is replaced."""
    calibration: dict[str, toml.Value] = {
        "measured_at": measured_at.isoformat(timespec="seconds"),
        "device": device.name,
        **device.versions(),
        "headway": __version__,
        "host": platform.node(),
    }
    text = toml.table("calibration", calibration)
    text += "\n" + toml.tables("model", [_entry(found, gpu) for found in measurements])
    with open_output(path) as stream:
        stream.write(text.encode())


def _entry(found: Measurement, gpu: str) -> dict[str, toml.Value]:
    return {
        "name": profile_name(found.name, found.precision),
        "gpu": gpu,
        "batch_size": found.batch_size,
        "precision": found.precision,
        "forward_ms": _ms(found.forward.median_ns),
        "backward_ms": _ms(found.backward.median_ns),
        "gradient_mb": _mb(found.gradient_bytes),
        "memory_mb": _mb(found.memory_bytes),
        "optimizer": found.optimizer,
        "optimizer_ms": _ms(found.optimizer_step.median_ns),
        "parameters": found.parameters,
        "repeats": found.repeats,
        "forward_ms_quartiles": _quartiles(found.forward),
        "backward_ms_quartiles": _quartiles(found.backward),
        "bucket_mb": [_mb(size_bytes) for size_bytes, _ in found.buckets],
        "bucket_ready_ms": [_ms(ready_ns) for _, ready_ns in found.buckets],
        "layer_scale": [round(scale, 4) for scale in found.layer_scale],
        "layers": [_row(layer) for layer in found.layers],
    }


def _row(layer: Layer) -> toml.Row:
    """Return a layer as [name, forward_ms, backward_ms, parameter_mb, activation_mb]."""
    times = _ms(layer.forward_ns), _ms(layer.backward_ns)
    return [layer.name, *times, _mb(layer.parameter_bytes), _mb(layer.activation_bytes)]


def _quartiles(spread: Spread) -> list[float]:
    return [_ms(time_ns) for time_ns in spread.quartiles_ns]


def _ms(time_ns: float) -> float:
    """Return milliseconds to the nanosecond."""
    return round(time_ns / 1e6, 6)


def _mb(size_bytes: int) -> float:
    """Return MB of 2**20 bytes, without rounding."""
    return size_bytes / MEBIBYTE
