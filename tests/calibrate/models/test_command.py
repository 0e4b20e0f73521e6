"""`headway calibrate model` on the CPU, with users' own models."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.terminals import on_terminal
from headway.calibrate.models.command import add_arguments, run
from headway.configuration import profiles_from
from headway.domain.errors import InputError
from waiting import PATIENCE_S

pytestmark = pytest.mark.torch

SOURCE = str(Path(__file__).parents[3] / "src")

MODELS = """
import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(400, 700)
        self.outer = nn.Linear(700, 1)
        self.unused = nn.Linear(400, 400)

    def forward(self, x, y=None):
        return self.outer(self.inner(x).relu()).mean()


class Output:
    def __init__(self, loss):
        self.loss = loss


class Wrapped(Tiny):
    def forward(self, x):
        return Output(super().forward(x))


class Vector(Tiny):
    def forward(self, x):
        return self.inner(x)


class Detached(Tiny):
    def forward(self, x):
        return super().forward(x).detach()


class Fickle(Tiny):
    passes = 0

    def forward(self, x):
        self.passes += 1
        if self.passes > 4:
            return self.inner(x).mean()
        return super().forward(x)


def tiny(batch_size):
    return Tiny(), (torch.randn(batch_size, 400),)


def by_name(batch_size):
    return Tiny(), {"x": torch.randn(batch_size, 400), "y": torch.zeros(1)}


def wrapped(batch_size):
    return Wrapped(), (torch.randn(batch_size, 400),)


def vector(batch_size):
    return Vector(), (torch.randn(batch_size, 400),)


def detached(batch_size):
    return Detached(), (torch.randn(batch_size, 400),)


def fickle(batch_size):
    return Fickle(), (torch.randn(batch_size, 400),)


def nothing(batch_size):
    pass


def three(batch_size):
    return 1, 2, 3


def no_model(batch_size):
    return "model", ()


def bare_tensor(batch_size):
    return Tiny(), torch.randn(batch_size, 400)


def with_text(batch_size):
    return Tiny(), ("text",)


def of_another_shape(batch_size):
    return Tiny(), (torch.randn(batch_size, 3),)


def broken(batch_size):
    return batch_size / 0


def hungry(batch_size):
    if batch_size > 8:
        torch.empty(2**60, dtype=torch.uint8)
    return tiny(batch_size)
"""
BROKEN_LINE = MODELS.splitlines().index("    return batch_size / 0") + 1


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(MODELS)
    return tmp_path


FEW = ("--warm-up", "1", "--repeats", "3")


def calibrate(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as users do, with few passes on the processor."""
    return calibrate_without_gpu(home, "--device", "cpu", *arguments)


