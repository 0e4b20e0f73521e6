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
from live.executors.driving import Scheduler, having, job
from live.executors.test_testbed_nodes import MEET
from testbed.looking import eventually

ADDRESS = "10.77.0.1:6400"
ONE, TWO = "10.77.0.1", "10.77.0.2"
SLEEP = "import time; print('begun'); time.sleep(600)"


class Cluster:
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
        """Start a node of Ray on a host; the first is the head."""
        head = ["--head", "--port", "6400", "--include-dashboard", "false"]
        joins = ["--address", ADDRESS, "--num-gpus", "3"]  # As it says: it has none.
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
        """Lose a node as if its power were cut: all that runs on the host ends at once."""
        for pid in self._inside(host):
            os.kill(pid, signal.SIGKILL)
        self.nodes.pop(host).communicate(timeout=60)

    def end(self) -> None:
        """End all nodes."""
        for node in self.nodes.values():
            node.send_signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.communicate(timeout=60)

    def having(self, word: str) -> list[int]:
        """Return the processes of this cluster that have a word among their arguments."""
        inside = {pid for host in self.bed.numbers for pid in self._inside(host)}
        return [pid for pid in having(word) if pid in inside]

    def _inside(self, host: int) -> list[int]:
        words = ["ip", "netns", "pids", self.bed.namespace(host)]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in out.split()]

    def left(self) -> list[Path]:
        """Return what keepers have left on the nodes."""
        return list(Path(self._folder).glob("headway-*/shim.py"))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Headway on the first host."""
        line = testbeds.command(self.bed, 1, [sys.executable, "-m", "headway", *words])
        return subprocess.run(
            line,
            env=self._environment | {"NUMBA_DISABLE_JIT": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def scheduler(self, folder: Path) -> Scheduler:
        """Start a scheduler on the first host."""
        prefix = testbeds.command(self.bed, 1, [])
        return Scheduler("ray", str(folder), ADDRESS, prefix=prefix, env=self._environment)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    bed = testbeds.Testbed(f"y{os.getpid()}", hosts=2, rate_mbit=200)
    testbeds.up(bed)
    try:
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
            made = Cluster(bed, folder)
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


def test_jobs_run_on_the_nodes_where_they_are_wanted(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.scheduler(tmp_path / "state") as scheduler:
        nodes = scheduler.hear("nodes")
        assert names(nodes) == [ONE, TWO]
        assert {node["name"]: node["gpus"] for node in nodes} == {ONE: 2, TWO: 3}
        assert all(node["memory_bytes"] > 2**20 for node in nodes)
        good, bad, wrong = (Attempt(name, 1) for name in ("good", "bad", "wrong"))
        scheduler.launch(good, job(MEET), f"{TWO}:0", f"{ONE}:1")
        assert scheduler.ended().code == 0
        assert (tmp_path / "state" / "good.1" / "rank-0.log").read_text() == f"{ONE} eth0\n"

        fails = "import os, sys, time\nprint('no')\n" + (
            "sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(600)"
        )
        scheduler.launch(bad, job(fails, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        ended = scheduler.ended()
        assert (ended.attempt, ended.code) == (bad, 3)
        assert ended.reason == "rank 1 exited with 3: no"
        assert cluster.having(str(tmp_path)) == []

        scheduler.launch(wrong, job("pass", folder="/no/such"), f"{TWO}:0")
        ended = scheduler.ended()
        assert (ended.code, ended.reason) == (
            127,
            "rank 0 could not start: No such file or directory: /no/such",
        )
        assert eventually(lambda: cluster.left() == [])


def test_a_job_is_stopped_on_all_its_nodes(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.scheduler(tmp_path / "state") as scheduler:
        stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
        attempt = Attempt("a", 1)
        scheduler.launch(attempt, job(stubborn, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        assert eventually(lambda: len(cluster.having(str(tmp_path))) == 2)
        scheduler.tell(do="stop", attempt={"job_id": "a", "number": 1})
        ended = scheduler.ended()
        assert (ended.code, ended.reason) == (143, "stopped")
        assert cluster.having(str(tmp_path)) == []


def test_a_gate_that_other_nodes_cannot_reach_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f'[serve]\nfolder = "state"\n[executor]\nkind = "ray"\naddress = "{ADDRESS}"')
    done = cluster.run("serve", "--config", str(config))
    assert done.returncode == 2
    assert done.stderr == (
        f"headway: error: gate_host: node {TWO} cannot reach the gate on 127.0.0.1; give an address"
        " of this machine that all nodes reach.\n"
    )


def test_ranks_end_when_their_keeper_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.scheduler(tmp_path / "state") as scheduler:
        scheduler.launch(Attempt("a", 1), job(SLEEP, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        assert eventually(lambda: len(cluster.having(str(tmp_path))) == 2)
        os.kill(cluster.having("ray::Keeper")[0], signal.SIGKILL)
        ended = scheduler.ended()
        assert (ended.code, ended.reason) == (255, "its processes on a node are gone")
        assert eventually(lambda: cluster.having(str(tmp_path)) == [])
        assert eventually(lambda: cluster.left() == [])
        assert not [told for told in scheduler.heard if told["kind"] == "lost"]


UNTIL_TOLD = (
    "import os, sys, time\nprint('begun')\n"
    "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    "print('ended')"
)


def test_jobs_go_on_without_their_scheduler_and_the_next_one_finds_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    long, short, other = (str(tmp_path / name) for name in ("long", "short", "other"))
    state = tmp_path / "state"
    with cluster.scheduler(state) as first:
        first.launch(Attempt("long", 1), job(UNTIL_TOLD, long), f"{ONE}:0", f"{TWO}:0")
        first.launch(Attempt("short", 1), job(UNTIL_TOLD, short), f"{TWO}:1")
        first.launch(Attempt("other", 1), job(UNTIL_TOLD, other), f"{ONE}:1")
        first.kill()
    Path(short).touch()
    assert eventually(lambda: len(cluster.having("--leash")) == 3)
    assert len(cluster.having(long)) == 2
    with cluster.scheduler(state) as second:
        known = [{"job_id": name, "number": 1} for name in ("long", "short", "never")]
        second.tell(do="recover", known=known)
        assert second.hear("running") == [{"job_id": "long", "number": 1}]
        ended = {
            told["value"]["attempt"]["job_id"]: told["value"]["code"] for told in second.heard[1:-1]
        }
        assert ended == {"short": 0, "never": -1}
        assert cluster.having(other) == []
        # What runs is not started again, whoever asks for it.
        second.launch(Attempt("long", 1), job(UNTIL_TOLD, long), f"{ONE}:0", f"{TWO}:0")
        assert len(cluster.having(long)) == 2
        Path(long).touch()
        last = second.ended()
        assert (last.attempt.job_id, last.code) == ("long", 0)
    assert (state / "long.1" / "rank-1.log").read_text() == "begun\nended\n"
    assert eventually(lambda: cluster.left() == [])


def test_a_lost_node_ends_its_jobs_everywhere_and_may_come_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.scheduler(tmp_path / "state") as scheduler:
        scheduler.hear("nodes")
        scheduler.launch(Attempt("a", 1), job(SLEEP, str(tmp_path)), f"{ONE}:0", f"{TWO}:0")
        assert eventually(lambda: len(cluster.having(str(tmp_path))) == 2)
        cluster.kill(2)
        ended = scheduler.ended()
        assert (ended.code, ended.reason) == (255, f"node {TWO} was lost")
        assert {"kind": "lost", "value": TWO} in scheduler.heard
        assert cluster.having(str(tmp_path)) == []
        cluster.start(2)
        assert scheduler.hear("came")["name"] == TWO
        scheduler.launch(Attempt("a", 2), job("pass"), f"{TWO}:0")
        assert scheduler.ended().code == 0
        # Nobody would miss an idle node so soon; that it comes again under its name tells.
        cluster.kill(2)
        cluster.start(2)
        assert scheduler.hear("came")["name"] == TWO
