"""Sets of model profiles: those that ship with Headway, and files of `headway calibrate model`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.models import PAPER_PROFILES, ProfileSet
from headway.domain.profiles import model_names, profile_at

_SUFFIX = ".toml"


def shipped_names() -> list[str]:
    """Return the names of the sets that ship with Headway: the paper's, then measured ones."""
    files = sorted(item.name for item in _folder().iterdir()) if _folder().is_dir() else []
    measured = [name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)]
    return [*(paper.name for paper in PAPER_PROFILES), *measured]


def profiles_from(names: Sequence[str]) -> tuple[ProfileSet, ...]:
    """Return the sets with these names, or from these `.toml` files; by default the paper's."""
    chosen = [names] if isinstance(names, str) else names
    return tuple(map(_profile_set, chosen)) or PAPER_PROFILES


def profile_fields(model: str, problem: str, option: str) -> dict[str, Any]:
    """Return the fields of a job that a model's profile provides.

    Raises:
        InputError: No set that comes with Headway has the model: `problem`, about this option.
    """
    sets = profiles_from(shipped_names())
    found = profile_at(model, None, sets)
    if found is None:
        raise InputError(f"{problem}{did_you_mean(model, model_names(sets))}", field=option)
    names = ("memory_bytes", "forward_ns", "backward_ns", "gradient_bytes")
    return {name: getattr(found[0], name) for name in names}


def _profile_set(name: str) -> ProfileSet:
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
    from headway.configuration.profile_file import read_profiles

    return read_profiles(path, name)


def _folder() -> Traversable:
    return resources.files("headway.configuration") / "data"
