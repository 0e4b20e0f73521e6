"""A sweep: a TOML file of lists, of which every combination is one run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Generic, TypeVar

from headway.configuration import cluster_from, network_from, profiles_from
from headway.configuration.document import Document
from headway.domain.accuracy import accuracy_from
from headway.domain.cluster import Cluster
from headway.domain.errors import HeadwayError, InputError, did_you_mean, shown
from headway.domain.workload import Workload
from headway.experiments.seeds import parse_seeds
from headway.experiments.sweep.file import RECIPE_KEYS, SweepFile, WorkloadTable, workload_label
from headway.files import open_input
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.results.display import describe_sharing
from headway.workload.files import read_workload
from headway.workload.generate import PRESETS, Recipe, generate_workload

MAX_RUNS = 1_000_000

Value = TypeVar("Value")
Coordinate = str | float | int | None

NUMBERS = ("gpu_memory_gb", "bucket_mb")
SWITCHES = ("exclusive",)
_CLUSTER_AXES = ("cluster", "gpu_memory_gb", "gpu", "exclusive")
_POLICY_AXES = ("policy", "placement", "scheduler", "priority", "admission", "bucket_mb")
COORDINATES = ("workload", "seed", *_CLUSTER_AXES, "network", *_POLICY_AXES)
"""The columns that say which run of the grid a row is."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[Value]):
    """An item of an axis: its coordinates, its value, and a hash of the value."""

    coordinates: Mapping[str, Coordinate]
    value: Value
    digest: str


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    """A workload of the grid: a recipe to draw from, or given jobs."""

    source: Recipe | Workload
    seeds: tuple[int, ...]

    def draw(self, seed: int) -> Workload:
        """Return the jobs of one run; the seed matters for a recipe only."""
        if isinstance(self.source, Workload):
            return self.source
        return generate_workload(self.source, seed)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A valid sweep, with everything that its runs need."""

    text: str
    """The content of the file."""
    workloads: tuple[Entry[WorkloadSource], ...]
    clusters: tuple[Entry[Cluster], ...]
    networks: tuple[Entry[NetworkModel], ...]
    policies: tuple[Entry[PolicySet], ...]
    files: Mapping[str, bytes]
    """The users' policy files: path to content."""
    accuracy: float | None
    """Of sampled runs; None is exact."""
    jobs: bool
    baseline: str
    """The policy that the others are compared with."""

    @property
    def size(self) -> int:
        """The number of runs."""
        seeds = sum(len(workload.value.seeds) for workload in self.workloads)
        return seeds * len(self.clusters) * len(self.networks) * len(self.policies)

    @property
    def sharing(self) -> str:
        """A line that says whether jobs share GPUs, or that some do."""
        found = set()
        for workload in self.workloads:
            source = workload.value.source
            for cluster in self.clusters:
                if isinstance(source, Workload):
                    exclusive, jobs = source.exclusive_jobs(cluster.value), len(source)
                else:
                    jobs = source.jobs
                    exclusive = jobs if cluster.value.exclusive else 0
                found.add(describe_sharing(exclusive, jobs))
        return (
            found.pop()
            if len(found) == 1
            else "some jobs share GPUs if their memory fits, others do not"
        )


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read a sweep; paths in the file are relative to its folder."""
    return _Reader(Document.read(os.fspath(path))).sweep()


def sweep_of(document: Mapping[str, Any]) -> Sweep:
    """Return the sweep that a mapping with the keys of a sweep file describes."""
    return _Reader(Document(document)).sweep()


class _Reader:
    """Makes a sweep of a document; errors name their line and column."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._content = document.convert(SweepFile)
        self._folder = os.path.dirname(document.source or "")
        self._files: dict[str, bytes] = {}
        self._profiles: list[str] = []

    def sweep(self) -> Sweep:
        """Return the sweep; its size is checked before any other file is read."""
        source = self._document.source
        if self._content.profiles is not None:
            self._profiles = list(map(self._beside, self._items("profiles")))
            for index, name in enumerate(self._profiles):
                self._checked("profiles", index, profiles_from, [name])
        seeds = self._checked("seeds", None, _seeds, self._content.seeds)
        accuracy = None
        if self._content.accuracy is not None:
            accuracy = self._checked("accuracy", None, accuracy_from, self._content.accuracy)
        workloads = [
            self._workload(item, seeds, index)
            for index, item in enumerate(self._items("workloads"))
        ]
        clusters = self._axes("clusters", _CLUSTER_AXES)
        networks = self._items("networks")
        policies = self._axes("policies", _POLICY_AXES)
        runs = sum(len(part[1]) for part in workloads) * prod(
            map(len, (clusters, networks, policies))
        )
        if runs > MAX_RUNS:
            raise InputError(f"{runs:,} runs; a sweep may have {MAX_RUNS:,}.", source=source)
        names = [name for name, _, _ in workloads]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise self._error(
                    f"two are called {shown(name)}; give one a 'name'.", "workloads", index
                )
        baseline = self._content.baseline or str(policies[0]["policy"])
        offered = {str(policy["policy"]) for policy in policies}
        if baseline not in offered:
            raise self._error(
                f"must be one of the policies.{did_you_mean(baseline, offered)}", "baseline"
            )
        return Sweep(
            text=self._document.text,
            workloads=tuple(
                self._checked("workloads", index, self._load, part)
                for index, part in enumerate(workloads)
            ),
            clusters=tuple(self._each("clusters", "cluster", clusters, self._cluster)),
            networks=tuple(
                self._each(
                    "networks", "network", [{"network": name} for name in networks], self._network
                )
            ),
            policies=tuple(self._each("policies", "policy", policies, self._policy)),
            files=dict(self._files),
            accuracy=accuracy,
            jobs=self._content.jobs,
            baseline=baseline,
        )

    def _items(self, key: str) -> list[Any]:
        """Return the values of a key, which may have one value or a list."""
        given = getattr(self._content, key)
        items = given if isinstance(given, list) else [given]
        for index, item in enumerate(items):
            if item in items[:index]:
                raise self._error(f"duplicate {shown(item)}.", key, index)
        return items

    def _axes(self, key: str, axes: tuple[str, ...]) -> list[dict[str, Coordinate]]:
        """Return every combination of a list and of the axes that override its parts."""
        values: list[list[Coordinate]] = [self._items(key), *map(self._items, axes[1:])]
        return [dict(zip(axes, combination, strict=True)) for combination in product(*values)]

    def _each(
        self,
        key: str,
        axis: str,
        entries: list[dict[str, Coordinate]],
        make: Callable[[dict[str, Coordinate]], Value],
    ) -> Iterator[Value]:
        """Yield `make` of every combination; an error points at the item of the list."""
        order = list(dict.fromkeys(entry[axis] for entry in entries))
        for entry in entries:
            yield self._checked(key, order.index(entry[axis]), make, entry)

    def _checked(
        self, key: str, index: int | None, make: Callable[[Any], Value], part: object
    ) -> Value:
        """Return `make(part)`; an error points at the item of the key, or at the axis it names."""
        try:
            return make(part)
        except InputError as error:
            if error.source is not None:
                raise
            axis = key
            if error.field is not None and error.field in self._document.content:
                axis = error.field
            if axis != key and isinstance(part, dict) and axis in part:
                given = self._document.content[axis]
                index = given.index(part[axis]) if isinstance(given, list) else 0
            raise self._error(error.problem, axis, index) from None
        except HeadwayError as error:
            raise self._error(str(error), key, index) from error

    def _workload(
        self, item: str | WorkloadTable, seeds: tuple[int, ...], index: int
    ) -> tuple[str, tuple[int, ...], Recipe | str]:
        """Return a workload's name, seeds, and recipe or path, without reading it yet."""
        if isinstance(item, str):
            is_recipe = item in PRESETS
            table = WorkloadTable(recipe=item) if is_recipe else WorkloadTable(file=item)
            label = item
        else:
            table = item
            if (table.recipe is None) == (table.file is None):
                raise self._error("needs either a 'recipe' or a 'file'.", "workloads", index)
            written = self._document.content["workloads"]
            label = workload_label(written[index] if isinstance(written, list) else written)
        try:
            if table.file is not None:
                for key in RECIPE_KEYS:
                    if getattr(table, key) is not None:
                        raise InputError("is for a recipe, not for a file.", field=key)
                source: Recipe | str = self._path(table.file)
                seeds = (0,)
            else:
                source = table.make_recipe(profiles_from(self._profiles))
            if table.seeds is not None:
                seeds = _seeds(table.seeds)
        except InputError as error:
            keys = {"preset": "recipe", "span": "span_s"}
            key = keys.get(error.field or "", error.field or "recipe")
            raise self._error(error.problem, "workloads", index, key) from None
        return table.name or label, seeds, source

    def _path(self, text: str) -> str:
        """Return the path of a workload, or its name if it is a packaged one."""
        beside = os.path.join(self._folder, text)
        is_name = not os.path.dirname(text) and Path(text).suffix not in (".csv", ".parquet")
        return text if is_name and not os.path.exists(beside) else beside

    def _load(self, part: tuple[str, tuple[int, ...], Recipe | str]) -> Entry[WorkloadSource]:
        name, seeds, source = part
        if isinstance(source, str):
            read = read_workload(source, self._profiles)
            return Entry({"workload": name}, WorkloadSource(read, seeds), workload_digest(read))
        return Entry({"workload": name}, WorkloadSource(source, seeds), _digest(source))

    def _cluster(self, at: dict[str, Any]) -> Entry[Cluster]:
        cluster = cluster_from(
            self._beside(at["cluster"]), at["gpu_memory_gb"], at["gpu"], bool(at["exclusive"])
        )
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
        return Entry(
            at, policies, _digest((sources, policies.bucket_bytes, policies.buckets_if_shared))
        )

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
        self, problem: str, key: str, index: int | None = None, inner: str | None = None
    ) -> InputError:
        """Return an error about a key, an item of its list, or a key inside that item."""
        is_list = isinstance(self._document.content.get(key), list)
        path = (key,) if index is None or not is_list else (key, index)
        if inner is not None:
            return self._document.error(problem, *path, inner)
        if index is None or is_list:
            return self._document.error(problem, *path)
        return self._document.error_in_value(problem, key)


