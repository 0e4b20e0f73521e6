"""The measurement on a Ray cluster whose nodes are hosts of a testbed."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibrate.network.undisturbed import undisturbed
from headway import testbed as testbeds
from headway.configuration import network_from
from waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.ray, pytest.mark.root]

ADDRESS = "10.77.0.1:6400"


@pytest.fixture(scope="module")
def bed() -> Iterator[testbeds.Testbed]:
    made = testbeds.Testbed(f"r{os.getpid()}", hosts=2, rate_mbit=200)
    testbeds.up(made)
    yield made
    testbeds.down(made.name)


@pytest.fixture(scope="module")
def cluster(bed: testbeds.Testbed) -> Iterator[dict[str, str]]:
    """Start Ray on both hosts; return the environment of its users."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        token = Path(folder, "token")
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # By default workers run after everything else.
        }
        common = ["--num-cpus", "1", "--object-store-memory", str(80 * 2**20), "--block"]
        head = ["--head", "--port", "6400", "--include-dashboard", "false", "--temp-dir", folder]
        nodes = []
        try:
            for host, words in ((1, head), (2, ["--address", ADDRESS])):
                line = [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start"),
                    *("--node-ip-address", bed.address(host), *words, *common),
                ]
                node = subprocess.Popen(
                    testbeds.command(bed, host, line),
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    process_group=0,  # A local executor kills children in other sessions.
                )
                nodes.append(node)
                assert node.stdout is not None
                said = []
                for text in node.stdout:
                    said.append(text)
                    if "--block" in text:
                        break
                else:
                    pytest.fail("".join(said))
            yield environment
        finally:
            for node in reversed(nodes):
                node.send_signal(signal.SIGTERM)
            for node in nodes:
                node.communicate(timeout=PATIENCE_S)


def calibrate(
    bed: testbeds.Testbed, environment: dict[str, str], folder: Path, *words: str
) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "headway", "calibrate", "network", "--on", ADDRESS, *words]
    return subprocess.Popen(
        testbeds.command(bed, 1, line),
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_ray_cluster_is_measured_between_its_nodes(
    bed: testbeds.Testbed, cluster: dict[str, str], tmp_path: Path
) -> None:
    words = ("--sizes", "1MB,2MB,4MB", "--repeats", "5", "--warm-up", "1", "--concurrent", "2")

    def b_ns_per_byte() -> float:
        running = calibrate(bed, cluster, tmp_path, *words)
        out, err = running.communicate(timeout=300)
        assert running.returncode == 0, err
        assert "eta" in out
        return network_from(str(tmp_path / "network.toml")).b_ns_per_byte

    undisturbed(lambda: b_ns_per_byte() == pytest.approx(40, rel=0.3))


def actors(bed: testbeds.Testbed) -> list[str]:
    """Return the processes of the measurement in the testbed."""
    found = []
    for host in bed.numbers:
        words = ["ip", "netns", "pids", bed.namespace(host)]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for pid in out.split():
            try:
                title = Path("/proc", pid, "cmdline").read_bytes()
            except OSError:
                continue
            if b"ray::_Actor" in title:
                found.append(pid)
    return found


def test_an_interrupted_measurement_leaves_no_actor(
    bed: testbeds.Testbed, cluster: dict[str, str], tmp_path: Path
) -> None:
    running = calibrate(bed, cluster, tmp_path, "--concurrent", "2")
    eventually(lambda: len(actors(bed)) == 4 or running.poll() is not None)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130, err
    eventually(lambda: actors(bed) == [])
    assert list(tmp_path.iterdir()) == []
