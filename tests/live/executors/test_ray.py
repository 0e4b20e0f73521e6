"""Jobs on a Ray cluster whose two nodes are hosts of a testbed."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.live.executors import Attempt
from live.executors.helpers import job
from live.executors.ray_on_testbed import ADDRESS, ONE, TWO, RayOnTestbed
from live.executors.test_testbed_nodes import MEET
from waiting import eventually

pytestmark = [pytest.mark.ray, pytest.mark.root, pytest.mark.slow]

SLEEP = "import time; print('begun'); time.sleep(600)"


def names(nodes: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(node["name"] for node in nodes)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_jobs_run_on_the_requested_nodes(ray_cluster: RayOnTestbed, tmp_path: Path) -> None:
    with ray_cluster.scheduler(tmp_path / "state") as scheduler:
        nodes = scheduler.next_report("nodes")
        assert names(nodes) == [ONE, TWO]
        assert {node["name"]: node["gpus"] for node in nodes} == {ONE: 2, TWO: 3}
        assert all(node["memory_bytes"] > 2**20 for node in nodes)
        good, bad, wrong = (Attempt(name, 1) for name in ("good", "bad", "wrong"))
        scheduler.launch(good, job(MEET), f"{TWO}:0", f"{ONE}:1")
        assert scheduler.next_end().code == 0
        assert (tmp_path / "state" / "good.1" / "rank-0.log").read_text() == f"{ONE} eth0\n"

        fails = "import os, sys, time\nprint('no')\n" + (
            "sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(600)"
        )
        scheduler.launch(bad, job(fails, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        ended = scheduler.next_end()
        assert (ended.attempt, ended.code) == (bad, 3)
        assert ended.reason == "rank 1 exited with 3: no"
        assert ray_cluster.processes_with(str(tmp_path)) == []

        scheduler.launch(wrong, job("pass", folder="/no/such"), f"{TWO}:0")
        ended = scheduler.next_end()
        assert (ended.code, ended.reason) == (
            127,
            "rank 0 could not start: No such file or directory: /no/such",
        )
        eventually(lambda: ray_cluster.left() == [])


def test_a_gate_that_other_nodes_cannot_reach_is_an_error(
    ray_cluster: RayOnTestbed, tmp_path: Path
) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f'[serve]\nfolder = "state"\n[executor]\nkind = "ray"\naddress = "{ADDRESS}"')
    done = ray_cluster.run("serve", "--config", str(config))
    assert done.returncode == 2
    assert done.stderr == (
        f"headway: error: gate_host: node {TWO} cannot reach the gate on 127.0.0.1; give an address"
        " of this machine that all nodes can reach.\n"
    )


def test_ranks_end_when_their_agent_is_killed(ray_cluster: RayOnTestbed, tmp_path: Path) -> None:
    with ray_cluster.scheduler(tmp_path / "state") as scheduler:
        scheduler.launch(Attempt("a", 1), job(SLEEP, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        eventually(lambda: len(ray_cluster.processes_with(str(tmp_path))) == 2)
        # Of another test's attempt there may be an agent too, which is ending.
        rank = ray_cluster.processes_with(str(tmp_path))[0]
        os.kill(parent(parent(rank)), signal.SIGKILL)
        ended = scheduler.next_end()
        assert (ended.code, ended.reason) == (255, "its processes on a node are gone")
        eventually(lambda: ray_cluster.processes_with(str(tmp_path)) == [])
        eventually(lambda: ray_cluster.left() == [])
        assert not [told for told in scheduler.reports if told["kind"] == "node lost"]


def test_a_lost_node_ends_its_jobs_everywhere_and_may_rejoin(
    ray_cluster: RayOnTestbed, tmp_path: Path
) -> None:
    with ray_cluster.scheduler(tmp_path / "state") as scheduler:
        scheduler.next_report("nodes")
        scheduler.launch(Attempt("a", 1), job(SLEEP, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        eventually(lambda: len(ray_cluster.processes_with(str(tmp_path))) == 2)
        ray_cluster.kill(2)
        ended = scheduler.next_end()
        assert (ended.code, ended.reason) == (255, f"node {TWO} was lost")
        assert {"kind": "node lost", "value": TWO} in scheduler.reports
        assert ray_cluster.processes_with(str(tmp_path)) == []
        ray_cluster.start(2)
        assert scheduler.next_report("node up")["name"] == TWO
        scheduler.launch(Attempt("a", 2), job("pass"), f"{TWO}:0")
        assert scheduler.next_end().code == 0
        # The loss of an idle node is noticed when it rejoins under the same name.
        ray_cluster.kill(2)
        ray_cluster.start(2)
        assert scheduler.next_report("node up")["name"] == TWO
