"""Networks by name or from a TOML file."""

from __future__ import annotations

from headway.domain.errors import InputError, did_you_mean
from headway.network.contention import NETWORKS, NetworkModel


def network_from(text: str) -> NetworkModel:
    """Return the network with a name such as `10gbe`, or from the `[network]` of a `.toml` file."""
    if text.endswith(".toml"):
        from headway.configuration.network_file import read_network

        return read_network(text)
    if text not in NETWORKS:
        raise InputError(
            f"unknown network '{text}', and not the path of a .toml file."
            f"{did_you_mean(text, NETWORKS)}",
            field="network",
        )
    return NETWORKS[text]
