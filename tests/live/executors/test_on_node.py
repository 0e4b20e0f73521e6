"""What is sent to the nodes of a Ray cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
