"""`headway graph import`, and the ways in which it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import EXAMPLES
from cli.commands import headway
from graphs.imports.chakra_messages import collective, compute, unpack, write_trace
from headway.graphs.imports.chakra import import_chakra
from headway.graphs.imports.roofline import roofline
from headway.graphs.imports.simai import import_simai
from headway.workload.graphs import read_graph


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_chakra_trace_becomes_a_graph_file(capsys: pytest.CaptureFixture[str]) -> None:
    unpack("gpt_dp2pp2", Path())
    done = headway(
        capsys, "graph", "import", "chakra", "gpt_dp2pp2", "--gpu", "h100", "-o", "g.json"
    )
    assert (done.status, done.out) == (0, "")
    assert (
        read_graph("g.json") == import_chakra("gpt_dp2pp2", cost=roofline("h100", None, None)).graph
    )
    assert "2,060 nodes of 4 ranks: 1,960 computations, 34 collectives, 16 sends." in done.err
    assert "all-reduce           2      34    1,929.0\n" in done.err
    assert done.err.endswith("Written: g.json\n")


def test_a_simai_text_becomes_a_graph_on_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(EXAMPLES / "simai" / "moe.txt")
    done = headway(capsys, "graph", "import", "simai", path)
    assert done.status == 0
    Path("g.json").write_text(done.out)
    assert read_graph("g.json") == import_simai(path).graph
    assert "Guessed: the rows are one stage of the pipeline" in done.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("chakra", "t"), "t/t.0.et: node 2 ('n2') is a collective, but the trace has one rank; "),
        (("chakra", "t", "--ranks", "0"), "--ranks: must be at least 1, not 0."),
        (("chakra", "t", "--gpu", "h10"), "--gpu: unknown GPU 'h10'. Did you mean 'h100'?"),
        (("chakra", "none"), "none: No such file or directory."),
        (("simai", "none"), "none: No such file or directory."),
        (("simai", "g.json", "-o", "g.json"), "g.json: is an input too; give another file"),
        (("chakra", "t", "-o", "no/g.json"), "no/g.json: there is no folder no."),
    ],
)
def test_a_bad_input_is_one_line_and_writes_nothing(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(Path("t"), [compute(1), collective(2, after=[1])])
    Path("g.json").write_text("old")
    done = headway(capsys, "graph", "import", *arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"headway: error: {expected}")
    assert done.err.count("\n") == 1
    assert Path("g.json").read_text() == "old"


def test_names_from_a_trace_cannot_control_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_trace(Path("t"), [compute(1, name="\x1b[2J"), compute(2, after=[9], name="\x1b[2J")])
    done = headway(capsys, "graph", "import", "chakra", "t")
    assert done.status == 2
    assert "\x1b" not in done.err
