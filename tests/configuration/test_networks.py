"""Networks from TOML files."""

from __future__ import annotations

from pathlib import Path

from headway.configuration import network_from
from headway.network.contention import NetworkModel


def read(tmp_path: Path, *lines: str) -> NetworkModel:
    path = tmp_path / "n.toml"
    path.write_text("\n".join(["[network]", *lines]))
    return network_from(str(path))


def test_the_papers_law_is_the_default(tmp_path: Path) -> None:
    network = read(tmp_path, "a_ns = 5", "b_ns_per_byte = 2")
    assert network == NetworkModel(5, 2.0, 0.0)
    assert (network.law, network.ring_size) == ("busiest", None)


def test_the_law_and_the_ring_size_are_keys(tmp_path: Path) -> None:
    measured = ("a_ns = 5", "b_ns_per_byte = 2", "eta_ns_per_byte = 1")
    assert read(tmp_path, *measured, 'law = "max-min"') == NetworkModel(5, 2.0, 1.0, law="max-min")
    assert read(tmp_path, *measured, "ring_size = 4", 'law = "no-contention"') == NetworkModel(
        5, 2.0, 1.0, law="no-contention", ring_size=4
    )


def test_a_computed_ring_scales_to_other_numbers_of_servers(tmp_path: Path) -> None:
    ring = ('algorithm = "ring"', "alpha_ns = 100", "beta_ns_per_byte = 1", "gamma_ns_per_byte = 1")
    four = read(tmp_path, *ring, "nodes = 4", "ring_size = 4")
    for nodes in (2, 3, 8):
        other = read(tmp_path, *ring, f"nodes = {nodes}")
        assert four.latency_ns(nodes) == other.a_ns
        assert abs(four.byte_weight(nodes) * four.b_ns_per_byte - other.b_ns_per_byte) < 1e-12
