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
    "contends",
    "sharing",
    "servers",
    "algorithm",
    "nodes",
    *_LINK_KEYS,
)


def network_from(text: str) -> NetworkModel:
    """Return the network that a name (`10gbe`) or the path of a TOML file describes."""
    if text.endswith(".toml"):
        tables = Tables(text)
        table = tables.table("network", _NETWORK_KEYS)
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
    contends = table.pop("contends", True)
    if not isinstance(contends, bool):
        raise InputError(f"must be true or false, not {contends!r}.", field="contends")
    sharing, servers = table.pop("sharing", "busiest"), table.pop("servers", None)
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
        _check_ring(servers, table)
    else:
        for key in table:
            if key not in ("a_ns", "b_ns_per_byte"):
                raise InputError(f"'{key}' needs 'algorithm' too.", field=key)
        for key in ("a_ns", "b_ns_per_byte"):
            if key not in table:
                raise InputError(f"'{key}' is missing.")
        network = NetworkModel(table["a_ns"], table["b_ns_per_byte"], eta)
    return replace(network, contends=contends, sharing=sharing, servers=servers)


def _check_ring(servers: object, table: dict[str, Any]) -> None:
    """Refuse to scale, as a ring's, what was computed for another algorithm or other nodes."""
    if servers is None:
        return
    if table["algorithm"] != "ring":
        raise InputError(
            f"goes with the algorithm 'ring' alone, not {shown(table['algorithm'])}.",
            field="servers",
        )
    if servers != table["nodes"]:
        raise InputError(
            f"must be as many as 'nodes', {table['nodes']}, not {shown(servers)}.", field="servers"
        )
