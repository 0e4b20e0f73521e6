"""The keys of a sweep file, and the recipes in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta

from headway.configuration.conversion import Number, Text, TomlTable
from headway.domain.models import ProfileSet
from headway.workload.generate import Recipe, preset_recipe

Seeds = Annotated[
    int | str | Annotated[list[int], Meta(min_length=1)],
    Meta(description="a count (20), a range ('5:24') or a list ([3, 7])"),
]
Texts = Annotated[
    str | Annotated[list[str], Meta(min_length=1)],
    Meta(description="a string or a list of strings"),
]
Numbers = Annotated[
    Number | Annotated[list[Number], Meta(min_length=1)],
    Meta(description="a number or a list of numbers"),
]

Switches = Annotated[
    bool | Annotated[list[bool], Meta(min_length=1)],
    Meta(description="true, false or a list of both"),
]

Accuracy = Annotated[
    Number | str, Meta(description="a percentage such as '1%' or a number such as 0.01")
]

RECIPE_KEYS = ("jobs", "span_s", "mix", "iterations", "models")


class WorkloadTable(TomlTable):
    """`[[workloads]]`: a recipe with changes to it, or a file."""

    recipe: Text | None = None
    file: Text | None = None
    name: Text | None = None
    seeds: Seeds | None = None
    jobs: int | None = None
    span_s: int | None = None
    mix: (
        Annotated[dict[int, float], Meta(description="a table such as { 1 = 80, 8 = 30 }")] | None
    ) = None
    iterations: (
        Annotated[list[int], Meta(min_length=2, max_length=2, description="[LOW, HIGH]")] | None
    ) = None
    models: Annotated[list[str], Meta(description="a list of names")] | None = None

    def make_recipe(self, profiles: tuple[ProfileSet, ...]) -> Recipe:
        """Return the preset with this table's changes; models cost what `profiles` say."""
        assert self.recipe is not None
        changes: dict[str, Any] = {
            key: value for key in RECIPE_KEYS if (value := getattr(self, key)) is not None
        }
        for key in ("iterations", "models"):
            if key in changes:
                changes[key] = tuple(changes[key])
        return replace(preset_recipe(self.recipe), profiles=profiles, **changes)


Workloads = Annotated[
    str | WorkloadTable | Annotated[list[str | WorkloadTable], Meta(min_length=1)],
    Meta(description="a string, a table, or a list of these"),
]


class SweepFile(TomlTable):
    """A sweep file."""

    workloads: Workloads
    policies: Texts
    profiles: Texts | None = None
    seeds: Seeds = 20
    clusters: Texts = "16x4"
    gpu_memory_gb: Numbers | None = None
    gpu: Texts | None = None
    exclusive: Switches | None = None
    networks: Texts = "10gbe"
    placement: Texts | None = None
    scheduler: Texts | None = None
    priority: Texts | None = None
    admission: Texts | None = None
    bucket_mb: Numbers | None = None
    accuracy: Accuracy | None = None
    baseline: str | None = None
    jobs: bool = False


def workload_label(table: Mapping[str, Any]) -> str:
    """Return what a workload is called that has no name: its file, or its recipe and changes."""
    if "file" in table:
        return str(table["file"])
    changes = (_change(key, value) for key, value in table.items() if key in RECIPE_KEYS)
    return " ".join([table["recipe"], *changes])


def _change(key: str, value: object) -> str:
    """Return a change to a recipe, such as `iterations=100:600`."""
    if isinstance(value, list | tuple):
        text = (":" if key == "iterations" else ",").join(map(str, value))
    elif isinstance(value, Mapping):
        text = ",".join(f"{gpus}:{share}" for gpus, share in value.items())
    else:
        text = str(value)
    return f"{key}={text}"
