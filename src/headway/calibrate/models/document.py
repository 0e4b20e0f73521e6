"""Writes measured models as a profile file, `models.toml`."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime

from headway.calibrate import toml
from headway.calibrate.models.devices import Device
from headway.calibrate.models.measure import Measurement, Spread
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
        "parameters": found.parameters,
        "repeats": found.repeats,
        "forward_ms_quartiles": _quartiles(found.forward),
        "backward_ms_quartiles": _quartiles(found.backward),
        "bucket_mb": [_mb(size_bytes) for size_bytes, _ in found.buckets],
        "bucket_ready_ms": [_ms(ready_ns) for _, ready_ns in found.buckets],
    }


def _quartiles(spread: Spread) -> list[float]:
    return [_ms(time_ns) for time_ns in spread.quartiles_ns]


def _ms(time_ns: float) -> float:
    """Return milliseconds to the nanosecond."""
    return round(time_ns / 1e6, 6)


def _mb(size_bytes: int) -> float:
    """Return MB of 2**20 bytes, without rounding."""
    return size_bytes / MEBIBYTE
