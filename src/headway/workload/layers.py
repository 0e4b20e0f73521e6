"""Files of a model's layers: a CSV table with a row for each layer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import TypeVar

from headway.domain.errors import InputError
from headway.domain.limits import LONGEST_NS, MAX_BYTES
from headway.domain.models import MEBIBYTE
from headway.files import STANDARD, open_input
from headway.graphs.layers import Layer, MoeLayer
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
    required = [
        column
        for field, column in zip(fields(kind), columns, strict=True)
        if field.default is MISSING
    ]
    table = CsvTable(source, _WORDING, partial(_check_header, columns=columns, required=required))
    with open_input(path) as stream:
        layers, _, _ = table.rows(
            stream, partial(_layer, kind=kind, columns=columns, required=required)
        )
    if not layers:
        raise InputError("has no layers; give a row for each.", source=source)
    return layers


def _columns(kind: type[Layer] | type[MoeLayer]) -> dict[str, Unit]:
    """Return the columns of a kind of layer: `forward_ms` for the field `forward_ns`."""
    found = {}
    for field in fields(kind):
        if field.name.endswith("_ns"):
            unit = Unit(field.name, 1e6, 1, LONGEST_NS, "milliseconds")
            found[field.name.removesuffix("_ns") + "_ms"] = unit
        else:
            unit = Unit(field.name, MEBIBYTE, 0, MAX_BYTES, "MB")
            found[field.name.removesuffix("_bytes") + "_mb"] = unit
    return found


def _check_header(names: list[str], columns: Mapping[str, Unit], required: list[str]) -> None:
    check_names(names, [NAME, *columns])
    missing = [name for name in required if name not in names]
    if missing:
        raise InputError(f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}.")


def _layer(
    row: Mapping[str, Value],
    kind: type[_AnyLayer],
    columns: Mapping[str, Unit],
    required: list[str],
) -> _AnyLayer:
    values = {}
    for name, unit in columns.items():
        text = str(row.get(name, "")).strip()
        if text:
            values[unit.field] = unit.convert(name, text)
        elif name in required:
            raise InputError("must not be empty.", field=name)
    return kind(**values)
