"""What is sent to the nodes of a Ray cluster."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.live.executors import on_node, shim
from headway.live.executors.on_node import Keeper
from headway.live.executors.shim import Log
from headway.live.executors.tail import Tail
from live.executors.driving import QUICK
from testbed.looking import eventually

SEND = """
import pathlib, sys
from ray import cloudpickle
from headway.live.executors import on_node, ray_cluster
for module in ray_cluster.SENT:
    cloudpickle.register_pickle_by_value(module)
source = pathlib.Path(ray_cluster.shim.__file__).read_text()
sent = on_node.Keeper, on_node.gpu_memories_bytes, source
pathlib.Path(sys.argv[1]).write_bytes(cloudpickle.dumps(sent))
"""
RECEIVE = """
import pathlib, sys, time
sys.modules["headway"] = None
from ray import cloudpickle
kind, gpu_memories_bytes, source = cloudpickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
gpu_memories_bytes()
keeper = kind(source, "127.0.0.1")
port = keeper.first_free([20_000, 20_001, 20_002])
code = "import os; print(os.environ['GLOO_SOCKET_IFNAME'], os.environ['MINE'])"
rank = {"rank": 3, "folder": ".", "environment": {"MINE": "x"}}
rank["command"] = [sys.executable, "-c", code]
keeper.start({"ranks": [rank], "grace_s": 1.0, "port": port})
said, told = b"", {"number": 0}
while True:
    told = keeper.look(told["number"])
    said += told["output"][3]
    if told["ended"] is not None:
        break
    time.sleep(0.01)
keeper.leave()
assert (told["started"], told["ended"], told["port"]) == (True, (0, ""), port), told
assert said == b"lo x\\n", said
"""


def test_a_keeper_works_on_a_node_without_headway(tmp_path: Path) -> None:
    for script in (SEND, RECEIVE):
        words = [sys.executable, "-c", script, str(tmp_path / "sent")]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", on_node.FOLDER_VARIABLE):
        monkeypatch.setenv(name, "lo")
    made = Keeper(Path(shim.__file__).read_text(), "127.0.0.1")
    yield made
    made.stop(0.1)
    assert made._shim is None or eventually(lambda: has_ended(made))
    made.leave()


def look(keeper: Keeper) -> dict[str, Any]:
    """Look as a new scheduler does."""
    return keeper.look(0)


def plan_of(code: str) -> dict[str, Any]:
    rank = {"rank": 0, "folder": "/", "environment": {}, "command": [*QUICK, code]}
    return {"ranks": [rank], "grace_s": 1.0, "port": 1}


def has_ended(keeper: Keeper) -> bool:
    return keeper._shim is not None and keeper._shim.poll() is not None


def test_an_answer_that_was_lost_is_given_again_and_the_end_comes_last(
    keeper: Keeper, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists('{go}'): time.sleep(0.01)\n"
    keeper.start(plan_of(f"print('one')\n{waits}print('two')"))
    assert eventually(lambda: look(keeper)["output"] == {0: b"one\n"})
    lost = keeper.look(1)
    assert lost["number"] == 2
    go.touch()
    assert eventually(lambda: has_ended(keeper))
    again = keeper.look(1)
    assert (again["number"], again["output"], again["ended"]) == (2, lost["output"], None)
    said, told = b"one\n" + again["output"][0], again
    while told["ended"] is None:
        told = keeper.look(told["number"])
        said += told["output"][0]
    assert (said, told["ended"]) == (b"one\ntwo\n", (0, ""))


def test_a_new_scheduler_gets_all_output_that_is_left(keeper: Keeper) -> None:
    lines = 3 * shim.LOG_BYTES // 2 // 2**16
    code = f"import os\nfor at in range({lines}): os.write(1, b'%65535d\\n' % at)"
    keeper.start(plan_of(code))
    assert eventually(lambda: has_ended(keeper))
    for _ in range(2):
        said = b""
        told: dict[str, Any] = {"number": 0, "ended": None}
        while told["ended"] is None:
            told = keeper.look(told["number"])
            said += told["output"][0]
        assert [int(line) for line in said.split()] == list(range(lines))


def test_what_was_not_started_when_the_next_scheduler_looked_never_starts(keeper: Keeper) -> None:
    told = look(keeper)
    assert (told["started"], told["ended"]) == (False, None)
    keeper.start(plan_of("pass"))
    assert look(keeper)["started"] is False


def test_ranks_find_the_certificate_that_was_sent_in_a_file_of_their_own(keeper: Keeper) -> None:
    code = (
        "import os; path = os.environ['HEADWAY_GATE_CERT']; print(path); print(open(path).read())"
    )
    keeper.start(plan_of(code), "the certificate")
    assert eventually(lambda: look(keeper)["ended"] is not None)
    path, text = look(keeper)["output"][0].decode().split("\n")[:2]
    assert text == "the certificate"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700


def test_one_that_is_stopped_at_once_says_that_it_was_stopped(keeper: Keeper) -> None:
    keeper.start(plan_of("import time; time.sleep(600)"))
    keeper.stop(1.0)
    assert eventually(lambda: look(keeper)["ended"] is not None)
    assert look(keeper)["ended"] == (shim.STOPPED, "stopped")


def test_a_reader_that_comes_late_begins_with_the_older_file(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", most_bytes=100)
    for number in range(15):
        log.write(b"%9d\n" % number)
    tail = Tail(tmp_path / "log")
    assert [int(line) for line in tail.read(1000).split()] == list(range(15))
    # Both files are new by the next time: what is left follows, and nothing twice.
    for number in range(15, 40):
        log.write(b"%9d\n" % number)
    heard = [int(line) for line in tail.read(1000).split()]
    assert heard == [*range(15, 20), *range(20, 40)]
    tail.close()
    log.close()
