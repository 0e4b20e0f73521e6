"""The agent on a node of a Ray cluster."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.live.executors import node_tools, shim
from headway.live.executors.log_tail import LogTail
from headway.live.executors.ray.node_agent import NodeAgent
from headway.live.executors.shim import Log
from live.executors.helpers import QUICK
from waiting import eventually

SEND = """
import pathlib, sys
from ray import cloudpickle
from headway.live.executors import node_tools, shim
from headway.live.executors.ray import cluster, node_agent
for module in cluster.SENT_MODULES:
    cloudpickle.register_pickle_by_value(module)
source = pathlib.Path(shim.__file__).read_text()
sent = node_agent.NodeAgent, node_tools.gpu_memories_bytes, source
pathlib.Path(sys.argv[1]).write_bytes(cloudpickle.dumps(sent))
"""
RECEIVE = """
import pathlib, sys, time
sys.modules["headway"] = None
from ray import cloudpickle
kind, gpu_memories_bytes, source = cloudpickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
gpu_memories_bytes()
agent = kind(source, "127.0.0.1")
port = agent.first_free_port([20_000, 20_001, 20_002])
code = "import os; print(os.environ['GLOO_SOCKET_IFNAME'], os.environ['MINE'])"
rank = {"rank": 3, "folder": ".", "environment": {"MINE": "x"}}
rank["command"] = [sys.executable, "-c", code]
agent.start({"ranks": [rank], "grace_s": 1.0, "port": port})
output, report = b"", {"number": 0}
while True:
    report = agent.report(report["number"])
    output += report["output"][3]
    if report["outcome"] is not None:
        break
    time.sleep(0.01)
agent.release()
assert (report["started"], report["outcome"], report["port"]) == (True, (0, ""), port), report
assert output == b"lo x\\n", output
"""


def test_an_agent_works_on_a_node_without_headway(tmp_path: Path) -> None:
    for script in (SEND, RECEIVE):
        words = [sys.executable, "-c", script, str(tmp_path / "sent")]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeAgent]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", node_tools.FOLDER_VARIABLE):
        monkeypatch.setenv(name, "lo")
    made = NodeAgent(Path(shim.__file__).read_text(), "127.0.0.1")
    yield made
    made.stop(0.1)
    eventually(lambda: not made.is_running())
    made.release()


def first_report(agent: NodeAgent) -> dict[str, Any]:
    """Return the first report to a new scheduler."""
    return agent.report(0)


def plan_of(code: str) -> dict[str, Any]:
    rank = {"rank": 0, "folder": "/", "environment": {}, "command": [*QUICK, code]}
    return {"ranks": [rank], "grace_s": 1.0, "port": 1}


def test_a_lost_report_is_repeated_and_the_outcome_comes_last(
    agent: NodeAgent, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists('{go}'): time.sleep(0.01)\n"
    agent.start(plan_of(f"print('one')\n{waits}print('two')"))
    eventually(lambda: first_report(agent)["output"] == {0: b"one\n"})
    lost = agent.report(1)
    assert lost["number"] == 2
    go.touch()
    eventually(lambda: not agent.is_running())
    again = agent.report(1)
    assert (again["number"], again["output"], again["outcome"]) == (2, lost["output"], None)
    said, told = b"one\n" + again["output"][0], again
    while told["outcome"] is None:
        told = agent.report(told["number"])
        said += told["output"][0]
    assert (said, told["outcome"]) == (b"one\ntwo\n", (0, ""))


def test_a_new_scheduler_gets_all_output_that_is_left(agent: NodeAgent) -> None:
    lines = 3 * shim.LOG_BYTES // 2 // 2**16
    code = f"import os\nfor at in range({lines}): os.write(1, b'%65535d\\n' % at)"
    agent.start(plan_of(code))
    eventually(lambda: not agent.is_running())
    for _ in range(2):
        said = b""
        told: dict[str, Any] = {"number": 0, "outcome": None}
        while told["outcome"] is None:
            told = agent.report(told["number"])
            said += told["output"][0]
        assert [int(line) for line in said.split()] == list(range(lines))


def test_an_agent_that_the_next_scheduler_finds_idle_never_starts_its_ranks(
    agent: NodeAgent,
) -> None:
    told = first_report(agent)
    assert (told["started"], told["outcome"]) == (False, None)
    agent.start(plan_of("pass"))
    assert first_report(agent)["started"] is False


def test_ranks_get_the_certificate_in_a_private_file(agent: NodeAgent) -> None:
    code = (
        "import os; path = os.environ['HEADWAY_GATE_CERT']; print(path); print(open(path).read())"
    )
    agent.start(plan_of(code), "the certificate")
    eventually(lambda: first_report(agent)["outcome"] is not None)
    path, text = first_report(agent)["output"][0].decode().split("\n")[:2]
    assert text == "the certificate"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700


def test_ranks_that_are_stopped_at_once_end_as_stopped(agent: NodeAgent) -> None:
    agent.start(plan_of("import time; time.sleep(600)"))
    agent.stop(1.0)
    eventually(lambda: first_report(agent)["outcome"] is not None)
    assert first_report(agent)["outcome"] == (shim.STOPPED, "stopped")


def test_a_late_reader_begins_with_the_older_file(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", max_bytes=100)
    for number in range(15):
        log.write(b"%9d\n" % number)
    tail = LogTail(tmp_path / "log")
    assert [int(line) for line in tail.read(1000).split()] == list(range(15))
    # Both files are replaced before the next read: the rest follows, nothing is repeated.
    for number in range(15, 40):
        log.write(b"%9d\n" % number)
    heard = [int(line) for line in tail.read(1000).split()]
    assert heard == [*range(15, 20), *range(20, 40)]
    tail.close()
    log.close()
