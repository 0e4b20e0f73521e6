"""`--profiles`: models with other profiles than the paper's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import headway
from headway.configuration.profiles import shipped_names

MODELS = "".join(
    f'[[model]]\nname = "{name}"\ngpu = "h100"\nbatch_size = 16\nforward_ms = 1000\n'
    "backward_ms = 2000\ngradient_mb = 0\nmemory_mb = 10\n"
    for name in ("vgg16", "resnet50", "inception-v3", "lstm-ptb", "mine")
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("m.toml").write_text(MODELS)
    Path("w.csv").write_text("job_id,arrival_s,gpus,iterations,model\na,0,1,5,mine\n")


def test_simulate_takes_times_from_the_given_set(capsys: pytest.CaptureFixture[str]) -> None:
    done = headway(capsys, "simulate", "w.csv", "--profiles", "m.toml", "--json", "-", "-q")
    assert json.loads(done.out)["jobs"][0]["finish_ns"] == 15 * 10**9


def test_a_model_unknown_to_the_set_names_the_models_that_are_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = headway(capsys, "simulate", "w.csv")
    assert done.status == 2
    assert "w.csv, line 2, column 5 (model): unknown model 'mine'. Known: inception" in done.err
    done = headway(capsys, "simulate", "w.csv", "--profiles", "m.tml")
    assert done.status == 2
    assert "profiles: unknown set 'm.tml'." in done.err


def test_describe_generate_and_graph_use_the_set(capsys: pytest.CaptureFixture[str]) -> None:
    set_of = ("--profiles", "m.toml")
    told = headway(capsys, "workload", "describe", "w.csv", *set_of).out
    assert "mine" in told
    told = headway(capsys, "workload", "graph", "w.csv", "a", *set_of).out
    assert "forward 1000 ms" in told
    made = headway(capsys, "workload", "generate", *set_of, "--models", "mine", "--jobs", "1").out
    header, row = made.splitlines()
    assert header.endswith(
        "model,batch_size,forward_ms,backward_ms,gradient_mb,memory_mb,measured_on"
    )
    assert row.endswith("mine,16,1000,2000,0,10,h100-sxm5")


def test_compare_takes_times_from_the_given_set(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = ("compare", "w.csv", "--policies", "ff+srsf:1,ls+srsf:1", "--json", "-")
    done = headway(capsys, *files, "--profiles", "m.toml")
    assert done.status == 0, done.err
    assert "15.0" in done.err


def test_every_shipped_set_is_listed_with_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    told = headway(capsys, "workload", "profiles").out
    for name in shipped_names():
        assert f"{name} on {name}-sxm" in told
    row = ["inception-v3", "16", "34.90", "52.40", "103.0", "3,291", "18"]
    assert row in [line.split() for line in told.splitlines()]
    assert max(map(len, told.splitlines())) <= 80
    assert "mine" in headway(capsys, "workload", "profiles", "m.toml").out


def test_a_set_of_several_types_is_listed_with_the_type_of_each_profile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = Path("m.toml").read_text()
    Path("two.toml").write_text(text + text.replace("h100", "a100"))
    told = headway(capsys, "workload", "profiles", "two.toml").out
    title, header, *_ = told.splitlines()
    assert (title, header.split()[1]) == ("two.toml: times in ms, sizes in MB", "GPU")
    assert {line.split()[1] for line in told.splitlines()[2:]} == {"h100-sxm5", "a100-sxm4"}
