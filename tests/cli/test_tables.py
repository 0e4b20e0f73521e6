"""Every command that prints a table, on terminals of 80 and of 60 columns: nothing is lost."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import headway.cli
from builders import EXAMPLES
from cli.commands import headway as run_command
from cli.terminals import on_terminal
from headway import testbed
from headway.cli.live import cluster, jobs, top, what_if
from headway.live.api.views import state_view
from headway.live.core.core import Core
from headway.live.core.events import JobSpec, JobSubmitted, NodeUp
from headway.network.contention import NetworkModel
from headway.testbed.inspection import HostStatus
from headway.text_table import cells_wide
from workload.traces.samples import sample

SAMPLES = EXAMPLES.parent / "benchmarks/fidelity/data/4x200-eta0.3.samples.csv"
WORKLOAD = """\
job_id,arrival_s,gpus,iterations,model
a-job-with-a-rather-long-name,0,4,3000,vgg16
b,0.1,4,300,resnet50
c,0.3,8,60,lstm-ptb
d,7,2,6,vgg16
"""
SWEEP = """\
seeds = "0:2"
workloads = [{ name = "drawn", recipe = "paper", jobs = 6, iterations = [2, 9], mix = { 2 = 1 } }]
clusters = ["3x2", "2x4"]
policies = ["paper", "headway", "ff+srsf:1@25"]
"""

MEASURED = """\
gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor,data,pipeline,iteration_ms
8,32,4,1024,16,24,1024,2,2,2,219.732754
4,16,2,2048,16,24,1024,1,4,1,304.165703
64,512,8,3072,32,30,2048,1,64,1,3566.5
"""

COMMANDS = {
    "simulate": f"simulate w.csv --cluster {EXAMPLES}/mixed-cluster.toml",
    "compare": f"compare w.csv --policies paper,headway,{EXAMPLES}/my_policies.py:packed+srsf:1",
    "compare several": "compare paper --seeds 2 --policies lwf:1+ada-srsf@25,rand+srsf:2",
    "sweep": "sweep --show runs",
    "sweep by rows": "sweep --show runs --rows cluster,policy",
    "explain": "explain run.parquet b",
    "graph_show": "graph show g.json",
    "policies": "policies",
    "network": "network",
    "reproduce": "reproduce",
    "testbed": "testbed status",
    "traces": "workload import philly {philly} -o imported.csv",
    "workload describe": "workload describe w.csv",
    "workload profiles": "workload profiles",
    "live jobs": "status",
    "live cluster": "nodes",
    "live what_if": "whatif --add-nodes 1 --submit gpus=2,iterations=900,model=vgg16",
    "model": "model list",
    "validate": "validate measured.csv",
    "calibrate": f"calibrate network --fit-only {SAMPLES} -o network.toml",
}


class _Client:
    """A scheduler with jobs that wait, run and have ended."""

    def status(self) -> dict[str, Any]:
        return {
            "policy": "least-delay+srtf+ada-dual@50",
            "network": "10gbe",
            "executor": "local",
            "nodes": 2,
            "slots": 8,
            "workers": 12,
            "ungated": [],
            "grants": 1_234_567,
            "jobs": {"queued": 1, "running": 1, "done": 2},
            "policy_problem": "",
            "storage_problem": "",
            "log_problem": "",
        }

    def jobs(self, limit: int = 100, _: str | None = None) -> list[dict[str, Any]]:
        now = time.time() - 0.5
        why = "waits for 4 free slots with 12,345 MB each; the most free is 2 slots on node-1"
        rows = [
            ("1041", "queued", 8, now - 400, None, None, now + 7_400, why),
            ("1040", "running", 4, now - 4_000, now - 3_601, None, now + 3_601, "computing"),
            ("1039", "failed", 16, now - 90_000, now - 80_000, now - 70_000, None, "exit code 1"),
        ]
        return [
            {
                "job_id": job_id,
                "state": state,
                "stuck": False,
                "iterations": 1_234_567,
                "submitted_at": submitted,
                "started_at": started,
                "ended_at": ended,
                "predicted_finish_at": predicted,
                "why": text,
                "reason": text,
                "spec": {
                    "gpus": gpus,
                    "iterations": 2_000_000,
                    "name": "[bold]resnet\x1b[31m",
                    "command": ["python", "train.py"],
                },
            }
            for job_id, state, gpus, submitted, started, ended, predicted, text in rows[:limit]
        ]

    def state(self) -> dict[str, Any]:
        core = Core("paper", NetworkModel())
        core.handle(NodeUp(at_ns=0, node="gpu-node-0.example.org", gpus=4, memory_bytes=1 << 34))
        for number in range(4):
            spec = JobSpec(command=("train.py",), gpus=2, iterations=10_000 * (number + 1))
            core.handle(JobSubmitted(at_ns=number, job_id=f"104{number}", spec=spec))
        state = asyncio.run(state_view(core, lambda: "paper", lambda: 10**9))
        return cast(dict[str, Any], msgspec.to_builtins(state))

    def nodes(self) -> list[dict[str, Any]]:
        slots = [{"jobs": ["1040", f"10{index}"], "computing": "1040"} for index in range(8)]
        waiting = [{"job_id": str(1000 + index), "why": "the port is busy"} for index in range(6)]
        return [
            {
                "node": f"gpu-node-{index}.example.org",
                "draining": index == 1,
                "memory_bytes": 81_920 << 20,
                "slots": slots,
                "messages": waiting,
                "waiting": waiting,
            }
            for index in range(2)
        ]


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the files that the commands read, once."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "w.csv").write_text(WORKLOAD)
    (folder / "sweep.toml").write_text(SWEEP)
    (folder / "measured.csv").write_text(MEASURED)
    return folder


@pytest.fixture(autouse=True)
def _here(_made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(_made)
    if not Path("runs").exists():
        assert run_command(capsys, "sweep", "sweep.toml", "-o", "runs").status == 0
        layers = f"{EXAMPLES}/layers/gpt.csv"
        words = ["graph", "ddp", layers, "--ranks", "4", "-o", "g.json"]
        assert run_command(capsys, *words).status == 0
        assert run_command(capsys, "simulate", "w.csv", "--timeline", "run.parquet").status == 0
    for module in (cluster, jobs, top, what_if):
        monkeypatch.setattr(module, "connect", lambda *_: _Client())
    hosts = [HostStatus(index, f"10.111.0.{index}", 1_000.5, None, (1, 2)) for index in range(1, 5)]
    status = testbed.Status(testbed.Testbed(), tuple(hosts), ())
    monkeypatch.setattr("headway.testbed.statuses", lambda: [status])
    verdicts = {"the paper's setting": "confirmed", "other settings": "not confirmed"}
    findings = {
        name: [
            SimpleNamespace(
                claim="LWF-1 has the lowest average JCT of all placements on every seed",
                verdict=verdict,
            )
        ]
        for name, verdict in verdicts.items()
    }
    monkeypatch.setattr(
        "headway.experiments.reproduction.reproduce",
        lambda *_: SimpleNamespace(findings=findings, report="reproduction/report.html"),
    )


def _words(command: str) -> list[str]:
    return [
        part
        for word in command.split()
        for part in (sample("philly") if word == "{philly}" else [word])
    ]


def _numbers(lines: list[str]) -> Counter[str]:
    """Count the figures: whole words with a digit but no letter."""
    words = [word for line in lines for word in line.split()]
    return Counter(word for word in words if re.fullmatch(r"[^a-zA-Z]*\d[^a-zA-Z]*", word))


def _assert_complete(printed: list[str], uncut: list[str], width: int) -> None:
    assert [line for line in printed if cells_wide(line) > width] == []
    letters = (Counter("".join("".join(lines).split())) for lines in (uncut, printed))
    expected, found = letters
    assert expected - found == Counter(), "characters are missing"
    missing = {number for number in _numbers(uncut) if number not in _numbers(printed)}
    assert missing == set(), "figures are missing, or were divided"


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_narrow_terminal_loses_nothing(
    name: str,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = _words(COMMANDS[name])
    outcome = run_command(capsys, *words)
    assert outcome.status == 0
    uncut = [*outcome.out.splitlines(), *outcome.err.splitlines()]
    # Only the first of the two runs compiles, and they take different times.
    uncut = [line for line in uncut if not line.startswith(("engine time", "Compiling"))]
    printed = on_terminal(monkeypatch, width, *words)
    _assert_complete(printed, uncut, width)


def test_top_shows_what_status_and_nodes_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [run_command(capsys, name).out.split("\n\n")[-1] for name in ("status", "nodes")]
    printed = on_terminal(monkeypatch, 120, "top", quit_with=b"q", height=80)
    without_reasons = [
        line for table in tables for line in table.splitlines() if ": the p" not in line
    ]
    _assert_complete(printed, without_reasons, 120)


def test_nodes_name_the_jobs_that_send_and_wait_as_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run_command(capsys, "nodes").out
    assert printed.count("jobs 1000 1001 1002 1003 1004 1005") == 4


def test_top_keeps_names_and_reasons_beside_their_jobs_on_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = on_terminal(monkeypatch, 80, "top", quit_with=b"q", height=40)
    assert [line for line in printed if cells_wide(line) > 80] == []
    (header,) = [line for line in printed if line.startswith("job ")]
    titles = " ".join(header.split())
    assert titles == "job state GPUs iterations ends name and status"
    rows = [line for line in printed if line.startswith("10")]
    assert all(r"[bold]resnet" in line for line in rows)
    assert len(rows) == len(_Client().jobs())


def test_every_command_that_prints_a_table_is_covered() -> None:
    folder = Path(headway.cli.__file__).parent
    modules = {
        path.relative_to(folder).with_suffix("")
        for path in folder.rglob("*.py")
        if "TextTable(" in path.read_text()
    }
    covered = {" ".join(path.parts) for path in modules} - {"console"}
    first = {name.removesuffix(" several").removesuffix(" by rows") for name in COMMANDS}
    assert covered - first - {"workload"} == set()


def test_control_characters_are_shown_and_not_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = " ".join(on_terminal(monkeypatch, 200, "status"))
    assert r"[bold]resnet\x1b[31m" in printed
