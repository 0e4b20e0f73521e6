"""`headway cluster`, and link loads of what runs on such clusters."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest

from cli.commands import headway
from headway.configuration import cluster_from
from headway.domain.tiers import Tier


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_clos_fabric_is_written_and_simulated_with_its_links(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = "--pods 2 --leaves-per-pod 2 --servers-per-leaf 2 --gpus-per-server 4 --rails 2"
    made = headway(
        capsys, "cluster", "clos", *options.split(), "--oversubscription", "1,2", "-o", "c.toml"
    )
    assert made.status == 0
    assert "8 servers with 32 GPUs; switches: 4 leaf, 2 pod" in made.err
    assert cluster_from("c.toml").tiers == (Tier("leaf", 1, 2), Tier("pod", 2, 4))

    jobs = "job_id,arrival_s,gpus,iterations,model\na,0,32,3,resnet50\n"
    Path("w.csv").write_text(jobs)
    run = headway(capsys, "simulate", "w.csv", "--cluster", "c.toml", "--links", "l.csv")
    assert run.status == 0
    assert max(map(len, run.out.splitlines())) <= 80
    table = run.out[run.out.index("tier ") :].splitlines()
    assert [line.split()[:2] for line in table] == [
        ["tier", "links"],
        ["server", "16"],
        ["leaf", "4"],
        ["pod", "2"],
    ]
    assert "Written: l.csv" in run.err
    size = round(99.2 * 2**20)
    sent = polars.read_csv("l.csv")["bytes"]
    assert sent.dtype == polars.Int64
    assert sent.to_list() == [round(3 * size / 2)] * 16 + [3 * size] * 6

    printed = headway(capsys, "simulate", "w.csv", "--cluster", "c.toml", "--links", "-")
    assert printed.out == Path("l.csv").read_text()


def test_a_cluster_file_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    Path("topo.csv").write_text("ip,DSW,PSW,ASW\na,G,P,S1\nb,G,P,S2\n")
    outcome = headway(capsys, "cluster", "import", "lingjun", "topo.csv")
    assert outcome.out.startswith("# Hosts and switches of the Alibaba Lingjun dataset")
    assert 'switches = ["P/S1", "P"]' in outcome.out
    Path("c.toml").write_text(outcome.out)
    assert cluster_from("c.toml").servers == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "cluster clos --pods 2 --oversubscription 2,x",
            "--oversubscription: must be a number, or one for each tier such as 1,2, not '2,x'.",
        ),
        (
            "cluster clos --pods 2 --oversubscription 1,2,3",
            "--oversubscription: must be one number, or one for each tier (leaf, pod), not 3.",
        ),
        (
            "cluster clos --pods 2 --oversubscription 0.5",
            "--oversubscription: must be from 1 (an uplink carries all that comes from below it) "
            "to 1,000,000, not 0.5.",
        ),
        ("cluster clos --pods 0", "--pods: must be at least 1, not 0."),
        (
            "cluster clos --pods 2 --rails 9",
            "--rails: must be at most the number of GPUs of a server, 8, not 9.",
        ),
        ("cluster import lingjun none.csv", "none.csv: No such file or directory."),
        ("simulate paper --links l.txt", "l.txt: must end in .csv or .parquet."),
        (
            "simulate paper --links l.csv --accuracy 1%",
            "--accuracy leaves tasks out, and --links needs all; choose one.",
        ),
    ],
)
def test_bad_options_are_refused_in_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, *arguments.split())
    assert (outcome.status, outcome.err) == (2, f"headway: error: {message}\n")
    assert not list(Path().iterdir())
