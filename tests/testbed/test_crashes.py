"""Crashes leave nothing behind, and nothing foreign is touched."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from headway import testbed as testbeds
from headway.domain.errors import InputError
from headway.testbed.system import batch
from testbed.machine import FOLDER, headway, leftovers, namespaces
from waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]

UP = (
    "import sys, headway.cli.main, headway.cli.testbed, headway.interrupts\n"
    "headway.interrupts.handle_signals()\n"
    "print('go', flush=True)\n"
    "sys.argv = ['headway', 'testbed', 'up', *sys.argv[1:]]\n"
    "headway.cli.main.run()\n"
)
SPAN_S = 0.25
"""About as long as `up` takes; signals come at random moments within it."""


def start_up(name: str) -> subprocess.Popen[str]:
    """Start `up` in another process; it is about to begin when this returns."""
    words = [sys.executable, "-c", UP, "--name", name, "--hosts", "6", "--eta", "0.5"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    return process


@pytest.mark.parametrize("seed", range(6))
def test_down_cleans_up_after_an_up_that_was_killed_anywhere(name: str, seed: int) -> None:
    with start_up(name) as starting:
        time.sleep(random.Random(seed).uniform(0, SPAN_S))  # the moment under test
        starting.kill()
    testbeds.down(name)
    assert namespaces(name) == []
    eventually(lambda: leftovers(name) == [])


@pytest.mark.parametrize("seed", range(6, 9))
def test_up_completes_a_killed_up(name: str, seed: int) -> None:
    with start_up(name) as starting:
        time.sleep(random.Random(seed).uniform(0, SPAN_S))  # the moment under test
        starting.kill()
    testbeds.up(testbeds.Testbed(name, hosts=6, eta=0.5))
    assert testbeds.status(name).problems == ()


@pytest.mark.parametrize("seed", range(4))
def test_ctrl_c_during_up_leaves_all_or_nothing(name: str, seed: int) -> None:
    with start_up(name) as starting:
        time.sleep(random.Random(seed).uniform(0, SPAN_S))  # the moment under test
        os.killpg(starting.pid, signal.SIGINT)
        starting.communicate()
    # A signal after the last step leaves a complete testbed, whatever the exit code.
    if testbeds.find(name) is not None:
        assert testbeds.status(name).healthy
    else:
        assert starting.returncode in (130, -signal.SIGINT)
        eventually(lambda: leftovers(name) == [])


def test_concurrent_ups_do_not_interfere(name: str) -> None:
    with start_up(name) as one, start_up(name) as other:
        output = sorted([one.communicate()[0], other.communicate()[0]], key=len)
    assert output[0].startswith(f"testbed {name} is up: 6 hosts")
    assert output[1].startswith(f"testbed {name} is up already: 6 hosts")
    assert testbeds.status(name).healthy


def test_a_foreign_namespace_is_not_touched(new_name: Callable[[], str]) -> None:
    name = new_name()
    foreign = f"headway-{name}-2"
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        failed = headway("up", "--name", name)
        assert failed.returncode == 2
        assert foreign in failed.stderr
        assert not testbeds.down(name)
        assert leftovers(name) == [foreign]
    finally:
        subprocess.run(["ip", "netns", "delete", foreign], check=True)


def test_down_works_without_some_namespaces(name: str) -> None:
    testbeds.up(testbeds.Testbed(name, hosts=2))
    subprocess.run(["ip", "netns", "delete", f"headway-{name}-1"], check=True)
    status = testbeds.status(name)
    assert f"namespace headway-{name}-1 is missing" in status.problems
    assert testbeds.down(name)
    assert leftovers(name) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("link set eth0 down", "eth0 is down in headway-{name}-1"),
        ("address flush dev eth0", "eth0 in headway-{name}-1 lacks 10.77.0.1"),
        ("link delete eth0", "eth0 is missing in headway-{name}-1"),
    ],
)
def test_a_missing_part_is_reported_and_repaired(name: str, line: str, problem: str) -> None:
    testbed = testbeds.Testbed(name, hosts=2)
    testbeds.up(testbed)
    with testbeds.state.locked() as lock:
        batch("ip", [line], lock, testbed.namespace(1))
    assert problem.format(name=name) in testbeds.status(name).problems
    assert testbeds.up(testbed)
    assert testbeds.status(name).healthy


def test_down_ends_a_process_that_ignores_sigterm(name: str) -> None:
    testbed = testbeds.Testbed(name, hosts=2)
    testbeds.up(testbed)
    script = "trap '' TERM; echo ready; while :; do sleep 60; done"
    words = testbeds.command(testbed, 1, ["sh", "-c", script])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == "ready\n"
        assert testbeds.down(name)
        assert stubborn.wait() == -signal.SIGKILL
    assert leftovers(name) == []


def _state(**changes: object) -> str:
    values = {"hosts": 2, "rate_mbit": 200, "eta": 0, "rate_controller": None}
    return json.dumps(values | {"namespaces": ["headway-other-1"]} | changes)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "\x00", _state(), _state(hosts=10**9), _state(rate_controller=[1])],
)
def test_an_invalid_state_file_is_an_error_and_nothing_is_removed(name: str, text: str) -> None:
    path = FOLDER / f"{name}.json"
    path.write_text(text)
    try:
        for command in (testbeds.down, testbeds.find, testbeds.status):
            with pytest.raises(InputError, match="is not a valid state file") as refused:
                command(name)
            assert refused.value.source == str(path)
    finally:
        path.unlink()