def _seeds(given: int | str | list[int]) -> tuple[int, ...]:
    if not isinstance(given, list):
        return parse_seeds(str(given), fewest=1)
    # A list of one would be read as a count.
    text = ",".join(map(str, given)) if len(given) > 1 else f"{given[0]}:{given[0]}"
    return parse_seeds(text, fewest=1)


def own_file(name: str | None) -> str | None:
    """Return the path in `path.py:function`, the name of a user's policy."""
    path, found, _ = (name or "").partition(".py:")
    return path + ".py" if found else None


def _made(axis: str, make: Callable[[], Value]) -> Value:
    """Return what `make` makes of a value on an axis; an error about it names the axis."""
    try:
        return make()
    except InputError as error:
        if error.source is None:
            raise InputError(error.problem, field=axis) from None
        raise


def workload_digest(workload: Workload) -> str:
    """Return a hash of all that a workload holds; `repr` leaves out the entries of graphs."""
    graphs = {id(job.graph): job.graph for job in workload if job.graph is not None}
    numbers = {key: number for number, key in enumerate(graphs)}
    used = [numbers.get(id(job.graph)) for job in workload]
    entries = [graph.entries for graph in graphs.values()]
    return _digest((workload.jobs, workload.profiles, used, entries))


def _digest(value: object) -> str:
    """Return a hash of a value made of numbers, texts, tuples and dataclasses."""
    return sha256(repr(value).encode()).hexdigest()[:32]
