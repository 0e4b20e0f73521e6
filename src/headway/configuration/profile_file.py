"""Profile files: what an iteration of each model costs, in `[[model]]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from headway.configuration.conversion import Number, Text, TomlTable
from headway.configuration.document import Document
from headway.configuration.files import DescriptionFile
from headway.configuration.positions import KeyPath
from headway.domain.errors import InputError, shown
from headway.domain.gpus import ALIASES
from headway.domain.layers import MOST_LAYERS, Layer, fitted
from headway.domain.limits import LONGEST_NS, MAX_BYTES, scaled
from headway.domain.models import MAX_BATCH, MEBIBYTE, ModelProfile, ProfileSet

MOST_DIFFERENCE = 0.01
"""How far layers may be from adding up to the model's times and gradient, as a share of them."""

LayerRow = Annotated[
    tuple[str, Number, Number, Number, Number],
    msgspec.Meta(description="[name, forward_ms, backward_ms, parameter_mb, activation_mb]"),
]


class ModelTable(TomlTable):
    """`[[model]]`; the keys after `layers` record how it was measured, and are not read."""

    name: Text
    gpu: Text
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH)]
    forward_ms: Number
    backward_ms: Number
    gradient_mb: Number
    memory_mb: Number
    optimizer_ms: Number = 0
    layers: Annotated[list[LayerRow], msgspec.Meta(min_length=1, max_length=MOST_LAYERS)] | None = (
        None
    )
    optimizer: str = ""
    precision: str = ""
    parameters: int = 0
    repeats: int = 0
    forward_ms_quartiles: list[Number] | None = None
    backward_ms_quartiles: list[Number] | None = None
    bucket_mb: list[Number] | None = None
    bucket_ready_ms: list[Number] | None = None
    layer_scale: list[Number] | None = None


class ProfileFile(DescriptionFile, kw_only=True):
    """A file with profiles of models."""

    model: Annotated[list[ModelTable], msgspec.Meta(min_length=1)]


def read_profiles(path: str, name: str) -> ProfileSet:
    """Read the set of profiles in a file, under a name."""
    document = Document.read(path)
    found: dict[tuple[str, str, int], ModelProfile] = {}
    for index, table in enumerate(document.convert(ProfileFile).model):
        layers = tuple(
            _layer(row, document, ("model", index, "layers", place))
            for place, row in enumerate(table.layers or ())
        )
        with document.at("model", index):
            profile = _profile(table, layers)
            key = profile.name, profile.gpu, profile.batch_size
            if key in found:
                raise InputError(
                    f"duplicate profile of {shown(profile.name)} on {shown(profile.gpu)} at batch "
                    f"size {profile.batch_size}.",
                    field="name",
                )
            found[key] = profile
    return ProfileSet(name, tuple(found.values()))


def _layer(row: LayerRow, document: Document, path: KeyPath) -> Layer:
    name, forward_ms, backward_ms, parameter_mb, activation_mb = row
    with document.at(*path):
        return Layer(
            _nanoseconds(forward_ms, "forward_ms"),
            _nanoseconds(backward_ms, "backward_ms"),
            _bytes(parameter_mb, "parameter_mb"),
            _bytes(activation_mb, "activation_mb"),
            name=name,
        )


def _profile(table: ModelTable, layers: tuple[Layer, ...]) -> ModelProfile:
    totals = {
        "forward_ms": _nanoseconds(table.forward_ms, "forward_ms"),
        "backward_ms": _nanoseconds(table.backward_ms, "backward_ms"),
        "gradient_mb": _bytes(table.gradient_mb, "gradient_mb"),
    }
    if layers:
        layers = _fitted(layers, totals)
    return ModelProfile(
        table.name,
        gradient_bytes=totals["gradient_mb"],
        memory_bytes=_bytes(table.memory_mb, "memory_mb"),
        forward_ns=totals["forward_ms"],
        backward_ns=totals["backward_ms"],
        batch_size=table.batch_size,
        gpu=ALIASES.get(table.gpu, table.gpu),
        layers=layers,
        optimizer_ns=scaled(table.optimizer_ms, 1e6, "optimizer_ms", 0, LONGEST_NS, "milliseconds"),
    )


def _fitted(layers: tuple[Layer, ...], totals: Mapping[str, int]) -> tuple[Layer, ...]:
    """Return layers that add up to the model's totals; those far from them are refused."""
    sums = {
        "forward_ms": (sum(layer.forward_ns for layer in layers), 1e6),
        "backward_ms": (sum(layer.backward_ns for layer in layers), 1e6),
        "gradient_mb": (sum(layer.parameter_bytes for layer in layers), MEBIBYTE),
    }
    for key, (found, unit) in sums.items():
        if abs(found - totals[key]) > MOST_DIFFERENCE * totals[key] + len(layers):
            raise InputError(
                f"must add up to {key}, {totals[key] / unit:,.6g}, within {MOST_DIFFERENCE:.0%}; "
                f"they add up to {found / unit:,.6g}.",
                field="layers",
            )
    return fitted(layers, *totals.values())


def _nanoseconds(value: float, key: str) -> int:
    return scaled(value, 1e6, key, 1, LONGEST_NS, "milliseconds")


def _bytes(value: float, key: str) -> int:
    return scaled(value, MEBIBYTE, key, 0, MAX_BYTES, "MB")
