"""Cluster files: equal servers in `[cluster]`, or groups of servers in `[[cluster.group]]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import field

from headway.configuration.conversion import Number, Text, TomlTable, given
from headway.configuration.document import Document
from headway.configuration.files import DescriptionFile
from headway.domain.cluster import Cluster, ServerGroup, gigabytes
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.gpus import ALIASES, GPUS, V100, GpuType, gpu_type, tflops, watts
from headway.domain.limits import LONGEST_NS, scaled
from headway.domain.profiles import Profile
from headway.domain.tiers import Tier, check_switches, check_tier


class RacksTable(TomlTable):
    """`[cluster.racks]`."""

    servers_per_rack: int | None = None
    oversubscription: Number | None = None


class TierTable(TomlTable):
    """`[[cluster.tier]]`: a level of switches."""

    name: Text
    servers_per_switch: int | None = None
    oversubscription: Number = 1


class GroupTable(TomlTable):
    """`[[cluster.group]]`: servers that are alike."""

    servers: int
    gpus_per_server: int
    gpu: str = V100.name
    gpu_memory_gb: Number | None = None
    rack: Text = ""
    rails: int = 1
    switches: list[Text] = field(default_factory=list)


class GpuTable(TomlTable):
    """`[gpu.NAME]`: a type of GPU."""

    memory_gb: Number
    tflops: Number
    idle_w: Number
    busy_w: Number


class ProfileTable(TomlTable):
    """`[[profile]]`: times of a model measured on one type of GPU."""

    model: Text
    gpu: str
    forward_ms: Number
    backward_ms: Number
    batch_size: int | None = None


class UniformTable(TomlTable):
    """`[cluster]` of equal servers."""

    servers: int
    gpus_per_server: int
    gpu_memory_gb: Number = 16
    gpu: str = V100.name
    gpu_idle_w: Number | None = None
    gpu_busy_w: Number | None = None
    rails: int = 1
    exclusive: bool = False
    racks: RacksTable = field(default_factory=RacksTable)
    tier: list[TierTable] = field(default_factory=list)
    group: None = None
    """Never here; listed to be suggested for a misspelt `[[cluster.gruop]]`."""


class GroupedTable(TomlTable):
    """`[cluster]` of groups of servers."""

    REFUSED: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("servers", "gpus_per_server", "gpu_memory_gb", "gpu", "gpu_idle_w", "gpu_busy_w", "rails"),
        "belongs in the groups, [[cluster.group]].",
    )

    group: Annotated[list[GroupTable], msgspec.Meta(min_length=1)]
    exclusive: bool = False
    racks: RacksTable = field(default_factory=RacksTable)
    tier: list[TierTable] = field(default_factory=list)


class UniformFile(DescriptionFile, kw_only=True):
    """A file with a cluster of equal servers."""

    cluster: UniformTable


class GroupedFile(DescriptionFile, kw_only=True):
    """A file with a cluster of groups."""

    cluster: GroupedTable
    gpu: Annotated[dict[str, Any], msgspec.Meta(description="tables [gpu.NAME]")] = field(
        default_factory=dict
    )
    profile: Annotated[list[ProfileTable], msgspec.Meta(min_length=1)] = field(default_factory=list)


def read_cluster(path: str, gpu_memory_gb: float | None, gpu: str | None) -> Cluster:
    """Read the cluster that a file describes; the options replace what a uniform one says."""
    document = Document.read(path)
    cluster = document.content.get("cluster")
    if not isinstance(cluster, dict) or "group" not in cluster:
        return _uniform(document, gpu_memory_gb, gpu)
    for option, value in (("gpu_memory_gb", gpu_memory_gb), ("gpu", gpu)):
        if value is not None:
            raise InputError(
                f"the groups of servers in {path} set their own; omit this option.", field=option
            )
    return _of_groups(document)


def _uniform(document: Document, gpu_memory_gb: float | None, gpu: str | None) -> Cluster:
    table = document.convert(UniformFile).cluster
    for name in ("gpu", "profile"):
        if name in document.content:
            raise document.error("needs groups of servers, [[cluster.group]].", name)
    with document.at("cluster"):
        memory_bytes = gigabytes(table.gpu_memory_gb, "gpu_memory_gb")
        kind = gpu_type(table.gpu)
        idle_w = kind.idle_w if table.gpu_idle_w is None else table.gpu_idle_w
        busy_w = kind.busy_w if table.gpu_busy_w is None else table.gpu_busy_w
        cluster = Cluster(
            table.servers,
            table.gpus_per_server,
            memory_bytes,
            idle_w,
            busy_w,
            rails=table.rails,
            exclusive=table.exclusive,
        )
    if gpu_memory_gb is not None:
        memory_bytes = gigabytes(gpu_memory_gb, "gpu_memory_gb")
        cluster = replace(cluster, gpu_memory_bytes=memory_bytes)
    if gpu is not None:
        kind = gpu_type(gpu)
        cluster = replace(cluster, gpu_idle_w=kind.idle_w, gpu_busy_w=kind.busy_w)
    tiers = _tiers(document, table.tier, named=False)
    racks = table.racks
    with document.at("cluster", "racks"):
        if racks.oversubscription is not None and racks.servers_per_rack is None:
            raise InputError("needs 'servers_per_rack' too.", field="oversubscription")
        return replace(cluster, tiers=tiers, **given(racks))


def _tiers(document: Document, tables: Sequence[TierTable], named: bool) -> tuple[Tier, ...]:
    """Return the tiers in `[[cluster.tier]]`; `named` says that groups name their switches."""
    tiers: list[Tier] = []
    if tables and "racks" in document.content["cluster"]:
        raise document.error("racks are a tier; give only one of the two.", "cluster", "racks")
    for index, table in enumerate(tables):
        with document.at("cluster", "tier", index):
            tier = Tier(table.name, table.oversubscription, table.servers_per_switch)
            check_tier(tier, tiers, named)
            tiers.append(tier)
    return tuple(tiers)


def _of_groups(document: Document) -> Cluster:
    content = document.convert(GroupedFile)
    types = GPUS | {name: _own_type(document, name) for name in content.gpu}
    groups: list[ServerGroup] = []
    named = any(table.switches for table in content.cluster.group)
    tiers = _tiers(document, content.cluster.tier, named)
    above: dict[tuple[int, str], str] = {}
    for index, table in enumerate(content.cluster.group):
        with document.at("cluster", "group", index):
            groups.append(_group(table, types))
            if bool(groups[index].rack) != bool(groups[0].rack):
                raise InputError("either every group names its rack, or none does.")
            if tiers and groups[index].rack:
                raise InputError("racks are a tier; give only one of the two.", field="rack")
            check_switches(groups[index].switches, len(tiers) if named else 0, above)
    profiles = _profiles(document, content.profile, types)
    racks = content.cluster.racks
    with document.at("cluster", "racks"):
        in_racks = racks.servers_per_rack is not None or groups[0].rack
        if racks.oversubscription is not None and not in_racks:
            raise InputError(
                "needs racks: 'servers_per_rack', or 'rack' in every group.",
                field="oversubscription",
            )
        return Cluster.of(
            groups,
            profiles=profiles,
            tiers=tiers,
            exclusive=content.cluster.exclusive,
            **given(racks),
        )


def _group(table: GroupTable, types: Mapping[str, GpuType]) -> ServerGroup:
    kind = _type(table.gpu, types)
    if table.gpu_memory_gb is not None:
        kind = replace(kind, memory_bytes=gigabytes(table.gpu_memory_gb, "gpu_memory_gb"))
    return ServerGroup(
        table.servers,
        table.gpus_per_server,
        kind,
        table.rack,
        table.rails,
        tuple(table.switches),
    )


def _own_type(document: Document, name: str) -> GpuType:
    if name in GPUS or name in ALIASES:
        raise document.error(
            f"'{name}' is a built-in type of GPU; choose another name.", "gpu", name
        )
    table = document.convert(GpuTable, "gpu", name)
    with document.at("gpu", name):
        return GpuType(
            name,
            gigabytes(table.memory_gb, "memory_gb"),
            tflops(table.tflops, "tflops"),
            watts(table.idle_w, "idle_w"),
            watts(table.busy_w, "busy_w"),
        )


def _profiles(
    document: Document, tables: Sequence[ProfileTable], types: Mapping[str, GpuType]
) -> list[Profile]:
    """Return the measured times in `[[profile]]`."""
    profiles: dict[tuple[str, str, int | None], Profile] = {}
    for index, table in enumerate(tables):
        with document.at("profile", index):
            profile = Profile(
                table.model,
                _type(table.gpu, types).name,
                scaled(table.forward_ms, 1e6, "forward_ms", 1, LONGEST_NS, "milliseconds"),
                scaled(table.backward_ms, 1e6, "backward_ms", 1, LONGEST_NS, "milliseconds"),
                table.batch_size,
            )
            if profile.key in profiles:
                raise InputError(
                    f"duplicate profile of {shown(profile.model)} on {shown(profile.gpu)} at one "
                    "batch size.",
                    field="model",
                )
            profiles[profile.key] = profile
    return list(profiles.values())


def _type(name: str, types: Mapping[str, GpuType]) -> GpuType:
    known = ALIASES.get(name, name)
    if known not in types:
        raise InputError(
            f"unknown GPU {shown(name)}.{did_you_mean(name, [*types, *ALIASES])}", field="gpu"
        )
    return types[known]
