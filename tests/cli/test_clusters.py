"""What commands say about types of GPU and estimated times."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import EXAMPLES
from cli.commands import headway

MIXED = str(EXAMPLES / "mixed-cluster.toml")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("w.csv").write_text(
        "job_id,arrival_s,gpus,iterations,model\na,0,1,1,vgg16\nb,1,1,1,resnet50\n"
    )


def test_describe_lists_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    output = headway(capsys, "workload", "describe", "w.csv", "--cluster", MIXED).out
    assert (
        "times estimated, not measured: vgg16 on a100-sxm4; resnet50, vgg16 on sample\n" in output
    )
    assert "GPU hours and load are for v100-sxm2, not for" in output
    assert "estimated" not in headway(capsys, "workload", "describe", "w.csv").out


def test_simulate_lists_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.csv").write_text(
        "job_id,arrival_s,gpus,iterations,model,batch_size\na,0,1,1,vgg16,32\nb,1,1,1,vgg16,16\n"
    )
    output = headway(capsys, "simulate", "b.csv").out
    assert "times estimated, not measured: vgg16 on v100-sxm2\n" in output
    assert "estimated" not in headway(capsys, "simulate", "w.csv").out
