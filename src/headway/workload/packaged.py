"""Workloads that ship with Headway, read by name."""

from __future__ import annotations

import os
from importlib import resources
from importlib.resources.abc import Traversable

from headway.domain.errors import InputError
from headway.files import STANDARD

_SUFFIX = ".csv"


def packaged_names() -> list[str]:
    """Return the names, sorted."""
    names = (item.name for item in _folder().iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def packaged_workload(path: str) -> Traversable | None:
    """Return the packaged workload of this name, or None if it is the path of a file.

    A name has neither folder nor suffix. If a file of that name exists too, it is refused as
    ambiguous.
    """
    if path == STANDARD or os.path.dirname(path) or os.path.splitext(path)[1]:
        return None
    exists = os.path.lexists(path)
    if path not in (names := packaged_names()):
        if exists:
            return None
        raise InputError(
            f"no such file, and no packaged workload of that name (available: {', '.join(names)}).",
            source=path,
        )
    if exists:
        raise InputError(
            f"is a packaged workload and a file in this folder; write ./{path} for the file, or "
            "move it to read the packaged one.",
            source=path,
        )
    return _folder() / f"{path}{_SUFFIX}"


def _folder() -> Traversable:
    return resources.files("headway.workload") / "data"
