"""Sets of model profiles: those that come with Headway, and files of `headway calibrate model`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from headway.configuration.tables import Tables, array_of_tables, check_keys
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.gpus import ALIASES
from headway.domain.limits import LONGEST_NS, MOST_BYTES, scaled, whole
from headway.domain.models import (
    MEBIBYTE,
    MOST_BATCH,
    PAPER_PROFILES,
    ModelProfile,
    ProfileSet,
)

_SUFFIX = ".toml"
_NEEDED = (
    "name",
    "gpu",
    "batch_size",
    "forward_ms",
    "backward_ms",
    "gradient_mb",
    "memory_mb",
)
_KEYS = (
    *_NEEDED,
    "precision",
    "parameters",
    "repeats",
    "forward_ms_quartiles",
    "backward_ms_quartiles",
    "bucket_mb",
    "bucket_ready_ms",
)


def shipped_names() -> list[str]:
    """Return the names of the sets that come with Headway: the paper's, then measured ones."""
    files = sorted(item.name for item in _folder().iterdir()) if _folder().is_dir() else []
    measured = [name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)]
    return [*(paper.name for paper in PAPER_PROFILES), *measured]


def profiles_from(names: Sequence[str]) -> tuple[ProfileSet, ...]:
    """Return the sets that names, or paths of `.toml` files, stand for; none: the paper's."""
    chosen = [names] if isinstance(names, str) else names
    return tuple(map(_set, chosen)) or PAPER_PROFILES


def _set(name: str) -> ProfileSet:
    if name.endswith(_SUFFIX):
        return _read(name, name)
    for paper in PAPER_PROFILES:
        if paper.name == name:
            return paper
    if name not in (known := shipped_names()):
        raise InputError(
            f"unknown set {shown(name)}.{did_you_mean(name, known)} (Or give the path of a .toml "
            "file.)",
            field="profiles",
        )
    with resources.as_file(_folder() / f"{name}{_SUFFIX}") as path:
        return _read(str(path), name)


def _read(path: str, name: str) -> ProfileSet:
    tables = Tables(path)
    if "model" not in tables.document:
        raise InputError("there are no tables [[model]].", source=path)
    try:
        members = array_of_tables(tables.document["model"], "model")
    except InputError as error:
        raise error.at(path, *tables.locate_top("model")) from None
    found: dict[tuple[str, str, int], ModelProfile] = {}
    for index, member in enumerate(members):
        with tables.at("model", index=index):
            profile = _profile(member)
            key = profile.name, profile.gpu, profile.batch_size
            if key in found:
                raise InputError(
                    f"{shown(profile.name)} on {shown(profile.gpu)} stands there twice for batch "
                    f"size {profile.batch_size}.",
                    field="name",
                )
            found[key] = profile
    return ProfileSet(name, tuple(found.values()))


def _profile(member: dict[str, Any]) -> ModelProfile:
    check_keys(member, _KEYS, _NEEDED)
    for key in ("name", "gpu"):
        if not isinstance(member[key], str) or not member[key].strip():
            raise InputError(f"must be a name in quotes, not {shown(member[key])}.", field=key)
    return ModelProfile(
        member["name"],
        gradient_bytes=_megabytes(member, "gradient_mb"),
        memory_bytes=_megabytes(member, "memory_mb"),
        forward_ns=_milliseconds(member, "forward_ms"),
        backward_ns=_milliseconds(member, "backward_ms"),
        batch_size=whole(member["batch_size"], "batch_size", 1, MOST_BATCH),
        gpu=ALIASES.get(member["gpu"], member["gpu"]),
    )


def _milliseconds(member: dict[str, Any], key: str) -> int:
    return scaled(member[key], 1e6, key, 1, LONGEST_NS, "milliseconds")


def _megabytes(member: dict[str, Any], key: str) -> int:
    return scaled(member[key], MEBIBYTE, key, 0, MOST_BYTES, "MB")


def _folder() -> Traversable:
    return resources.files("headway.configuration") / "data"
