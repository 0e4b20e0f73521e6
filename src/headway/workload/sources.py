"""Workloads as users name them: a file, a packaged workload, or a recipe to draw from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from headway.configuration.profiles import profiles_from
from headway.domain.errors import InputError, shown
from headway.domain.workload import Workload
from headway.workload.files import read_workload
from headway.workload.generate import PRESETS, generate_workload


def workload_from(
    source: Workload | str | os.PathLike[str], *, seed: int = 0, profiles: Sequence[str] = ()
) -> Workload:
    """Return a workload: itself, drawn by a recipe such as `paper`, or read by `read_workload`.

    Args:
        source: The workload, its file or its name.
        seed: For a recipe: the same seed draws the same jobs.
        profiles: Sets of model profiles by name or file; the first that has a model counts.
    """
    if isinstance(source, Workload):
        return source
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"must be a workload, or the path or name of one, not {shown(source)}.",
            field="workload",
        )
    if not is_recipe(source):
        return read_workload(source, profiles)
    recipe = replace(PRESETS[os.fspath(source)], profiles=profiles_from(profiles))
    return generate_workload(recipe, seed)


def is_recipe(source: str | os.PathLike[str]) -> bool:
    """Return whether this names a recipe; a file of the same name makes it ambiguous."""
    name = os.fspath(source)
    if name not in PRESETS:
        return False
    if os.path.lexists(name):
        raise InputError(
            f"is a recipe and a file in this folder; write ./{name} for the file, or move it to "
            "draw from the recipe.",
            source=name,
        )
    return True
