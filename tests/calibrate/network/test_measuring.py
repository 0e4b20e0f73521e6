"""All-reduces of real gloo processes in the namespaces of a testbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibrate.network.undisturbed import undisturbed
from headway import testbed as testbeds
from headway.calibrate.network.samples import read_samples, shots
from headway.configuration import network_from
from headway.network.contention import NetworkModel
from waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.root, pytest.mark.torch]

RATE_MBIT = 200
B_NS_PER_BYTE = 8e3 / RATE_MBIT
"""Of an all-reduce between two hosts: over each link go as many bytes as the message has."""

QUICK = ("--sizes", "1MB,2MB,4MB", "--repeats", "5", "--warm-up", "1", "--concurrent", "2")
EXACT = ("--sizes", "2MB,4MB,8MB,16MB", "--repeats", "6", "--warm-up", "1", "--concurrent", "2")
"""Long messages, to which a delay of some milliseconds is little."""

FIRST = ("nice", "-n", "-19")
"""Runs before other tests, which would load the same cores during the measurement, unless the
kernel shares them out by sessions (sched_autogroup_enabled)."""


@pytest.fixture(scope="module")
def pair() -> Iterator[testbeds.Testbed]:
    """Return a testbed of two hosts."""
    made = testbeds.Testbed(f"c{os.getpid()}", hosts=2, rate_mbit=RATE_MBIT)
    testbeds.up(made)
    yield made
    testbeds.down(made.name)


def start(folder: Path, *words: str, command: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a calibration in a folder, as a user would."""
    return subprocess.Popen(
        [*command, sys.executable, "-m", "headway", "calibrate", "network", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes(bed: testbeds.Testbed) -> list[int]:
    """Return the processes inside a testbed's hosts."""
    found = []
    for host in bed.numbers:
        words = ["ip", "netns", "pids", bed.namespace(host)]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found += [int(pid) for pid in out.split()]
    return found


def wait_for_ranks(bed: testbeds.Testbed, running: subprocess.Popen[str], count: int = 4) -> None:
    """Wait until every process of a calibration is connected to others."""

    def connected() -> bool:
        assert running.poll() is None, running.communicate()
        words = ["ip", "netns", "exec", bed.namespace(2), "ss", "-Htn", "state", "established"]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return len(processes(bed)) == count and len(out.splitlines()) >= count

    eventually(connected)


def ends(running: subprocess.Popen[str], status: int) -> str:
    """Wait for the end of a calibration; return its only line on standard error."""
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == status, err
    lines = [line for line in err.splitlines() if line]
    assert len(lines) == 1, err
    return lines[0]


def test_a_calibration_recovers_the_rate_of_the_testbed(
    pair: testbeds.Testbed, tmp_path: Path
) -> None:
    def measured() -> NetworkModel:
        running = start(tmp_path, "--on", f"testbed:{pair.name}", *EXACT, command=FIRST)
        out, err = running.communicate(timeout=600)
        assert running.returncode == 0, err
        assert "eta" in out
        return network_from(str(tmp_path / "network.toml"))

    undisturbed(lambda: measured().b_ns_per_byte == pytest.approx(B_NS_PER_BYTE, rel=0.1))
    samples = read_samples(tmp_path / "network.samples.csv")
    assert len(shots(samples)) == 4 * 2 * 6
    assert len(samples) == 4 * 6 * (1 + 2)
    assert (tmp_path / "network.svg").read_text().startswith("<?xml")
    about = tomllib.loads((tmp_path / "network.toml").read_text())["calibration"]
    assert about["hosts"] == ["10.77.0.1", "10.77.0.2"]
    assert about["backend"] == "gloo"
    assert about["samples"] == "network.samples.csv"
    assert processes(pair) == []


def test_the_testbeds_penalty_is_measured_as_eta(tmp_path: Path) -> None:
    bed = testbeds.Testbed(f"e{os.getpid()}", hosts=2, rate_mbit=RATE_MBIT, eta=0.5)
    testbeds.up(bed)

    def eta_of_b() -> float:
        running = start(tmp_path, "--on", f"testbed:{bed.name}", *EXACT, command=FIRST)
        _, err = running.communicate(timeout=600)
        assert running.returncode == 0, err
        network = network_from(str(tmp_path / "network.toml"))
        return network.eta_ns_per_byte / network.b_ns_per_byte

    try:
        undisturbed(lambda: eta_of_b() == pytest.approx(0.5, abs=0.2))
    finally:
        testbeds.down(bed.name)


def test_the_same_works_under_torchrun(pair: testbeds.Testbed, tmp_path: Path) -> None:
    def node(host: int) -> subprocess.Popen[str]:
        words = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
            *("--node-rank", str(host - 1), "--nproc-per-node", "2"),
            *("--master-addr", pair.address(1), "--master-port", "29411"),
            *("-m", "headway.calibrate", "network", *QUICK, "-o", "cluster.toml"),
        ]
        return subprocess.Popen(
            testbeds.command(pair, host, words),
            env={**os.environ, **pair.environment(host), "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def b_ns_per_byte() -> float:
        with node(1) as first, node(2) as second:
            out, err = first.communicate(timeout=300)
            second.communicate(timeout=300)
        assert (first.returncode, second.returncode) == (0, 0), err
        assert "eta" in out
        return network_from(str(tmp_path / "cluster.toml")).b_ns_per_byte

    undisturbed(lambda: b_ns_per_byte() == pytest.approx(B_NS_PER_BYTE, rel=0.3))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cluster.samples.csv",
        "cluster.svg",
        "cluster.toml",
    ]


def test_a_killed_worker_ends_all_with_one_line(pair: testbeds.Testbed, tmp_path: Path) -> None:
    running = start(tmp_path, "--on", f"testbed:{pair.name}", "--concurrent", "2")
    wait_for_ranks(pair, running)
    os.kill(processes(pair)[-1], signal.SIGKILL)
    assert "host 2 was killed by SIGKILL." in ends(running, 2)
    assert processes(pair) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_an_interrupted_calibration_leaves_no_process_and_no_file(
    pair: testbeds.Testbed, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    running = start(tmp_path, "--on", f"testbed:{pair.name}", "--concurrent", "2")
    wait_for_ranks(pair, running)
    running.send_signal(number)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == status
    eventually(lambda: processes(pair) == [])
    assert list(tmp_path.iterdir()) == []


def test_a_host_without_route_is_an_error(pair: testbeds.Testbed, tmp_path: Path) -> None:
    link = ["ip", "-n", pair.namespace(2), "link", "set", "eth0"]
    subprocess.run([*link, "down"], check=True)
    try:
        words = ("--on", f"testbed:{pair.name}", *QUICK)
        said = ends(start(tmp_path, *words), 2)
    finally:
        subprocess.run([*link, "up"], check=True)
    assert "on host 2: " in said
    assert "has no route to 10.77.0.1: Network is unreachable." in said
    assert processes(pair) == []
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_an_error(pair: testbeds.Testbed, tmp_path: Path) -> None:
    listen = (
        "import socket, sys; s = socket.create_server(('', 29433)); print(flush=True);"
        "sys.stdin.read()"
    )
    taking = subprocess.Popen(
        testbeds.command(pair, 1, [sys.executable, "-c", listen]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with taking:
        assert taking.stdout is not None
        taking.stdout.readline()
        words = ("--on", f"testbed:{pair.name}", *QUICK, "--port", "29433")
        said = ends(start(tmp_path, *words), 2)
        taking.kill()
    assert "10.77.0.1:29433 is in use" in said
    assert processes(pair) == []
    assert list(tmp_path.iterdir()) == []
