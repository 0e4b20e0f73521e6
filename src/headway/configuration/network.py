"""Networks by name and from TOML files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.configuration.tables import Tables
from headway.domain.errors import InputError, did_you_mean, shown
from headway.network.allreduce import Link, network_from_link
from headway.network.contention import NETWORKS, NetworkModel

_LINK_KEYS = ("alpha_ns", "beta_ns_per_byte", "gamma_ns_per_byte")
_NETWORK_KEYS = (
    "a_ns",
    "b_ns_per_byte",
    "eta_ns_per_byte",
    "law",
    "ring_size",
    "algorithm",
    "nodes",
    *_LINK_KEYS,
)

_RENAMED = {
    "contends": 'this key is now `law`: "no-contention" for false, left out for true.',
    "sharing": "this key is now `law`.",
    "servers": "this key is now `ring_size`.",
}
"""Keys of version 0.1."""


def network_from(text: str) -> NetworkModel:
    """Return the network that a name (`10gbe`) or the path of a TOML file describes."""
    if text.endswith(".toml"):
        tables = Tables(text)
        table = tables.table("network", (*_NETWORK_KEYS, *_RENAMED))
        with tables.at("network"):
            return _network(table)
    if text not in NETWORKS:
        raise InputError(
            f"unknown network '{text}', and not the path of a .toml file."
            f"{did_you_mean(text, NETWORKS)}",
            field="network",
        )
    return NETWORKS[text]


def _network(table: dict[str, Any]) -> NetworkModel:
    for key, hint in _RENAMED.items():
        if key in table:
            raise InputError(hint, field=key)
    law, ring_size = table.pop("law", "busiest"), table.pop("ring_size", None)
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
        _check_ring(ring_size, table)
    else:
        for key in table:
            if key not in ("a_ns", "b_ns_per_byte"):
                raise InputError(f"'{key}' needs 'algorithm' too.", field=key)
        for key in ("a_ns", "b_ns_per_byte"):
            if key not in table:
                raise InputError(f"'{key}' is missing.")
        network = NetworkModel(table["a_ns"], table["b_ns_per_byte"], eta)
    return replace(network, law=law, ring_size=ring_size)


def _check_ring(ring_size: object, table: dict[str, Any]) -> None:
    """Refuse to scale, as a ring's, what was computed for another algorithm or other nodes."""
    if ring_size is None:
        return
    if table["algorithm"] != "ring":
        raise InputError(
            f"goes with the algorithm 'ring' alone, not {shown(table['algorithm'])}.",
            field="ring_size",
        )
    if ring_size != table["nodes"]:
        raise InputError(
            f"must equal 'nodes', {table['nodes']}, not {shown(ring_size)}.", field="ring_size"
        )
