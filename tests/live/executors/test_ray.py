"""Jobs on a Ray cluster whose two nodes are hosts of a testbed."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway import testbed as testbeds
from headway.live.executors import Attempt
from live.executors.executor_process import ExecutorProcess
from live.executors.helpers import job, processes_with
from live.executors.test_testbed_nodes import MEET
from waiting import eventually

pytestmark = [pytest.mark.ray, pytest.mark.root, pytest.mark.slow]

ADDRESS = "10.77.0.1:6400"
ONE, TWO = "10.77.0.1", "10.77.0.2"
SLEEP = "import time; print('begun'); time.sleep(600)"


class RayOnTestbed:
    """Ray on the hosts of a testbed."""

    def __init__(self, bed: testbeds.Testbed, folder: str) -> None:
        token = Path(folder, "token")
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        self.bed, self._folder = bed, folder
        self._environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "TMPDIR": folder,
        }
        self.nodes: dict[int, subprocess.Popen[str]] = {}

    def start(self, host: int) -> None:
        """Start a Ray node on a host; host 1 is the head."""
        head = ["--head", "--port", "6400", "--include-dashboard", "false"]
        joins = ["--address", ADDRESS, "--num-gpus", "3"]  # Claimed: it has none.
        words = [*head, "--temp-dir", self._folder] if host == 1 else joins
        line = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", *words),
            *("--node-ip-address", self.bed.address(host), "--num-cpus", "2"),
            *("--object-store-memory", str(80 * 2**20), "--block"),
        ]
        node = self.nodes[host] = subprocess.Popen(
            testbeds.command(self.bed, host, line),
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert node.stdout is not None
        said = []
        for text in node.stdout:
            said.append(text)
            if "--block" in text:
                return
        pytest.fail("".join(said))

    def kill(self, host: int) -> None:
        """Lose a node as by a power cut: kill all processes on its host."""
        for pid in self._inside(host):
            os.kill(pid, signal.SIGKILL)
        self.nodes.pop(host).communicate(timeout=60)

    def end(self) -> None:
        """End all nodes."""
        for node in self.nodes.values():
            node.send_signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.communicate(timeout=60)

    def processes_with(self, word: str) -> list[int]:
        """Return the processes of this cluster that have a word among their arguments."""
        inside = {pid for host in self.bed.numbers for pid in self._inside(host)}
        return [pid for pid in processes_with(word) if pid in inside]

    def _inside(self, host: int) -> list[int]:
        words = ["ip", "netns", "pids", self.bed.namespace(host)]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in out.split()]

    def left(self) -> list[Path]:
        """Return the files that agents have left on the nodes."""
        return list(Path(self._folder).glob("headway-*/shim.py"))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a `headway` command on host 1."""
        line = testbeds.command(self.bed, 1, [sys.executable, "-m", "headway", *words])
        return subprocess.run(
            line,
            env=self._environment | {"NUMBA_DISABLE_JIT": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def scheduler(self, folder: Path) -> ExecutorProcess:
        """Start an executor on host 1."""
        prefix = testbeds.command(self.bed, 1, [])
        return ExecutorProcess("ray", str(folder), ADDRESS, prefix=prefix, env=self._environment)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayOnTestbed]:
    bed = testbeds.Testbed(f"y{os.getpid()}", hosts=2, rate_mbit=200)
    testbeds.up(bed)
    try:
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
            made = RayOnTestbed(bed, folder)
            try:
                made.start(1)
                made.start(2)
                yield made
            finally:
                made.end()
    finally:
        testbeds.down(bed.name)


def names(nodes: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(node["name"] for node in nodes)


def test_jobs_run_on_the_requested_nodes(cluster: RayOnTestbed, tmp_path: Path) -> None:
    with cluster.scheduler(tmp_path / "state") as scheduler:
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
        assert cluster.processes_with(str(tmp_path)) == []

        scheduler.launch(wrong, job("pass", folder="/no/such"), f"{TWO}:0")
        ended = scheduler.next_end()
        assert (ended.code, ended.reason) == (
            127,
            "rank 0 could not start: No such file or directory: /no/such",
        )
        eventually(lambda: cluster.left() == [])


def test_a_job_is_stopped_on_all_its_nodes(cluster: RayOnTestbed, tmp_path: Path) -> None:
    with cluster.scheduler(tmp_path / "state") as scheduler:
        stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
        attempt = Attempt("a", 1)
        scheduler.launch(attempt, job(stubborn, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        eventually(lambda: len(cluster.processes_with(str(tmp_path))) == 2)
        scheduler.send(do="stop", attempt={"job_id": "a", "number": 1})
        ended = scheduler.next_end()
        assert (ended.code, ended.reason) == (143, "stopped")
        assert cluster.processes_with(str(tmp_path)) == []


def test_a_gate_that_other_nodes_cannot_reach_is_an_error(
    cluster: RayOnTestbed, tmp_path: Path
) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f'[serve]\nfolder = "state"\n[executor]\nkind = "ray"\naddress = "{ADDRESS}"')
    done = cluster.run("serve", "--config", str(config))
    assert done.returncode == 2
    assert done.stderr == (
        f"headway: error: gate_host: node {TWO} cannot reach the gate on 127.0.0.1; give an address"
        " of this machine that all nodes can reach.\n"
    )


def test_ranks_end_when_their_agent_is_killed(cluster: RayOnTestbed, tmp_path: Path) -> None:
    with cluster.scheduler(tmp_path / "state") as scheduler:
        scheduler.launch(Attempt("a", 1), job(SLEEP, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        eventually(lambda: len(cluster.processes_with(str(tmp_path))) == 2)
        os.kill(cluster.processes_with("ray::NodeAgent")[0], signal.SIGKILL)
        ended = scheduler.next_end()
        assert (ended.code, ended.reason) == (255, "its processes on a node are gone")
        eventually(lambda: cluster.processes_with(str(tmp_path)) == [])
        eventually(lambda: cluster.left() == [])
        assert not [told for told in scheduler.reports if told["kind"] == "node lost"]


UNTIL_TOLD = (
    "import os, sys, time\nprint('begun')\n"
    "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    "print('ended')"
)


def test_jobs_continue_without_their_scheduler_and_the_next_one_finds_them(
    cluster: RayOnTestbed, tmp_path: Path
) -> None:
    long, short, other = (str(tmp_path / name) for name in ("long", "short", "other"))
    state = tmp_path / "state"
    with cluster.scheduler(state) as first:
        first.launch(Attempt("long", 1), job(UNTIL_TOLD, long), f"{ONE}:0", f"{TWO}:0")
        first.launch(Attempt("short", 1), job(UNTIL_TOLD, short), f"{TWO}:1")
        first.launch(Attempt("other", 1), job(UNTIL_TOLD, other), f"{ONE}:1")
        first.kill()
    Path(short).touch()
    eventually(lambda: len(cluster.processes_with("--leash")) == 3)
    assert len(cluster.processes_with(long)) == 2
    with cluster.scheduler(state) as second:
        known = [{"job_id": name, "number": 1} for name in ("long", "short", "never")]
        second.send(do="recover", known=known)
        assert second.next_report("running") == [{"job_id": "long", "number": 1}]
        ended = {
            one["value"]["attempt"]["job_id"]: one["value"]["code"] for one in second.reports[1:-1]
        }
        assert ended == {"short": 0, "never": -1}
        assert cluster.processes_with(other) == []
        # A running attempt is not started again.
        second.launch(Attempt("long", 1), job(UNTIL_TOLD, long), f"{ONE}:0", f"{TWO}:0")
        assert len(cluster.processes_with(long)) == 2
        Path(long).touch()
        last = second.next_end()
        assert (last.attempt.job_id, last.code) == ("long", 0)
    assert (state / "long.1" / "rank-1.log").read_text() == "begun\nended\n"
    eventually(lambda: cluster.left() == [])


def test_a_lost_node_ends_its_jobs_everywhere_and_may_rejoin(
    cluster: RayOnTestbed, tmp_path: Path
) -> None:
    with cluster.scheduler(tmp_path / "state") as scheduler:
        scheduler.next_report("nodes")
        scheduler.launch(Attempt("a", 1), job(SLEEP, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        eventually(lambda: len(cluster.processes_with(str(tmp_path))) == 2)
        cluster.kill(2)
        ended = scheduler.next_end()
        assert (ended.code, ended.reason) == (255, f"node {TWO} was lost")
        assert {"kind": "node lost", "value": TWO} in scheduler.reports
        assert cluster.processes_with(str(tmp_path)) == []
        cluster.start(2)
        assert scheduler.next_report("node up")["name"] == TWO
        scheduler.launch(Attempt("a", 2), job("pass"), f"{TWO}:0")
        assert scheduler.next_end().code == 0
        # The loss of an idle node is noticed when it rejoins under the same name.
        cluster.kill(2)
        cluster.start(2)
        assert scheduler.next_report("node up")["name"] == TWO
