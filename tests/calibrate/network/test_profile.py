"""Network files for simulations, and reports and figures of a fit."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.network.drawing import draw_samples, model
from headway.calibrate.network.figure import draw
from headway.calibrate.network.fit import Fit, fit
from headway.calibrate.network.profile import write_network
from headway.calibrate.network.report import report
from headway.configuration import network_from
from headway.domain.errors import InputError


@pytest.fixture(scope="module")
def found() -> Fit:
    return fit(draw_samples(random.Random(0), model(), outliers=0.03))


def test_a_network_file_can_be_simulated(tmp_path: Path, found: Fit) -> None:
    path = tmp_path / "network.toml"
    write_network(path, found, {"samples": "network.samples.csv"})
    assert network_from(str(path)) == found.network


def test_a_network_file_records_its_origin(tmp_path: Path, found: Fit) -> None:
    path = tmp_path / "network.toml"
    about: dict[str, Any] = {"backend": "gloo", "nodes": ["n0", "n1"], "seed": 3, "rate": 1.5}
    write_network(path, found, about)
    calibration = tomllib.loads(path.read_text())["calibration"]
    own = calibration.pop("fit")
    assert calibration == about
    assert own["a_ns_95"][0] < own["a_ns"] < own["a_ns_95"][1]
    assert found.eta_ns_per_byte is not None
    assert own["eta_ns_per_byte_95"] == pytest.approx(
        [found.eta_ns_per_byte.low, found.eta_ns_per_byte.high], rel=1e-5
    )
    assert own["outliers"] == found.outliers > 0
    assert own["fits"] is True
    assert len(own["cells"]) == len(found.cells)
    assert sum(cell["outliers"] for cell in own["cells"]) == found.outliers
    assert own["remarks"] == []


def test_remarks_are_in_the_network_file(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    write_network(path, fit(draw_samples(random.Random(1), model(), ks=(1,), noise=0.3)), {})
    own = tomllib.loads(path.read_text())["calibration"]["fit"]
    assert "eta_ns_per_byte" not in own
    assert [text.partition(":")[0] for text in own["remarks"]] == [
        "contention-not-measured",
        "noisy",
    ]


VALUES = st.one_of(
    st.text(max_size=60),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.lists(st.text(max_size=30), max_size=6),
)


@given(about=st.dictionaries(st.text(max_size=20).filter(lambda key: key != "fit"), VALUES))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_description_of_a_measurement_reads_back(
    tmp_path: Path, found: Fit, about: dict[str, Any]
) -> None:
    path = tmp_path / "network.toml"
    write_network(path, found, about)
    calibration = tomllib.loads(path.read_bytes().decode())["calibration"]
    del calibration["fit"]
    assert calibration == about
    assert network_from(str(path)) == found.network


def test_a_lone_surrogate_does_not_break_the_file(tmp_path: Path, found: Fit) -> None:
    path = tmp_path / "network.toml"
    write_network(path, found, {"host": "caf\udce9"})
    assert tomllib.loads(path.read_text())["calibration"]["host"] == "caf?"


def test_a_network_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, found: Fit) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        write_network(tmp_path / "none" / "network.toml", found, {})
    assert list(tmp_path.iterdir()) == []


def test_the_report_has_coefficients_cells_outliers_and_the_verdict(found: Fit) -> None:
    text = report(found)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[1:4]] == ["a", "b", "eta"]
    assert "Gbit/s" in lines[2]
    assert "% of b" in lines[3]
    assert len([line for line in lines if line.rstrip().endswith("%")]) == len(found.cells)
    assert f"{found.shots} shots, {found.outliers} outliers left out" in lines
    assert lines[-1].startswith("The model describes this network")


def test_the_report_of_a_bad_fit_says_so_and_why() -> None:
    lots = random.Random(2)
    bad = fit(draw_samples(lots, lambda k, size: model()(k, size) + 5e6 * (k - 1)))
    text = report(bad)
    assert "latency-grows-with-k: " in text
    assert "The model does NOT describe this network" in text
    worst = max(bad.cells, key=lambda cell: abs(cell.residual))
    assert f"The worst cell is k = {worst.k}, {worst.message_bytes / 2**20:.4g} MB: " in text


@pytest.mark.parametrize("ks", [(1,), (1, 2), (1, 3, 8)])
def test_a_figure_is_drawn_and_is_the_same_each_time(tmp_path: Path, ks: tuple[int, ...]) -> None:
    samples = draw_samples(random.Random(3), model(), ks=ks, repeats=5, outliers=0.05)
    for name in ("once.svg", "again.svg"):
        draw(fit(samples), samples, tmp_path / name)
    once = (tmp_path / "once.svg").read_bytes()
    assert once.startswith(b"<?xml")
    assert once == (tmp_path / "again.svg").read_bytes()
