"""`headway calibrate network` without a measurement: fits, and errors."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import headway
from headway.calibrate.network.samples import Sample, write_samples
from headway.configuration import network_from


def write_synthetic(path: Path, sizes: int = 6, most: int = 3, repeats: int = 6) -> None:
    """Write samples of a network with a = 1 ms, b = 1 ns/byte, eta = 0.3 ns/byte."""
    lots, samples, shot = random.Random(1), [], 0
    for _ in range(repeats):
        for k in range(1, most + 1):
            for power in range(sizes):
                size = 2 ** (18 + power)
                mean = 1e6 + k * size + (k - 1) * 0.3 * size
                samples.append(Sample(shot, k, size, 0, round(mean * lots.gauss(1, 0.01))))
                shot += 1
    write_samples(path, samples)


def test_existing_samples_are_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_synthetic(tmp_path / "mine.csv")
    done = headway(capsys, "calibrate", "network", "--fit-only", "mine.csv", "-o", "net.toml")
    assert done.status == 0
    network = network_from("net.toml")
    assert network.b_ns_per_byte == pytest.approx(1, rel=0.02)
    assert network.eta_ns_per_byte == pytest.approx(0.3, rel=0.1)
    assert "The model describes this network" in done.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.csv", "net.svg", "net.toml"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--fit-only", "few.csv"], "few.csv: a and b need shots with k = 1 of at least two sizes"),
        (["--fit-only", "none.csv"], "none.csv: No such file or directory."),
        (["--fit-only", "few.csv", "--on", "testbed"], "--fit-only measures nothing"),
        (["--fit-only", "few.csv", "-o", "net.csv"], "must end in .toml"),
        (["--fit-only", "few.csv", "-o", "no/net.toml"], "there is no folder no"),
        ([], "say where to measure with --on"),
        (["--on", "testbed:unknown"], "there is no testbed 'unknown'"),
        (["--on", "testbed:Un known"], "must be 1 to 16 of"),
        (["--on", "somewhere"], "must be HOST:PORT"),
        (["--on", "127.0.0.1:1"], "no Ray cluster there: Connection refused."),
        (["--on", "testbed", "--sizes", "1MB"], "at least twice the smallest"),
        (["--on", "testbed", "--port", "0"], "--port: must be at least 1"),
    ],
)
def test_an_error_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_synthetic(tmp_path / "few.csv", sizes=1)
    done = headway(capsys, "calibrate", "network", *words)
    assert done.status == 2
    assert problem in done.err
    assert len(done.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["few.csv"]


def without(module: str, tmp_path: Path) -> dict[str, str]:
    """Return an environment in which a module is not installed."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / f"{module}.py").write_text(f"raise ImportError('no {module}', name='{module}')\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(hidden), *sys.path])}


def test_without_torch_it_says_how_to_install_it(tmp_path: Path) -> None:
    environment = without("torch", tmp_path)
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for words, given in ((("--on", "testbed"), {}), ((), place)):
        done = subprocess.run(
            [sys.executable, "-m", "headway.calibrate", "network", *words],
            env={**environment, **given},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.startswith("headway: error: PyTorch is not installed: pip install")
        assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["hidden"]


def test_without_matplotlib_there_is_no_figure(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "mine.csv")
    done = subprocess.run(
        [sys.executable, "-m", "headway.calibrate", "network", "--fit-only", "mine.csv"],
        env=without("matplotlib", tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "No figure: matplotlib is not installed; draw it elsewhere" in done.stderr
    assert not (tmp_path / "network.svg").exists()
    assert (tmp_path / "network.toml").exists()


def test_without_root_there_is_no_testbed() -> None:
    code = (
        "import os, sys, torch.distributed, headway.calibrate.command as command\n"
        "import headway.calibrate.network.on_testbed\n"
        "os.setuid(65534)\n"
        "sys.argv = ['headway', 'network', '--on', 'testbed']\n"
        "sys.exit(command.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/tmp", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "needs root" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_measuring_needs_nothing_but_torch() -> None:
    code = (
        "import sys, headway.calibrate.command, headway.testbed\n"
        "known = {'numba', 'polars', 'typer', 'rich', 'numpy', 'matplotlib', 'torch'}\n"
        "print(sorted(known & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
