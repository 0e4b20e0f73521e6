"""`headway graph show`, and the ways in which it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import headway
from headway.graphs import Layer, ddp
from headway.workload.graphs import write_graph

MB, MS = 2**20, 10**6


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(ddp([Layer(MS, 2 * MS, 30 * MB)] * 3, 4), "g.json")


SHOWN = """\
g.json: 4 ranks, 16 tasks, 3 messages

messages    ranks each  number  MB in all
all-reduce           4       3       90.0

one iteration                 ms
if messages took no time   9.000
alone                     87.506  on 10gbe, 4 servers with 1 GPU each
  computing                5.000  of the critical path
  all-reduce              82.506  of the critical path

critical path  from (ms)      ms  kind        ranks
forward            0.000   3.000  computing   0
backward-1         3.000   2.000  computing   0
gradients-1        5.000  27.502  all-reduce  all
gradients-2       32.502  27.502  all-reduce  all
gradients-3       60.004  27.502  all-reduce  all
"""


def test_a_graph_is_shown_with_its_critical_path(capsys: pytest.CaptureFixture[str]) -> None:
    # An all-reduce takes 0.669 ms + 0.853 ns/byte * 30 MB = 27.502 ms.
    done = headway(capsys, "graph", "show", "g.json")
    assert (done.status, done.err) == (0, "")
    assert [line.rstrip() for line in done.out.splitlines()] == SHOWN.splitlines()


def test_on_one_server_messages_take_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    done = headway(capsys, "graph", "show", "g.json", "--gpus-per-server", "4")
    assert "alone                     9.000  on 10gbe, 1 server with 4 GPUs\n" in done.out


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_it_is_drawn_to_a_file(suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = headway(capsys, "graph", "show", "g.json", "-o", f"g{suffix}")
    assert (done.status, done.err) == (0, f"Written: g{suffix}\n")
    assert "<svg" in Path(f"g{suffix}").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("none.json", "none.json: No such file or directory."),
        ("g.json -o g.jpg", "g.jpg: must end in .html, .svg, .pdf, .png."),
        ("g.json -o g.json", "g.json: is an input too; give another file"),
        ("g.json -o no/g.svg", "no/g.svg: there is no folder no."),
        ("g.json --gpus-per-server 0", "--gpus-per-server: must be at least 1, not 0."),
        ("g.json --network 10gb", "network: unknown network '10gb'"),
        ("bad.json", "bad.json: the key 'tasks' is missing."),
    ],
)
def test_a_bad_input_is_one_line_and_writes_nothing(
    arguments: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.json").write_text('{"ranks": 1}')
    done = headway(capsys, "graph", "show", *arguments.split())
    assert (done.status, done.out) == (2, "")
    assert expected in done.err
    assert done.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["bad.json", "g.json"]
