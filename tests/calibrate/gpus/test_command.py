"""`headway calibrate gpu`: arguments and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.calibrate.command import run
from headway.calibrate.gpus.grid import full_grid, small_grid
from headway.calibrate.gpus.samples import (
    MOVED_VALUES,
    Sample,
    read_layer_samples,
    read_samples,
    write_samples,
)
from headway.domain.errors import InputError
from headway.llm.gpu_file import read_gpu


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", " "], "--gpu: must not be empty."),
        (["--minutes", "0"], "--minutes: must be above 0"),
        (["--minutes", "x"], "--minutes: must be a number, not 'x'."),
        (["--fit-only", "absent.samples.csv"], "--gpu: must be given with --fit-only."),
        (["--fit-only", "absent.samples.csv", "--gpu", "h200"], "absent.samples.csv: No such file"),
        (["--fit-only", "bad.csv", "--gpu", "h200"], "bad.csv, line 1: columns must be kind,name"),
        (["--fit-only", "wrong.csv", "--gpu", "h200"], "wrong.csv, line 2, kind: unknown kind"),
        (["--fit-only", "absent.samples.csv", "--gpu", "x9"], "absent.samples.csv: No such file"),
        (["--fit-only", "empty.csv", "--gpu", "x9"], "--like: must be given for a new type"),
        (["--fit-only", "empty.csv", "--gpu", "x9", "--like", "y9"], "gpu: unknown GPU 'y9'"),
        (["-o", "absent/gpu.toml"], "there is no folder absent."),
        (["-o", ""], "--output: must name a file, not ''."),
        (["-o", ".."], "..: is a folder, not a file."),
    ],
)
def test_an_invalid_argument_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("a,b\n1,2\n")
    header = "kind,name,precision,batch,m,n,k,time_ns\n"
    Path("empty.csv").write_text(f"{header}gemm,forward,bf16,1,1,1,1,5\n")
    Path("wrong.csv").write_text(f"{header}gem,forward,bf16,1,1,1,1,5\n")
    with pytest.raises(InputError) as caught:
        run(["gpu", *arguments])
    assert message in str(caught.value)
    assert not Path("gpu.toml").exists()


def test_samples_read_back_as_they_were_written(tmp_path: Path) -> None:
    grid = small_grid()
    write_samples(tmp_path / "a.csv", grid.operations)
    write_samples(tmp_path / "b.csv", grid.layers)
    assert tuple(read_samples(tmp_path / "a.csv")) == grid.operations
    assert tuple(read_layer_samples(tmp_path / "b.csv")) == grid.layers


def test_the_full_grid_has_every_kind_of_operation_once() -> None:
    operations = full_grid().operations
    assert len(set(operations)) == len(operations)
    assert {one.name for one in operations if one.kind == "elementwise"} == set(MOVED_VALUES)
    assert {one.precision for one in operations} == {"bf16", "fp16", "tf32", "fp32"}


def test_flops_and_bytes_of_operations() -> None:
    gemm = Sample("gemm", "forward", "bf16", 2, 3, 5, 7)
    assert (gemm.flops, gemm.moved_bytes) == (2 * 2 * 3 * 5 * 7, 2 * 2 * (21 + 35 + 15))
    attention = Sample("attention", "backward", "bf16", 4, 16, 16, 8)
    assert attention.flops == 5 * 2 * 4 * 16 * 16 * 8
    assert Sample("elementwise", "adam", "fp32", 1, 10, 10, 1).moved_bytes == 7 * 4 * 100


@pytest.mark.torch
@pytest.mark.slow
def test_the_cpu_is_measured_like_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    output = tmp_path / "cpu.toml"
    try:
        run(["gpu", "--device", "cpu", "--grid", "small", "--gpu", "mine", "-o", str(output)])
    finally:
        torch.set_num_threads(threads)
    found = read_gpu(str(output))
    assert (found.name, found.estimate) == ("mine", False)
    assert found.peak_flops_per_s > 0
    assert len(read_samples(tmp_path / "cpu.samples.csv")) == len(small_grid().operations)
    assert len(read_layer_samples(tmp_path / "cpu.layers.csv")) == len(small_grid().layers)
    captured = capsys.readouterr()
    assert "gemm forward" in captured.out
    assert "written to" in captured.err
