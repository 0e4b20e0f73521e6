"""A model's layers: from a CSV table with a row for each, or from a profile."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, TypeVar

from headway.domain.errors import InputError, did_you_mean
from headway.domain.limits import LONGEST_NS, MAX_BYTES
from headway.domain.models import MEBIBYTE, ModelProfile, ProfileSet
from headway.domain.profiles import model_names, profile_at
from headway.files import STANDARD, open_input
from headway.graphs import Layer, MoeLayer
from headway.workload.tables import CsvTable, Unit, Value, Wording, check_names

NAME = "layer"
"""The column with the names of layers, which are for people only."""

_WORDING = Wording(
    "not a text file; layers are CSV.",
    "a layer's line is short.",
    "forward_ms,backward_ms,parameter_mb",
)

_AnyLayer = TypeVar("_AnyLayer", Layer, MoeLayer)


def read_layers(path: str | os.PathLike[str], kind: type[_AnyLayer]) -> list[_AnyLayer]:
    """Read layers in the order of the forward pass from a CSV file; `-` is standard input.

    A column for each field of `kind`: times in milliseconds (`forward_ms`) and sizes in MB
    (`parameter_mb`). Columns of fields that have a default may be missing, and cells empty.
    """
    source = "standard input" if os.fspath(path) == STANDARD else os.fspath(path)
    columns = _columns(kind)
    optional = {field.name for field in fields(kind) if field.default is not MISSING}
    required = [column for column, unit in columns.items() if unit.field not in optional]
    table = CsvTable(source, _WORDING, partial(_check_header, columns=columns, required=required))
    with open_input(path) as stream:
        layers, _, _ = table.rows(
            stream, partial(_layer, kind=kind, columns=columns, required=required)
        )
    if not layers:
        raise InputError("has no layers; give a row for each.", source=source)
    return layers


def model_profile(
    name: str, batch_size: int | None, profiles: Sequence[ProfileSet]
) -> ModelProfile | None:
    """Return the profile with layers that a name means, or None if it is the path of a file.

    A name has neither folder nor suffix. If a file of that name exists too, it is refused as
    ambiguous.
    """
    if name == STANDARD or os.path.dirname(name) or os.path.splitext(name)[1]:
        return None
    found = profile_at(name, batch_size, profiles)
    if os.path.lexists(name):
        if found is None:
            return None
        raise InputError(
            f"is a model and a file in this folder; write ./{name} for the file, or move it.",
            source=name,
        )
    if found is None:
        known = did_you_mean(name, model_names(profiles))
        raise InputError(f"no such file, and no model of that name.{known}", source=name)
    if not found[0].layers:
        raise InputError(
            "its profile has no layers; give a CSV file of them, or a profile that has them.",
            source=name,
        )
    return found[0]


def _columns(kind: type[Layer] | type[MoeLayer]) -> dict[str, Unit]:
    """Return the columns of a kind of layer: `forward_ms` for the field `forward_ns`."""
    found = {}
    for field in fields(kind):
        if field.name == "name":
            continue
        if field.name.endswith("_ns"):
            unit = Unit(field.name, 1e6, 1, LONGEST_NS, "milliseconds")
            found[field.name.removesuffix("_ns") + "_ms"] = unit
        else:
            unit = Unit(field.name, MEBIBYTE, 0, MAX_BYTES, "MB")
            found[field.name.removesuffix("_bytes") + "_mb"] = unit
    return found


def _check_header(names: list[str], columns: Mapping[str, Unit], required: list[str]) -> None:
    check_names(names, [NAME, *columns], _WORDING.header)
    missing = [name for name in required if name not in names]
    if missing:
        raise InputError(f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}.")


def _layer(
    row: Mapping[str, Value],
    kind: type[_AnyLayer],
    columns: Mapping[str, Unit],
    required: list[str],
) -> _AnyLayer:
    values: dict[str, Any] = {"name": str(row.get(NAME, "")).strip()}
    for name, unit in columns.items():
        text = str(row.get(name, "")).strip()
        if text:
            values[unit.field] = unit.convert(name, text)
        elif name in required:
            raise InputError("must not be empty.", field=name)
    return kind(**values)
