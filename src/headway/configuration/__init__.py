"""Clusters and networks from TOML files, with errors that name the line."""

from headway.configuration.cluster import cluster_from
from headway.configuration.network import network_from
from headway.configuration.tables import read_toml

__all__ = ["cluster_from", "network_from", "read_toml"]
