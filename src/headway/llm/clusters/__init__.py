"""Networks of clusters as TOML files: one whose iterations were measured, and estimates."""

from importlib import resources

VTRAIN_NETWORK = resources.files("headway.llm.clusters") / "a100-4x200.toml"
"""vTrain's: 4 x 200 Gbit/s InfiniBand for each server."""

_NETWORKS = {"h100": "h100-8x400", "h200": "h100-8x400", "v100": "v100-4x100"}


def usual_network(gpu: str) -> str:
    """Return the file of the network that servers with a type of GPU usually have.

    Of types that do not ship with Headway, it is that of the A100.
    """
    if gpu not in _NETWORKS:
        return str(VTRAIN_NETWORK)
    return str(resources.files("headway.llm.clusters") / f"{_NETWORKS[gpu]}.toml")
