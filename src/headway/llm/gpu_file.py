"""GPU files: the parameters of a GPU type in TOML, those that ship with Headway and users'.

A file with the key `like` has only what is different from another type, which ships with Headway.

Like the model itself, reading needs nothing but the standard library.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import fields
from importlib import resources
from typing import Any

from headway.domain.errors import InputError, did_you_mean, shown
from headway.files import open_input
from headway.llm.gpu import GpuModel, ServerLink
from headway.toml_text import LARGEST_FILE_BYTES

_SUFFIX = ".toml"
_LINKS, _LIKE, _ESTIMATES = "server_links", "like", "estimates"
_SMALLEST, _LARGEST = 1e-30, 1e30
"""Of a number that is not 0, so that no time comes out infinite."""
_MOST_EFFICIENT = 2
"""Measured shares may exceed 1 a little: a GPU may run faster than its data sheet says."""


def gpu_names() -> list[str]:
    """Return the types of GPU that ship with Headway, sorted."""
    names = (item.name for item in _folder().iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def gpu_from(name_or_path: str) -> GpuModel:
    """Return a type of GPU by its name, or from a file whose name ends in `.toml`."""
    if name_or_path.endswith(_SUFFIX):
        return read_gpu(name_or_path)
    if name_or_path not in (names := gpu_names()):
        raise InputError(
            f"unknown GPU {shown(name_or_path)}, and no .toml file."
            f"{did_you_mean(name_or_path, names)}",
            field="gpu",
        )
    return read_gpu(str(_folder() / f"{name_or_path}{_SUFFIX}"))


def read_gpu(path: str) -> GpuModel:
    """Read the type of GPU that a file describes."""
    with open_input(path) as stream:
        data = stream.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        raise InputError(f"larger than {LARGEST_FILE_BYTES:,} bytes.", source=path)
    try:
        text = data.decode("utf-8-sig")
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not TOML: {error}.", source=path) from None
    try:
        return _gpu(content)
    except InputError as error:
        line, column = _position(text, error.field)
        raise error.at(path, line, column) from None


def _gpu(content: dict[str, Any]) -> GpuModel:
    if _LIKE in content:
        content = {**_like(content[_LIKE]), **content}
        del content[_LIKE]
    values: dict[str, Any] = _values({_ESTIMATES: [], **content}, GpuModel)
    values[_ESTIMATES] = tuple(values[_ESTIMATES])
    links = values.get(_LINKS, [])
    if not isinstance(links, list) or not links or not all(isinstance(one, dict) for one in links):
        raise InputError("must be tables [[server_links]].", field=_LINKS)
    made = [ServerLink(**_values(one, ServerLink)) for one in links]
    if made != sorted(made, key=lambda link: link.gpus):
        raise InputError("must be in ascending order of 'gpus'.", field=_LINKS)
    return GpuModel(**{**values, _LINKS: tuple(made)})


def _like(name: object) -> dict[str, Any]:
    """Return the content of the file of a type that ships with Headway."""
    if name not in (names := gpu_names()):
        raise InputError(f"unknown GPU {shown(name)}.{did_you_mean(str(name), names)}", field=_LIKE)
    content = tomllib.loads((_folder() / f"{name}{_SUFFIX}").read_text())
    content.pop(_ESTIMATES, None)
    return {**_like(content.pop(_LIKE)), **content} if _LIKE in content else content


def _values(content: dict[str, Any], kind: type[GpuModel] | type[ServerLink]) -> dict[str, Any]:
    """Return the values of a table with a key for each field of a record."""
    known = {field.name: str(field.type) for field in fields(kind)}
    for key, value in content.items():
        if key not in known:
            raise InputError(f"unknown key.{did_you_mean(key, known)}", field=key)
        _check(key, value, known[key])
    for key in known:
        if key not in content:
            raise InputError(f"'{key}' is missing.")
    return dict(content)


def _check(key: str, value: object, kind: str) -> None:
    """Refuse a value that is not of the kind, or a number that is negative or infinite."""
    if kind == "str" and not (isinstance(value, str) and value.strip()):
        raise InputError(f"must be a non-empty string, not {shown(value)}.", field=key)
    if key == _ESTIMATES and not (
        isinstance(value, list) and all(isinstance(one, str) for one in value)
    ):
        raise InputError(f"must be a list of keys, not {shown(value)}.", field=key)
    if key == _ESTIMATES and isinstance(value, list):
        known = [field.name for field in fields(GpuModel)]
        for one in value:
            if one not in known:
                raise InputError(f"unknown key {shown(one)}.{did_you_mean(one, known)}", field=key)
    if kind == "bool" and not isinstance(value, bool):
        raise InputError(f"must be true or false, not {shown(value)}.", field=key)
    if kind not in ("int", "float"):
        return
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind == "float" else int):
        what = "number" if kind == "float" else "whole number"
        raise InputError(f"must be a {what}, not {shown(value)}.", field=key)
    may_be_zero = key.endswith(("_ns", "_depth", "_flops_per_s")) and key != "peak_flops_per_s"
    if not 0 <= value < math.inf or (value == 0 and not may_be_zero):
        least = "0 or more" if may_be_zero else "greater than 0"
        raise InputError(f"must be {least}, and finite, not {shown(value)}.", field=key)
    if key.endswith("_efficiency") and value > _MOST_EFFICIENT:
        raise InputError(
            f"is a share of the peak and must be at most {_MOST_EFFICIENT}, not {shown(value)}.",
            field=key,
        )
    if value and not _SMALLEST <= value <= _LARGEST:
        raise InputError(
            f"must be from {_SMALLEST:g} to {_LARGEST:g}, not {shown(value)}.", field=key
        )


def _position(text: str, key: str | None) -> tuple[int | None, int | None]:
    """Return where a key is first written."""
    if key is None:
        return None, None
    found = re.search(rf"^\s*(?:\[\[)?\s*[\"']?({re.escape(key)})\b", text, re.MULTILINE)
    if found is None:
        return None, None
    start = text.rfind("\n", 0, found.start(1)) + 1
    return text.count("\n", 0, found.start(1)) + 1, found.start(1) - start + 1


def _folder() -> resources.abc.Traversable:
    return resources.files("headway.llm") / "data"