def calibrate_without_gpu(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as users do, with few passes, where PyTorch finds no GPU."""
    return subprocess.run(
        [sys.executable, "-m", "headway.calibrate", "model", *FEW, *arguments],
        cwd=home,
        env={**os.environ, "PYTHONPATH": SOURCE, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def models_of(path: Path) -> list[dict[str, Any]]:
    models = tomllib.loads(path.read_text())["model"]
    assert isinstance(models, list)
    return models


def test_every_configuration_becomes_a_table_in_the_file(home: Path) -> None:
    done = calibrate(home, "own.py:tiny", "--batch-sizes", "4,2", "--precisions", "fp32,bf16")
    assert done.returncode == 0, done.stderr
    models = models_of(home / "models.toml")
    assert [(m["name"], m["batch_size"], m["precision"]) for m in models] == [
        ("tiny", 4, "fp32"),
        ("tiny", 2, "fp32"),
        ("tiny-bf16", 4, "bf16"),
        ("tiny-bf16", 2, "bf16"),
    ]
    # Unused parameters have no gradients and are not sent.
    gradient_bytes = 4 * (400 * 700 + 700 + 700 + 1)
    for model in models:
        assert model["gpu"] == "cpu"
        assert model["gradient_mb"] * 2**20 == gradient_bytes
        assert model["parameters"] == 400 * 700 + 700 + 700 + 1 + 400 * 400 + 400
        assert model["repeats"] == 3
        for name in ("forward_ms", "backward_ms"):
            low, high = model[f"{name}_quartiles"]
            assert 0 < low <= model[name] <= high
        assert sum(model["bucket_mb"]) == model["gradient_mb"]
        assert len(model["bucket_ready_ms"]) == len(model["bucket_mb"]) == 1
        assert model["bucket_ready_ms"][0] > 0
    assert "[4/4] tiny, batch 2, bf16: forward" in done.stderr
    assert "4 of 4 written to models.toml" in done.stderr


def test_without_a_gpu_it_says_that_it_measures_the_cpu(home: Path) -> None:
    done = calibrate_without_gpu(home, "own.py:tiny")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("note: PyTorch finds no GPU, so this measures the CPU.")
    assert [model["gpu"] for model in models_of(home / "models.toml")] == ["cpu"]
    asked = calibrate_without_gpu(home, "own.py:tiny", "--device", "cpu")
    assert "note:" not in asked.stderr
    refused = calibrate_without_gpu(home, "own.py:tiny", "--device", "cuda")
    assert (refused.returncode, refused.stderr) == (
        2,
        "headway: error: --device: PyTorch finds no GPU; use --device cpu to measure the CPU.\n",
    )


def test_a_terminal_shows_what_is_measured_and_the_time_left(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.calibrate.progress._EVERY_S", 0.0)
    monkeypatch.chdir(home)
    words = ["calibrate", "model", "own.py:tiny", "--device", "cpu", "--batch-sizes", "1,3", *FEW]
    lines = on_terminal(monkeypatch, 80, *words)
    found = [re.fullmatch(r" *(\d+)%, (?:.* left, )?measuring tiny, batch (.*)", x) for x in lines]
    shown = [(int(match[1]), match[2]) for match in found if match]
    # A warm-up pass, three for each of three measurements, and one to find layers; the larger batch
    # counts three times.
    assert [text for _, text in shown] == ["1, fp32 (1 of 2)"] * 12 + ["3, fp32 (2 of 2)"] * 12
    assert [share for share, _ in shown] == [
        *(0, 2, 5, 7, 9, 11, 14, 16, 18, 20, 23, 25),
        *(25, 32, 39, 45, 52, 59, 66, 73, 80, 86, 93, 100),
    ]
    kept = [line for line in lines if line.startswith("[")]
    assert re.fullmatch(r"\[1/2\] tiny, batch 1, fp32: forward .* layers; \d+ s left", kept[0])
    assert re.fullmatch(r"\[2/2\] tiny, batch 3, fp32: forward .* layers", kept[1])


def test_memory_is_that_of_weights_gradients_batch_and_activations(home: Path) -> None:
    calibrate(home, "own.py:tiny", "--batch-sizes", "10")
    (model,) = models_of(home / "models.toml")
    weights = model["parameters"] * 4
    gradients = model["gradient_mb"] * 2**20
    batch, activations = 10 * 400 * 4, 10 * 700 * 4
    assert model["memory_mb"] * 2**20 == weights + gradients + batch + activations


def test_layers_add_up_to_the_passes_and_the_optimizer_is_recorded(home: Path) -> None:
    calibrate(home, "own.py:tiny", "--optimizer", "sgd")
    (model,) = models_of(home / "models.toml")
    names, *columns = zip(*model["layers"], strict=True)
    forward, backward, sizes, _ = map(sum, columns)
    assert names == ("inner Linear", "outer Linear")
    assert forward == pytest.approx(model["forward_ms"], abs=2e-6)
    assert backward == pytest.approx(model["backward_ms"], abs=2e-6)
    assert sizes == model["gradient_mb"]
    assert (model["optimizer"], len(model["layer_scale"])) == ("sgd", 2)
    assert model["optimizer_ms"] > 0
    (profile,) = profiles_from([str(home / "models.toml")])[0].profiles
    assert [layer.name for layer in profile.layers] == list(names)
    assert profile.optimizer_ns == round(model["optimizer_ms"] * 1e6)


def test_the_bucket_of_the_last_layer_is_ready_first(home: Path) -> None:
    calibrate(home, "own.py:tiny", "--bucket-mb", "0.001")
    (model,) = models_of(home / "models.toml")
    sizes = [round(size * 2**20) for size in model["bucket_mb"]]
    assert sizes == [4 + 4 * 700, 4 * 700, 4 * 400 * 700]
    first, *others = model["bucket_ready_ms"]
    assert first <= min(others)


def test_a_batch_may_be_passed_by_name_and_a_loss_inside_an_object(home: Path) -> None:
    done = calibrate(home, "own.py:by_name", "own:wrapped", "--gpu", "h100-sxm5", "-o", "x.toml")
    assert done.returncode == 0, done.stderr
    found = models_of(home / "x.toml")
    assert [(m["name"], m["gpu"], m["batch_size"]) for m in found] == [
        ("by_name", "h100-sxm5", 16),
        ("wrapped", "h100-sxm5", 16),
    ]
    versions = tomllib.loads((home / "x.toml").read_text())["calibration"]
    assert {"measured_at", "device", "torch", "python", "headway", "host"} <= versions.keys()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("own.py:nothing", "own.py:nothing: returned nothing; it must return (model, batch)"),
        ("own.py:three", "returned a tuple of 3; it must return (model, batch)"),
        ("own.py:no_model", "returned a value of type str as the model; it must return"),
        ("own.py:bare_tensor", "returned a value of type Tensor as the batch; it must return"),
        ("own.py:with_text", "a batch that holds a value of type str; it must return"),
        ("own.py:vector", "the model's loss has the shape (16, 700); it must be a scalar."),
        ("own.py:detached", "the model's loss depends on no parameter"),
        ("own.py:fickle", "gives gradients to different parameters from pass to pass"),
        ("own.py:broken", f"own.py, line {BROKEN_LINE}: ZeroDivisionError: division by zero"),
        ("own.py:of_another_shape", "own.py, line 14: RuntimeError: mat1 and mat2 shapes"),
    ],
)
def test_an_invalid_definition_is_explained(home: Path, target: str, message: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    output = home / "models.toml"
    few = ["--device", "cpu", "--warm-up", "1", "--repeats", "3"]
    with pytest.raises(InputError) as caught:
        run(parser.parse_args([str(home / target), *few, "-o", str(output)]))
    assert message in str(caught.value)
    assert not output.exists()


def test_an_error_is_one_line_and_exit_code_two(home: Path) -> None:
    done = calibrate(home, "own.py:broken")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("headway: error: ")
    assert last.endswith(f"own.py, line {BROKEN_LINE}: ZeroDivisionError: division by zero")
    assert "Traceback" not in done.stderr


def test_a_model_that_fails_or_does_not_fit_does_not_stop_the_others(home: Path) -> None:
    done = calibrate(home, "own.py:broken", "own.py:hungry", "--batch-sizes", "4,16")
    assert done.returncode == 0, done.stderr
    assert [(m["name"], m["batch_size"]) for m in models_of(home / "models.toml")] == [
        ("hungry", 4)
    ]
    assert "broken, batch 4, fp32: left out with the rest of this model:" in done.stderr
    assert "hungry, batch 16, fp32: left out: out of memory" in done.stderr


def test_nothing_is_written_if_nothing_fits(home: Path) -> None:
    done = calibrate(home, "own.py:hungry", "--batch-sizes", "16")
    assert done.returncode == 2
    assert "nothing was measured: no configuration fits" in done.stderr
    assert not (home / "models.toml").exists()


def test_an_interrupted_run_writes_nothing(home: Path) -> None:
    command = [sys.executable, "-m", "headway.calibrate", "model", "--device", "cpu"]
    running = subprocess.Popen(
        [*command, "own.py:tiny", "--repeats", "1000000"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": SOURCE},
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        assert running.stderr is not None
        first = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        _, rest = running.communicate(timeout=PATIENCE_S)
    assert first.startswith("configurations to measure")
    assert running.returncode == 130
    assert rest.strip() == "headway: interrupted"
    assert not list(home.glob("*.toml*"))


def test_nothing_but_pytorch_is_needed(home: Path) -> None:
    absent = ("numba", "polars", "typer", "rich", "matplotlib", "numpy")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
        "from headway.calibrate.command import main; sys.exit(main())"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            "model",
            "own.py:tiny",
            "--repeats",
            "2",
            "--device",
            "cpu",
        ],
        cwd=home,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(models_of(home / "models.toml")) == 1
