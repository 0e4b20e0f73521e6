"""Errors name options as the user typed them; numbers are written in the digits 0 to 9."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import headway

WORKLOAD = "job_id,arrival_s,gpus,iterations,model\n1,0,1,2,vgg16\n2,0,4,2,vgg16\n"
SWEEP = 'seeds = [1]\nworkloads = ["w.csv"]\nclusters = ["2x4"]\npolicies = ["paper", "headway"]\n'


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(WORKLOAD)
    Path("s.toml").write_text(SWEEP)


@pytest.mark.parametrize(
    "command",
    [
        "simulate w.csv --cluster 0x4",
        "simulate w.csv --gpu-memory-gb -1",
        "simulate w.csv --gpu no-such-gpu",
        "simulate w.csv --profiles nowhere",
        "simulate w.csv --network nowhere",
        "simulate w.csv --a-ns -1",
        "simulate w.csv --b-ns-per-byte nan",
        "simulate w.csv --eta-ns-per-byte -1",
        "simulate w.csv --seed -1",
        "simulate w.csv --bucket-mb nan",
        "simulate w.csv --acceleration no-such",
        "simulate w.csv --accuracy -1",
        "simulate w.csv --timeline t.parquet --from -1",
        "simulate w.csv --timeline t.parquet --to nan",
        "compare paper --seeds -1",
        "compare w.csv --threads 0",
        "compare w.csv --policies paper",
        "compare w.csv --gpu-memory-gb nan",
        "compare w.csv --accuracy 2",
        "sweep s.toml --threads 0",
        "sweep s.toml --rows nothing",
        "sweep s.toml --columns nothing",
        "sweep s.toml --value nothing",
        "sweep s.toml --baseline nothing",
        "sweep s.toml --on nowhere",
        "report t.parquet -o t.svg --from -1",
        "report t.parquet -o t.svg --to -1",
        "explain w.csv 1 --seed -1",
        "explain w.csv 1 --cluster x",
        "reproduce --seeds 1",
        "reproduce --threads 0",
        "network --nodes 1",
        "network --alpha-ns -1",
        "network --beta-ns-per-byte nan",
        "network --gamma-ns-per-byte -1",
        "network --eta-ns-per-byte -1",
        "serve --executor no-such",
        "serve --slots 0",
        "serve --port 99999",
        "serve --log-level loud",
        "status --certificate w.csv",
        "testbed up --hosts 1",
        "testbed up --rate-mbit 0",
        "testbed up --eta nan",
        "workload import philly w.csv -o o.csv --seed -1",
        "workload import philly w.csv -o o.csv --memory-gb -1",
        "workload import philly w.csv -o o.csv --gpu-memory-gb -1",
        "workload import philly w.csv -o o.csv --max-gpus 0",
        "workload import philly w.csv -o o.csv --from -1",
        "workload import philly w.csv -o o.csv --to nan",
        "workload import philly w.csv -o o.csv --first 0",
        "workload generate --preset no-such",
        "workload generate --seed -1",
        "workload generate --jobs 0",
        "workload generate --span 0",
        "workload generate --mix 1:nan",
        "workload generate --iterations 5",
        "workload generate --models no-such",
        "workload describe w.csv --cluster x",
        "calibrate network --sizes 1",
        "calibrate model vgg16 --device cpu --batch-sizes 0",
    ],
)
def test_an_error_names_the_option_as_the_user_typed_it(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.cli.testbed.check_prerequisites", lambda: None)
    option = [word for word in command.split() if word.startswith("--")][-1]
    outcome = headway(capsys, *command.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"headway: error: {option}: ")
    assert outcome.err.count("\n") == 1
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["s.toml", "w.csv"]


@pytest.mark.parametrize(
    "command",
    [
        "simulate w.csv --seed ٣",
        "simulate w.csv --bucket-mb ٣",
        "simulate w.csv --policy paper@٣",
        "simulate w.csv --placement lwf:٣",
        "simulate w.csv --placement lwf:nan",
        "simulate w.csv --admission srsf:1_0",
        "simulate w.csv --cluster ٣x٤",
        "simulate w.csv --accuracy ٣%",
        "compare paper --seeds ٣",
        "compare paper --seeds ３:５",
        "workload generate --mix ٣:1",
        "workload generate --mix 1:٣",
        "workload generate --iterations 1:٣",
        "calibrate network --repeats ٣ --on x",
        "calibrate network --sizes ٣MB,6MB",
        "calibrate model vgg16 --batch-sizes ٣ --device cpu",
    ],
)
def test_only_the_digits_from_0_to_9_are_digits(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, *command.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert "Traceback" not in outcome.err


PLACEMENT = """
from headway.policies import placement_policy


@placement_policy("only-in-this-file")
def packed(cluster, job, candidates, parameter):
    return True
"""


def test_a_policy_of_another_kind_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.py").write_text(PLACEMENT)
    path = Path("p.py").resolve()
    for option, message in {
        "--priority=lwf:1": "'lwf:1' is a placement policy, not a priority policy. Known: ",
        "--admission=fifo": "'fifo' is a priority policy, not an admission policy. Known: ",
        "--placement=ada-dual": "'ada-dual' is an admission policy, not a placement policy.",
        "--scheduler=ff": "'ff' is a placement policy, not a scheduler. Known: ",
        "--scheduler=srtf": "'srtf' is a priority policy, not a scheduler. ",
        "--scheduler=srsf": "unknown scheduler 'srsf'. Did you mean 'srsf:3'?",
        "--priority=p.py:packed": f"{path}: 'packed' is a placement policy, not a priority policy.",
        "--admission=p.py:only-in-this-file": f"{path}: 'only-in-this-file' is a placement policy, "
        "not an admission policy.",
    }.items():
        outcome = headway(capsys, "simulate", "w.csv", option)
        assert outcome.status == 2
        assert outcome.err.startswith(f"headway: error: {message}"), outcome.err
        assert outcome.err.count("\n") == 1
