"""The arguments of `headway calibrate model`, and the names of devices."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from headway.calibrate.models.command import add_arguments, run
from headway.calibrate.models.devices import gpu_name
from headway.domain.errors import InputError


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([*arguments, "--device", "cpu"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet5"], "unknown model 'resnet5'. Did you mean 'resnet50'?"),
        (["vgg16", "all"], "two of the models are called 'vgg16'; give one of them."),
        (["absent.py:f"], "absent.py: no such file."),
        (["no_such_module:f"], "cannot import module 'no_such_module': ModuleNotFoundError"),
        (["own.py:g"], "own.py: has no function 'g'. Known: f."),
        (["bad.py:f"], "bad.py, line 2, column 5: SyntaxError: invalid syntax"),
        (["raises.py:f"], "raises.py, line 1: ZeroDivisionError: division by zero"),
        (["vgg16", "--batch-sizes", "0"], "--batch-sizes: must be at least 1, not 0."),
        (["vgg16", "--batch-sizes", "1,,2"], "--batch-sizes: must be comma-separated values"),
        (["vgg16", "--batch-sizes", "8,8"], "--batch-sizes: has a duplicate value: '8,8'."),
        (["vgg16", "--batch-sizes", "x"], "--batch-sizes: must be a whole number, not 'x'."),
        (["vgg16", "--precisions", "fp16"], "--precisions: unknown precision 'fp16'."),
        (["vgg16", "--precisions", "tf32"], "--precisions: tf32 needs an NVIDIA GPU."),
        (
            ["vgg16", "--optimizer", "adam"],
            "--optimizer: unknown optimizer 'adam'. Did you mean 'adamw'",
        ),
        (["vgg16", "--repeats", "1"], "--repeats: must be at least 2, not 1."),
        (["vgg16", "--warm-up", "0"], "--warm-up: must be at least 1, not 0."),
        (["vgg16", "--bucket-mb", "much"], "--bucket-mb: must be a number of MB, not 'much'."),
        (["vgg16", "--bucket-mb", "nan"], "--bucket-mb: must be a finite number of MB"),
        (["vgg16", "--gpu", " "], "--gpu: must not be empty."),
        (["vgg16", "-o", "absent/models.toml"], "there is no folder absent."),
    ],
)
def test_an_invalid_argument_is_refused_before_measuring(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("def f(batch_size):\n    raise ValueError\n")
    Path("bad.py").write_text("\nx = = 3\n")
    Path("raises.py").write_text("1 / 0\n")
    with pytest.raises(InputError) as caught:
        run(options(*arguments))
    assert message in str(caught.value)
    assert not Path("models.toml").exists()


@pytest.mark.parametrize(
    ("board", "name"),
    [
        ("Tesla V100-SXM2-16GB", "v100-sxm2"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200-sxm5"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090"),
        ("", "gpu"),
    ],
)
def test_a_board_is_named_as_clusters_name_its_type(board: str, name: str) -> None:
    assert gpu_name(board) == name
