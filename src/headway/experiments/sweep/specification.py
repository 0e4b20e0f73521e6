"""What a sweep runs: a TOML file of lists, of which every combination is one run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Generic, TypeVar

from headway.configuration import cluster_from, network_from, profiles_from, read_toml
from headway.domain.cluster import Cluster
from headway.domain.errors import HeadwayError, InputError, did_you_mean, shown
from headway.domain.models import ProfileSet
from headway.domain.workload import Workload
from headway.experiments.seeds import parse_seeds
from headway.experiments.sweep.places import locate
from headway.files import open_input
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.workload.files import read_workload
from headway.workload.generate import PRESETS, Recipe, generate_workload, preset_recipe

MOST_RUNS = 1_000_000

Value = TypeVar("Value")
Coordinate = str | float | int | None

NUMBERS = ("gpu_memory_gb", "bucket_mb")
_CLUSTER_AXES = ("cluster", "gpu_memory_gb", "gpu")
_POLICY_AXES = ("policy", "placement", "scheduler", "priority", "admission", "bucket_mb")
COORDINATES = ("workload", "seed", *_CLUSTER_AXES, "network", *_POLICY_AXES)
"""The columns that tell where in the grid a run is."""

_USUAL = {"clusters": "16x4", "networks": "10gbe"}
_KEYS = {
    "workloads",
    "profiles",
    "seeds",
    "clusters",
    "networks",
    "policies",
    "baseline",
    "jobs",
    *_CLUSTER_AXES[1:],
    *_POLICY_AXES[1:],
}
_RECIPE_KEYS = {"jobs", "span_s", "mix", "iterations", "models"}
_USUAL_SEEDS = "20"


@dataclass(frozen=True, slots=True)
class Entry(Generic[Value]):
    """A place on an axis: its coordinates, what is there, and a hash of that."""

    coordinates: Mapping[str, Coordinate]
    value: Value
    digest: str


@dataclass(frozen=True, slots=True)
class Jobs:
    """A workload of the grid: a recipe to draw from, or jobs as they are."""

    source: Recipe | Workload
    seeds: tuple[int, ...]

    def draw(self, seed: int) -> Workload:
        """Return the jobs of one run; a seed changes those of a recipe only."""
        if isinstance(self.source, Workload):
            return self.source
        return generate_workload(self.source, seed)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A checked sweep, with everything that its runs need."""

    text: str
    """As the file has it."""
    workloads: tuple[Entry[Jobs], ...]
    clusters: tuple[Entry[Cluster], ...]
    networks: tuple[Entry[NetworkModel], ...]
    policies: tuple[Entry[PolicySet], ...]
    files: Mapping[str, bytes]
    """The users' policy files: path to content."""
    jobs: bool
    baseline: str
    """The policy that the others are compared with."""

    @property
    def size(self) -> int:
        """The number of runs."""
        seeds = sum(len(workload.value.seeds) for workload in self.workloads)
        return seeds * len(self.clusters) * len(self.networks) * len(self.policies)


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read a sweep; paths in the file are relative to its folder."""
    source = os.fspath(path)
    document, text = read_toml(source)
    return _Reader(document, text, source).sweep()


def sweep_of(document: Mapping[str, Any]) -> Sweep:
    """Return the sweep that a mapping describes, with the keys of the file."""
    return _Reader(dict(document), "", None).sweep()


class _Reader:
    """Checks a document, and names the place of what is wrong in it."""

    def __init__(self, document: dict[str, Any], text: str, source: str | None) -> None:
        self._document = document
        self._text = text
        self._source = source
        self._folder = "" if source is None else os.path.dirname(source)
        self._files: dict[str, bytes] = {}
        self._profiles: list[str] = []

    def sweep(self) -> Sweep:
        """Return the sweep; sizes are checked before any other file is read."""
        for key in self._document:
            if key not in _KEYS:
                raise self._error(f"unknown key.{did_you_mean(key, _KEYS)}", key)
        for key in ("workloads", "policies"):
            if key not in self._document:
                raise InputError(f"'{key}' is missing.", source=self._source)
        jobs = self._document.get("jobs", False)
        if not isinstance(jobs, bool):
            raise self._error(f"must be true or false, not {shown(jobs)}.", "jobs")
        if "profiles" in self._document:
            names = self._items("profiles", str)
            self._profiles = list(map(self._beside, names))
            for place, name in enumerate(self._profiles):
                self._checked("profiles", place, profiles_from, [name])
        seeds = self._checked("seeds", None, self._seeds, self._document.get("seeds", _USUAL_SEEDS))
        workloads = [
            self._checked("workloads", place, self._workload, (item, seeds, place))
            for place, item in enumerate(self._items("workloads", (str, dict)))
        ]
        clusters = self._axes("clusters", _CLUSTER_AXES)
        networks = self._items("networks", str)
        policies = self._axes("policies", _POLICY_AXES)
        runs = sum(len(part[1]) for part in workloads) * prod(
            map(len, (clusters, networks, policies))
        )
        if runs > MOST_RUNS:
            raise InputError(f"{runs:,} runs; a sweep may have {MOST_RUNS:,}.", source=self._source)
        names = [name for name, _, _ in workloads]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise self._error(
                    f"two are called {shown(name)}; give one a `name`.", "workloads", place
                )
        baseline = self._document.get("baseline", policies[0]["policy"])
        offered = {str(policy["policy"]) for policy in policies}
        if baseline not in offered:
            raise self._error(
                f"must be one of the policies.{did_you_mean(str(baseline), offered)}", "baseline"
            )
        return Sweep(
            text=self._text,
            workloads=tuple(
                self._checked("workloads", place, self._load, part)
                for place, part in enumerate(workloads)
            ),
            clusters=tuple(self._each("clusters", "cluster", clusters, self._cluster)),
            networks=tuple(
                self._each(
                    "networks", "network", [{"network": name} for name in networks], self._network
                )
            ),
            policies=tuple(self._each("policies", "policy", policies, self._policy)),
            files=dict(self._files),
            jobs=jobs,
            baseline=str(baseline),
        )

    def _items(self, key: str, kinds: type | tuple[type, ...]) -> list[Any]:
        """Return the values under a key, of which there may be one or a list."""
        given = self._document.get(key, _USUAL.get(key))
        items = given if isinstance(given, list) else [given]
        if not items:
            raise self._error("must not be empty.", key)
        for place, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, kinds):
                raise self._error(
                    f"must be {_KINDS[kinds]}, or a list of such, not {shown(item)}.", key, place
                )
            if item in items[:place]:
                raise self._error(f"{shown(item)} stands there twice.", key, place)
        return items

    def _axes(self, key: str, axes: tuple[str, ...]) -> list[dict[str, Coordinate]]:
        """Return every combination of a list and of what may change its parts."""
        values: list[list[Coordinate]] = [self._items(key, str)]
        for axis in axes[1:]:
            kind: type | tuple[type, ...] = (int, float) if axis in NUMBERS else str
            values.append(self._items(axis, kind) if axis in self._document else [None])
        return [dict(zip(axes, combination, strict=True)) for combination in product(*values)]

    def _each(
        self,
        key: str,
        axis: str,
        entries: list[dict[str, Coordinate]],
        make: Callable[[dict[str, Coordinate]], Value],
    ) -> Iterator[Value]:
        """Make something of every combination; an error names the one of the list at fault."""
        order = list(dict.fromkeys(entry[axis] for entry in entries))
        for entry in entries:
            yield self._checked(key, order.index(entry[axis]), make, entry)

    def _checked(
        self, key: str, place: int | None, make: Callable[[Any], Value], part: object
    ) -> Value:
        """Make something of a part; an error about it names its place in this file."""
        try:
            return make(part)
        except InputError as error:
            if error.source is not None:
                raise
            axis = error.field if error.field in self._document else key
            if axis != key and isinstance(part, dict) and axis in part:
                given = self._document[axis]
                place = given.index(part[axis]) if isinstance(given, list) else 0
            raise self._error(error.problem, axis or key, place) from None
        except HeadwayError as error:
            raise self._error(str(error), key, place) from error

    def _seeds(self, given: object) -> tuple[int, ...]:
        if isinstance(given, list) and given and all(type(seed) is int for seed in given):
            return parse_seeds(
                ",".join(map(str, given)) if given[1:] else f"{given[0]}:{given[0]}", 1
            )
        if isinstance(given, bool) or not isinstance(given, (int, str)):
            raise InputError(
                f"must be how many (20), a range ('5:24') or a list ([3, 7]), not {shown(given)}.",
                field="seeds",
            )
        return parse_seeds(str(given), fewest=1)

    def _workload(
        self, part: tuple[str | dict[str, Any], tuple[int, ...], int]
    ) -> tuple[str, tuple[int, ...], Recipe | str]:
        """Return a workload's name, seeds, and recipe or path, without reading it yet."""
        given, seeds, place = part
        table = (
            {"recipe" if given in PRESETS else "file": given} if isinstance(given, str) else given
        )
        if ("recipe" in table) == ("file" in table):
            raise InputError("needs a `recipe` or a `file`, one of them.", field="workloads")
        known = {"name", "seeds"} | ({"recipe"} | _RECIPE_KEYS if "recipe" in table else {"file"})
        for key in table:
            if key not in known:
                raise self._error(
                    f"unknown key.{did_you_mean(key, known)}", "workloads", place, key
                )
        for key in ("recipe", "file", "name"):
            if not isinstance(table.get(key, ""), str):
                raise self._error(
                    f"must be text, not {shown(table[key])}.", "workloads", place, key
                )
        source: Recipe | str
        try:
            if "recipe" in table:
                changes = {key: value for key, value in table.items() if key in _RECIPE_KEYS}
                source = _recipe(table["recipe"], changes, profiles_from(self._profiles))
                usual = " ".join([table["recipe"], *(_told(*item) for item in changes.items())])
            else:
                usual, seeds, source = table["file"], (0,), self._path(table["file"])
            if "seeds" in table:
                seeds = self._seeds(table["seeds"])
        except InputError as error:
            names = {"preset": "recipe", "span": "span_s"}
            key = names.get(error.field or "", error.field or "recipe")
            raise self._error(error.problem, "workloads", place, key) from None
        return table.get("name", usual), seeds, source

    def _path(self, text: str) -> str:
        """Return where a workload is; what is no file and looks like none is a packaged name."""
        beside = os.path.join(self._folder, text)
        is_name = not os.path.dirname(text) and Path(text).suffix not in (".csv", ".parquet")
        return text if is_name and not os.path.exists(beside) else beside

    def _load(self, part: tuple[str, tuple[int, ...], Recipe | str]) -> Entry[Jobs]:
        name, seeds, source = part
        if isinstance(source, str):
            jobs = read_workload(source, self._profiles)
            digest = _digest((jobs.jobs, jobs.profiles) if jobs.profiles else jobs.jobs)
            return Entry({"workload": name}, Jobs(jobs, seeds), digest)
        return Entry({"workload": name}, Jobs(source, seeds), _digest(source))

    def _cluster(self, at: dict[str, Any]) -> Entry[Cluster]:
        cluster = cluster_from(self._beside(at["cluster"]), at["gpu_memory_gb"], at["gpu"])
        return Entry(at, cluster, _digest(cluster))

    def _network(self, at: dict[str, Any]) -> Entry[NetworkModel]:
        network = network_from(self._beside(at["network"]))
        return Entry(at, network, _digest(network))

    def _beside(self, text: str) -> str:
        return os.path.join(self._folder, text) if text.endswith(".toml") else text

    def _policy(self, at: dict[str, Any]) -> Entry[PolicySet]:
        """Return the policies of a run: a preset or combination, with the parts of other axes."""
        text = "+".join(map(self._own, at["policy"].split("+")))
        policies = PolicySet.parse(text)
        for axis in _POLICY_AXES[1:]:
            if (part := at[axis]) is not None:
                own = part if axis in ("scheduler", "bucket_mb") else self._own(part)
                change: dict[str, Any] = {axis: own}
                policies = _made(axis, partial(policies.override, **change))
        sources = []
        for kind, choice in policies.choices._asdict().items():
            file = own_file(getattr(policies, kind))
            sources.append((choice.name, None if file is None else self._files[file]))
        return Entry(at, policies, _digest((sources, policies.bucket_bytes)))

    def _own(self, text: str) -> str:
        """Return a policy's name with the path of a user's file, which is kept."""
        file = own_file(text)
        if file is None:
            return text
        path = os.path.join(self._folder, file)
        if path not in self._files:
            with open_input(path) as stream:
                self._files[path] = stream.read()
        return path + text[len(file) :]

    def _error(
        self, problem: str, key: str, place: int | None = None, inner: str | None = None
    ) -> InputError:
        """Return an error about a key, the one of its list at a place, or a key inside that."""
        line, column = locate(self._text, key, place, inner)
        return InputError(
            problem, field=inner or key, source=self._source, line=line, column=column
        )


