"""The fit of a GPU type to samples, and the type that ships with Headway."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

import headway.llm
from headway.calibrate.command import run
from headway.calibrate.gpus.fit import fitted_model, predicted_layer_ns, predicted_ns, write_model
from headway.calibrate.gpus.grid import full_grid
from headway.calibrate.gpus.samples import read_layer_samples, read_samples, write_samples
from headway.domain.errors import InputError
from headway.llm.gpu_file import gpu_from, read_gpu

MEASURED = Path(headway.llm.__file__).parent / "measured"


def test_a_fit_finds_the_parameters_that_samples_were_made_with() -> None:
    true = replace(
        gpu_from("a100"),
        gemm_efficiency=0.66,
        gemm_extra_depth=100.0,
        memory_efficiency=0.7,
        kernel_ns=3000.0,
        launch_ns=4000.0,
        attention_efficiency=0.45,
        unaligned_efficiency=0.25,
    )
    some = full_grid().operations[::4]
    samples = [replace(one, time_ns=max(1, round(predicted_ns(true, one)))) for one in some]
    start = replace(
        gpu_from("h200"),
        multiprocessors=true.multiprocessors,
        peak_flops_per_s=true.peak_flops_per_s,
        memory_bytes_per_s=true.memory_bytes_per_s,
    )
    found = fitted_model(start, samples, "found", "samples")
    fields = ("gemm_efficiency", "memory_efficiency", "attention_efficiency", "launch_ns")
    for field in (*fields, "unaligned_efficiency"):
        assert getattr(found, field) == pytest.approx(getattr(true, field), rel=0.03)
    assert found.kernel_ns == pytest.approx(true.kernel_ns, rel=0.2)
    assert (found.name, found.source, found.estimate) == ("found", "samples", False)
    assert "unaligned_efficiency" not in found.estimates
    odd = {32003, 50257}
    others = [one for one in samples if not odd & {one.m, one.n, one.k}]
    found = fitted_model(start, others, "found", "samples")
    assert found.unaligned_efficiency == start.unaligned_efficiency
    assert "unaligned_efficiency" in found.estimates


def test_the_shipped_h200_is_the_fit_to_its_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "h200.toml"
    samples = str(MEASURED / "h200.samples.csv")
    run(["gpu", "--fit-only", samples, "--gpu", "h200", "-o", str(output)])
    shipped, found = gpu_from("h200"), read_gpu(str(output))
    assert found == replace(shipped, source=found.source)
    assert "layer backward" in capsys.readouterr().out


def test_the_shipped_h200_predicts_whole_layers() -> None:
    """Layers were measured as a check: the fit did not use them."""
    model = gpu_from("h200")
    errors = []
    for one in read_layer_samples(MEASURED / "h200.layers.csv"):
        predicted = sum(predicted_layer_ns(model, one))
        errors.append(abs(predicted / (one.forward_ns + one.backward_ns) - 1))
    assert statistics.fmean(errors) < 0.07
    assert max(errors) < 0.2


def test_a_gpu_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "gpu.toml")
    write_model(gpu_from("h200"), path)
    assert read_gpu(path) == gpu_from("h200")


def test_too_few_samples_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "few.samples.csv")
    write_samples(path, read_samples(MEASURED / "h200.samples.csv")[:3])
    with pytest.raises(InputError, match="too few samples"):
        run(["gpu", "--fit-only", path, "--gpu", "h200", "-o", str(tmp_path / "gpu.toml")])
