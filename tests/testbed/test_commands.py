"""The commands of `headway testbed`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway import testbed as testbeds
from headway.domain.errors import MachineError
from headway.testbed import processes, system
from testbed.machine import FOLDER, headway, leftovers, namespaces, rates_mbit
from waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]


def test_a_testbed_goes_up_runs_commands_and_goes_down(name: str) -> None:
    made = headway("up", "--name", name, "--hosts", "2", "--rate-mbit", "50")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == f"testbed {name} is up: 2 hosts at 50 Mbit/s\n"
    assert namespaces(name) == [f"headway-{name}-{one}" for one in ("1", "2", "switch")]
    told = headway("status", "--name", name)
    assert told.stdout.splitlines()[0] == f"testbed {name}: 2 hosts at 50 Mbit/s, healthy"
    assert told.stdout.splitlines()[-1].split() == ["2", "10.77.0.2", "50", "50", "0"]
    script = "echo $HEADWAY_TESTBED $HEADWAY_TESTBED_HOST; echo oh >&2; exit 7"
    ran = headway("exec", "--name", name, "2", "sh", "-c", script)
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, f"{name} 2\n", "oh\n")
    gone = headway("down", "--name", name)
    assert (gone.returncode, gone.stdout) == (0, f"testbed {name} is down\n")
    assert leftovers(name) == []
    again = headway("down", "--name", name)
    assert (again.returncode, again.stdout) == (0, f"testbed {name} is down already\n")


def test_up_again_changes_nothing_and_other_settings_are_an_error(name: str) -> None:
    assert testbeds.up(testbeds.Testbed(name, hosts=2))
    before = os.stat(f"/run/netns/headway-{name}-1").st_ino
    again = headway("up", "--name", name, "--hosts", "2")
    assert (again.returncode, again.stdout) == (
        0,
        f"testbed {name} is up already: 2 hosts at 200 Mbit/s\n",
    )
    other = headway("up", "--name", name, "--hosts", "3")
    assert other.returncode == 2
    assert f"headway testbed down --name {name}" in other.stderr
    assert len(other.stderr.splitlines()) == 1
    assert os.stat(f"/run/netns/headway-{name}-1").st_ino == before


def test_both_ends_of_every_link_have_the_requested_rate(plain: testbeds.Testbed) -> None:
    for host in plain.numbers:
        assert rates_mbit(plain, host) == [100, 100]


def test_status_lists_all_testbeds_and_their_processes(plain: testbeds.Testbed) -> None:
    words = testbeds.command(plain, 2, ["sleep", "60"])
    with subprocess.Popen(words) as sleeper:
        try:
            eventually(
                lambda: (
                    testbeds.status(plain.name).hosts[1].pids == (sleeper.pid,)
                    and Path(f"/proc/{sleeper.pid}/comm").read_text() == "sleep\n"
                )
            )
            # Retried: a test beside this one may just have an invalid state file, an error of it.
            eventually(lambda: f"testbed {plain.name}: 3 hosts" in headway("status").stdout)
        finally:
            sleeper.kill()


def test_status_of_an_unknown_testbed_is_an_error(name: str) -> None:
    told = headway("status", "--name", name)
    assert told.returncode == 2
    assert f"there is no testbed '{name}'" in told.stderr


def test_ctrl_c_reaches_the_command_in_the_host(plain: testbeds.Testbed) -> None:
    words = ["-m", "headway", "testbed", "exec", "--name", plain.name, "1", "sleep", "60"]
    with subprocess.Popen([sys.executable, *words], start_new_session=True) as running:
        here = plain.namespace(1)
        comm = Path(f"/proc/{running.pid}/comm")
        eventually(lambda: comm.read_text() == "sleep\n")
        assert processes.inside([here]) == {here: [running.pid]}
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait() == -signal.SIGINT
    assert processes.inside([here]) == {here: []}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["1", "no-such-command"], "command 'no-such-command' not found"),
        (["9", "true"], "host: must be at most 3"),
    ],
)
def test_an_unknown_command_or_host_is_an_error(
    plain: testbeds.Testbed, words: list[str], problem: str
) -> None:
    ran = headway("exec", "--name", plain.name, *words)
    assert ran.returncode == 2
    assert problem in ran.stderr


def test_exec_in_an_unknown_testbed_is_an_error(name: str) -> None:
    ran = headway("exec", "--name", name, "1", "true")
    assert ran.returncode == 2
    assert f"there is no testbed '{name}'" in ran.stderr


def test_down_takes_either_all_or_a_name(name: str) -> None:
    assert headway("down", "--all", "--name", name).returncode == 2


@pytest.mark.parametrize("words", [["up"], ["status"], ["exec", "1", "true"], ["down"]])
def test_users_other_than_root_get_an_error(words: list[str]) -> None:
    # Import everything first: the other user may not be allowed to read the sources.
    script = (
        "import os, sys, typer.testing, headway.cli.main\n"
        "typer.testing.CliRunner().invoke(headway.cli.main.app, ['testbed', 'down', '--help'])\n"
        "os.setuid(65534)\n"
        f"sys.argv = ['headway', 'testbed', *{words!r}]\n"
        "headway.cli.main.run()\n"
    )
    line = [sys.executable, "-c", script]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("headway: error: needs root: ")
    assert len(ran.stderr.splitlines()) == 1


def test_a_machine_without_iproute2_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    ran = headway("up")
    assert ran.returncode == 2
    assert "iproute2" in ran.stderr


def test_an_error_of_ip_is_reported_in_one_line() -> None:
    with (
        testbeds.state.locked() as lock,
        pytest.raises(MachineError, match=r"^ip: .*\(ip link set nothing up\)$") as refused,
    ):
        system.batch("ip", ["link show lo", "link set nothing up"], lock)
    assert "\n" not in str(refused.value)


def test_only_root_can_read_the_state_folder(plain: testbeds.Testbed) -> None:
    assert FOLDER.stat().st_mode & 0o777 == 0o700
    assert (FOLDER / f"{plain.name}.json").is_file()
