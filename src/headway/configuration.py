"""Clusters and networks from TOML files, with errors that name the line."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from typing import Any, TypeVar

from headway.domain.cluster import Cluster, gigabytes
from headway.domain.errors import InputError, did_you_mean
from headway.domain.power import V100, gpu_power
from headway.files import open_input
from headway.network.allreduce import Link, network_from_link
from headway.network.contention import NETWORKS, NetworkModel

Made = TypeVar("Made")

LARGEST_FILE = 2**20

_CLUSTER_KEYS = {
    "servers",
    "gpus_per_server",
    "gpu_memory_gb",
    "gpu",
    "gpu_idle_w",
    "gpu_busy_w",
}
_LINK_KEYS = {"alpha_ns", "beta_ns_per_byte", "gamma_ns_per_byte"}
_NETWORK_KEYS = {
    "a_ns",
    "b_ns_per_byte",
    "eta_ns_per_byte",
    "contends",
    "algorithm",
    "nodes",
    *_LINK_KEYS,
}


def cluster_from(text: str, gpu_memory_gb: float | None = None, gpu: str | None = None) -> Cluster:
    """Return the cluster that a shape (`16x4`) or the path of a TOML file describes.

    Args:
        text: The shape or the path.
        gpu_memory_gb: Memory of a GPU, instead of the file's or 16.
        gpu: The kind of GPU, such as `v100`, whose watts count instead of the file's.
    """
    if not text.endswith(".toml"):
        power = V100 if gpu is None else gpu_power(gpu)
        return Cluster.parse(text, 16 if gpu_memory_gb is None else gpu_memory_gb, power)
    return _read(text, "cluster", _CLUSTER_KEYS, lambda table: _cluster(table, gpu_memory_gb, gpu))


def network_from(text: str) -> NetworkModel:
    """Return the network that a name (`10gbe`) or the path of a TOML file describes."""
    if text.endswith(".toml"):
        return _read(text, "network", _NETWORK_KEYS, _network)
    if text not in NETWORKS:
        raise InputError(
            f"unknown network '{text}', and not the path of a .toml file."
            f"{did_you_mean(text, NETWORKS)}",
            field="network",
        )
    return NETWORKS[text]


def _cluster(table: dict[str, Any], gpu_memory_gb: float | None, gpu: str | None) -> Cluster:
    for key in ("servers", "gpus_per_server"):
        if key not in table:
            raise InputError(f"'{key}' is missing.")
    memory = table.get("gpu_memory_gb", 16) if gpu_memory_gb is None else gpu_memory_gb
    power = gpu_power(table["gpu"]) if "gpu" in table else V100
    idle_w, busy_w = table.get("gpu_idle_w", power.idle_w), table.get("gpu_busy_w", power.busy_w)
    if gpu is not None:
        idle_w, busy_w = gpu_power(gpu).idle_w, gpu_power(gpu).busy_w
    memory_bytes = gigabytes(memory, "gpu_memory_gb")
    return Cluster(table["servers"], table["gpus_per_server"], memory_bytes, idle_w, busy_w)


def _network(table: dict[str, Any]) -> NetworkModel:
    contends = table.pop("contends", True)
    if not isinstance(contends, bool):
        raise InputError(f"must be true or false, not {contends!r}.", field="contends")
    eta = table.pop("eta_ns_per_byte", 0.0)
    if "algorithm" in table:
        for key in ("nodes", "alpha_ns", "beta_ns_per_byte"):
            if key not in table:
                raise InputError(f"'algorithm' needs '{key}' too.", field="algorithm")
        for key in ("a_ns", "b_ns_per_byte"):
            if key in table:
                raise InputError(f"'{key}' follows from 'algorithm'; give one of them.", field=key)
        link = Link(**{key: value for key, value in table.items() if key in _LINK_KEYS})
        network = network_from_link(str(table["algorithm"]), table["nodes"], link, eta)
    else:
        for key in table:
            if key not in ("a_ns", "b_ns_per_byte"):
                raise InputError(f"'{key}' needs 'algorithm' too.", field=key)
        for key in ("a_ns", "b_ns_per_byte"):
            if key not in table:
                raise InputError(f"'{key}' is missing.")
        network = NetworkModel(table["a_ns"], table["b_ns_per_byte"], eta)
    return network if contends else network.without_contention()


def read_toml(path: str) -> tuple[dict[str, Any], str]:
    """Return what a TOML file holds, and its text."""
    with open_input(path) as stream:
        data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise InputError(f"larger than {LARGEST_FILE:,} bytes.", source=path)
    try:
        text = data.decode()
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("not UTF-8 text.", source=path, line=line) from None
    except tomllib.TOMLDecodeError as error:
        raise _toml_error(error, path) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not TOML that can be read: {error}.", source=path) from None


def _read(path: str, name: str, keys: set[str], make: Callable[[dict[str, Any]], Made]) -> Made:
    """Read one table of a TOML file and make something of it."""
    document, text = read_toml(path)
    for key in document:
        if key not in ("cluster", "network"):
            raise InputError(
                f"unknown table or key.{did_you_mean(key, ('cluster', 'network'))}", field=key
            ).at(path, *_locate(text, None, key))
    table = document.get(name)
    if not isinstance(table, dict):
        raise InputError(f"there is no table [{name}].", source=path)
    try:
        for key in table:
            if key not in keys:
                raise InputError(f"unknown key.{did_you_mean(key, keys)}", field=key)
        return make(dict(table))
    except InputError as error:
        place = _locate(text, name, error.field) if error.field else _locate(text, None, name)
        raise error.at(os.fspath(path), *place) from None


def _toml_error(error: tomllib.TOMLDecodeError, path: str) -> InputError:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
    if match is None or match[2] is None:
        return InputError(f"not TOML: {match[1] if match else error}.", source=path)
    return InputError(
        f"not TOML: {match[1]}.", source=path, line=int(match[2]), column=int(match[3])
    )


def _locate(text: str, table: str | None, key: str) -> tuple[int | None, int | None]:
    """Return the line and column of `key` in [table], or of the table [key] itself."""
    current = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*(\w+)", line)
        if header:
            current = header[1]
            if table is None and current == key:
                return number, header.start(1) + 1
        entry = re.match(rf"\s*[\"']?({re.escape(key)})[\"']?\s*[.=]", line)
        if entry and current == table:
            return number, entry.start(1) + 1
    return None, None
