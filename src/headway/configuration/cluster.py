"""Clusters from shapes and TOML files: alike throughout, or groups of servers, types and racks."""

from __future__ import annotations

from typing import Any

from headway.configuration.tables import Tables, array_of_tables, check_keys
from headway.domain.cluster import Cluster, ServerGroup, gigabytes
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.gpus import ALIASES, GPUS, V100, GpuType, gpu_type, tflops, watts
from headway.domain.limits import LONGEST_NS, scaled
from headway.domain.profiles import Profile

_SHAPE_KEYS = ("servers", "gpus_per_server", "gpu_memory_gb", "gpu", "gpu_idle_w", "gpu_busy_w")
_RACKS_KEYS = ("servers_per_rack", "oversubscription")
_GROUP_KEYS = ("servers", "gpus_per_server", "gpu", "gpu_memory_gb", "rack")
_GPU_KEYS = ("memory_gb", "tflops", "idle_w", "busy_w")
_PROFILE_KEYS = ("model", "gpu", "batch_size", "forward_ms", "backward_ms")
_PROFILE_NEEDS = ("model", "gpu", "forward_ms", "backward_ms")


def cluster_from(text: str, gpu_memory_gb: float | None = None, gpu: str | None = None) -> Cluster:
    """Return the cluster that a shape (`16x4`) or the path of a TOML file describes.

    Args:
        text: The shape or the path.
        gpu_memory_gb: Memory of a GPU, instead of the file's or 16.
        gpu: The kind of GPU, such as `v100`, whose watts count instead of the file's.
    """
    if not text.endswith(".toml"):
        kind = V100 if gpu is None else gpu_type(gpu)
        return Cluster.parse(text, 16 if gpu_memory_gb is None else gpu_memory_gb, kind)
    tables = Tables(text)
    table = tables.table("cluster", (*_SHAPE_KEYS, "racks", "group"))
    racks = _racks(tables, table.pop("racks", {}))
    if "group" not in table:
        return _uniform(tables, table, racks, gpu_memory_gb, gpu)
    for option, value in (("gpu_memory_gb", gpu_memory_gb), ("gpu", gpu)):
        if value is not None:
            raise InputError(
                f"the groups of servers in {text} have their own; leave the option out.",
                field=option,
            )
    return _of_groups(tables, table, racks)


def _uniform(
    tables: Tables,
    table: dict[str, Any],
    racks: dict[str, Any],
    gpu_memory_gb: float | None,
    gpu: str | None,
) -> Cluster:
    """Make a cluster of equal servers; the kind of GPU tells its watts."""
    for name in ("gpu", "profile"):
        if name in tables.document:
            raise InputError("needs groups of servers, [[cluster.group]].", field=name).at(
                tables.path, *tables.locate_top(name)
            )
    with tables.at("cluster"):
        check_keys(table, _SHAPE_KEYS, ("servers", "gpus_per_server"))
        memory = table.get("gpu_memory_gb", 16) if gpu_memory_gb is None else gpu_memory_gb
        kind = gpu_type(table["gpu"]) if "gpu" in table else V100
        idle_w, busy_w = table.get("gpu_idle_w", kind.idle_w), table.get("gpu_busy_w", kind.busy_w)
        if gpu is not None:
            idle_w, busy_w = gpu_type(gpu).idle_w, gpu_type(gpu).busy_w
        memory_bytes = gigabytes(memory, "gpu_memory_gb")
        shape = Cluster(table["servers"], table["gpus_per_server"], memory_bytes, idle_w, busy_w)
    if "oversubscription" in racks and "servers_per_rack" not in racks:
        with tables.at("cluster", "racks"):
            raise InputError("needs 'servers_per_rack' too.", field="oversubscription")
    with tables.at("cluster", "racks"):
        return Cluster(shape.servers, shape.gpus_per_server, memory_bytes, idle_w, busy_w, **racks)


