"""The table `[network]`: measured a and b, or a link and the algorithm that uses it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import msgspec

from headway.configuration.conversion import Number, TomlTable
from headway.configuration.document import Document
from headway.configuration.files import DescriptionFile
from headway.domain.errors import InputError
from headway.domain.limits import MAX_GPUS
from headway.network.allreduce import Link, network_from_link
from headway.network.contention import NetworkModel

_log = logging.getLogger("headway")

Count = Annotated[int, msgspec.Meta(ge=2, le=MAX_GPUS)]


class NetworkTable(TomlTable):
    """Either `a_ns` and `b_ns_per_byte`, or `algorithm` with `nodes` and the link's figures."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "contends": "is now part of 'law': write law = \"no-contention\" for contends = false.",
        "sharing": "is now called 'law'.",
        "servers": "is now called 'ring_size'.",
    }

    a_ns: int | None = None
    b_ns_per_byte: Number | None = None
    eta_ns_per_byte: Number = 0.0
    law: str = "busiest"
    ring_size: Count | None = None
    algorithm: str | None = None
    nodes: Count | None = None
    alpha_ns: Number | None = None
    beta_ns_per_byte: Number | None = None
    gamma_ns_per_byte: Number | None = None


class NetworkFile(DescriptionFile, kw_only=True):
    """A file with a `[network]`."""

    network: NetworkTable


def read_network(path: str) -> NetworkModel:
    """Read the network that a file describes."""
    document = Document.read(path)
    file = document.convert(NetworkFile)
    table = file.network
    if _fits_badly(file.calibration):
        _log.warning(
            "%s: its calibration says that the model does not describe this network (fits = "
            "false); take results as rough.",
            path,
        )
    with document.at("network"):
        return _model(table)


def network_from_table(content: Mapping[str, Any]) -> NetworkModel:
    """Return the network that the content of a `[network]` describes."""
    document = Document({"network": content})
    return _model(document.convert(NetworkTable, "network"))


def _model(table: NetworkTable) -> NetworkModel:
    network = _measured(table) if table.algorithm is None else _computed(table)
    return replace(network, law=table.law, ring_size=table.ring_size)


def _fits_badly(calibration: object) -> bool:
    """Return whether a calibration says that the model does not fit; it is otherwise not read."""
    fit = calibration.get("fit") if isinstance(calibration, dict) else None
    return isinstance(fit, dict) and fit.get("fits") is False


def _measured(table: NetworkTable) -> NetworkModel:
    for key in ("nodes", "alpha_ns", "beta_ns_per_byte", "gamma_ns_per_byte"):
        if getattr(table, key) is not None:
            raise InputError("needs 'algorithm' too.", field=key)
    if table.a_ns is None or table.b_ns_per_byte is None:
        missing = "a_ns" if table.a_ns is None else "b_ns_per_byte"
        raise InputError(f"'{missing}' is missing.")
    return NetworkModel(table.a_ns, table.b_ns_per_byte, table.eta_ns_per_byte)


def _computed(table: NetworkTable) -> NetworkModel:
    """Compute a and b from the link, `nodes` nodes and the algorithm."""
    for key in ("a_ns", "b_ns_per_byte"):
        if getattr(table, key) is not None:
            raise InputError("follows from 'algorithm'; give only one of them.", field=key)
    assert table.algorithm is not None
    if table.nodes is None or table.alpha_ns is None or table.beta_ns_per_byte is None:
        needed = ("nodes", "alpha_ns", "beta_ns_per_byte")
        missing = next(key for key in needed if getattr(table, key) is None)
        raise InputError(f"needs '{missing}' too.", field="algorithm")
    if table.ring_size is not None:
        # Figures of another algorithm, or for other nodes, do not scale as a ring's do.
        if table.algorithm != "ring":
            raise InputError(
                f"is for the algorithm 'ring' only, not '{table.algorithm}'.", field="ring_size"
            )
        if table.ring_size != table.nodes:
            raise InputError(
                f"must equal 'nodes', {table.nodes}, not {table.ring_size}.", field="ring_size"
            )
    link = Link(table.alpha_ns, table.beta_ns_per_byte, table.gamma_ns_per_byte or 0.0)
    return network_from_link(table.algorithm, table.nodes, link, table.eta_ns_per_byte)
