"""Clusters, networks and profiles from TOML files, with errors that name the line."""

from headway.configuration.cluster import cluster_from
from headway.configuration.network import network_from
from headway.configuration.profiles import profiles_from

__all__ = ["cluster_from", "network_from", "profiles_from"]