_KINDS: dict[type | tuple[type, ...], str] = {
    str: "text",
    (str, dict): "text or a table",
    (int, float): "a number",
}


def own_file(name: str | None) -> str | None:
    """Return the path in `path.py:function`, the name of a user's policy."""
    path, found, _ = (name or "").partition(".py:")
    return path + ".py" if found else None


def _recipe(preset: str, changes: dict[str, Any], profiles: tuple[ProfileSet, ...]) -> Recipe:
    """Return a preset with some of its parts changed, as TOML writes them."""
    recipe = preset_recipe(preset)
    made = dict(changes)
    if "iterations" in made:
        pair = made["iterations"]
        if not (isinstance(pair, list) and len(pair) == 2):
            raise InputError(f"must be [LOW, HIGH], not {shown(pair)}.", field="iterations")
        made["iterations"] = tuple(pair)
    if "models" in made:
        models = made["models"]
        if not (isinstance(models, list) and all(isinstance(name, str) for name in models)):
            raise InputError(f"must be a list of names, not {shown(models)}.", field="models")
        made["models"] = tuple(models)
    if "mix" in made:
        mix = made["mix"]
        try:
            made["mix"] = {int(gpus): float(share) for gpus, share in mix.items()}
        except (AttributeError, TypeError, ValueError):
            raise InputError(
                f"must be such as {{ 1 = 80, 8 = 30 }}, not {shown(mix)}.", field="mix"
            ) from None
    return replace(recipe, profiles=profiles, **made)


def _told(key: str, value: object) -> str:
    """Return a change of a recipe as its name tells it."""
    if isinstance(value, list):
        text = (":" if key == "iterations" else ",").join(map(str, value))
    elif isinstance(value, dict):
        text = ",".join(f"{gpus}:{share}" for gpus, share in value.items())
    else:
        text = str(value)
    return f"{key}={text}"


def _made(axis: str, make: Callable[[], Value]) -> Value:
    """Return what `make` makes of a value on an axis; an error about it names the axis."""
    try:
        return make()
    except InputError as error:
        if error.source is None:
            raise InputError(error.problem, field=axis) from None
        raise


def _digest(value: object) -> str:
    """Return a hash of a value made of numbers, texts, tuples and dataclasses."""
    return sha256(repr(value).encode()).hexdigest()[:32]