def _of_groups(tables: Tables, table: dict[str, Any], racks: dict[str, Any]) -> Cluster:
    types = GPUS | _own_types(tables)
    with tables.at("cluster"):
        for key in table:
            if key != "group":
                raise InputError("goes into the groups, [[cluster.group]].", field=key)
        members = array_of_tables(table["group"], "cluster.group")
    groups = []
    for index, member in enumerate(members):
        with tables.at("cluster", "group", index=index):
            groups.append(_group(member, types))
            if bool(groups[index].rack) != bool(groups[0].rack):
                raise InputError("every group must name its rack, or none.")
    if "oversubscription" in racks and "servers_per_rack" not in racks and not groups[0].rack:
        with tables.at("cluster", "racks"):
            raise InputError(
                "needs racks: 'servers_per_rack', or 'rack' in every group.",
                field="oversubscription",
            )
    profiles = _profiles(tables, types)
    with tables.at("cluster", "racks"):
        return Cluster.of(groups, profiles=profiles, **racks)


def _racks(tables: Tables, table: object) -> dict[str, Any]:
    with tables.at("cluster"):
        if not isinstance(table, dict):
            raise InputError(f"must be a table [cluster.racks], not {shown(table)}.", field="racks")
    with tables.at("cluster", "racks"):
        check_keys(table, _RACKS_KEYS)
    return table


def _group(member: dict[str, Any], types: dict[str, GpuType]) -> ServerGroup:
    check_keys(member, _GROUP_KEYS, ("servers", "gpus_per_server"))
    kind = _type(member.get("gpu", V100.name), types)
    if "gpu_memory_gb" in member:
        memory_bytes = gigabytes(member["gpu_memory_gb"], "gpu_memory_gb")
        kind = GpuType(kind.name, memory_bytes, kind.performance, kind.idle_w, kind.busy_w)
    rack = member.get("rack", "")
    if "rack" in member and not (isinstance(rack, str) and rack):
        raise InputError(f"must be a name in quotes, not {shown(rack)}.", field="rack")
    return ServerGroup(member["servers"], member["gpus_per_server"], kind, rack)


def _own_types(tables: Tables) -> dict[str, GpuType]:
    """Return the types that the file describes, [gpu.NAME]."""
    own = tables.document.get("gpu", {})
    if not isinstance(own, dict):
        raise InputError(f"must be tables [gpu.NAME], not {shown(own)}.", field="gpu").at(
            tables.path, *tables.locate_top("gpu")
        )
    types = {}
    for name, table in own.items():
        if not isinstance(table, dict):
            with tables.at("gpu"):
                raise InputError(f"must be a table [gpu.{name}], not a value.", field=name)
        with tables.at("gpu", name):
            if name in GPUS or name in ALIASES:
                raise InputError(f"'{name}' is a known GPU; choose another name.")
            check_keys(table, _GPU_KEYS, _GPU_KEYS)
            types[name] = GpuType(
                name,
                gigabytes(table["memory_gb"], "memory_gb"),
                tflops(table["tflops"], "tflops"),
                watts(table["idle_w"], "idle_w"),
                watts(table["busy_w"], "busy_w"),
            )
    return types


def _profiles(tables: Tables, types: dict[str, GpuType]) -> list[Profile]:
    """Return the measured times that the file gives, [[profile]]."""
    if "profile" not in tables.document:
        return []
    try:
        members = array_of_tables(tables.document["profile"], "profile")
    except InputError as error:
        raise error.at(tables.path, *tables.locate_top("profile")) from None
    profiles: dict[tuple[str, str, int | None], Profile] = {}
    for index, member in enumerate(members):
        with tables.at("profile", index=index):
            check_keys(member, _PROFILE_KEYS, _PROFILE_NEEDS)
            profile = Profile(
                member["model"],
                _type(member["gpu"], types).name,
                _milliseconds(member, "forward_ms"),
                _milliseconds(member, "backward_ms"),
                member.get("batch_size"),
            )
            if profile.key in profiles:
                raise InputError(
                    f"{shown(profile.model)} on {shown(profile.gpu)} stands there twice for one "
                    "batch size.",
                    field="model",
                )
            profiles[profile.key] = profile
    return list(profiles.values())


def _milliseconds(table: dict[str, Any], key: str) -> int:
    return scaled(table[key], 1e6, key, 1, LONGEST_NS, "milliseconds")


def _type(name: object, types: dict[str, GpuType]) -> GpuType:
    known = ALIASES.get(name, name) if isinstance(name, str) else ""
    if known not in types:
        raise InputError(
            f"unknown GPU {shown(name)}.{did_you_mean(str(name), [*types, *ALIASES])}", field="gpu"
        )
    return types[known]
