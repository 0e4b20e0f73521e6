"""`headway testbed` as a user runs it."""

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
from testbed.looking import FOLDER, eventually, headway, leftovers, namespaces, rates_mbit


def test_up_status_exec_and_down_make_a_round(name: str) -> None:
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


def test_up_again_changes_nothing_and_other_settings_are_refused(name: str) -> None:
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


def test_rates_are_those_asked_for_at_both_ends_of_every_link(plain: testbeds.Testbed) -> None:
    for host in plain.numbers:
        assert rates_mbit(plain, host) == [100, 100]


def test_status_tells_of_all_testbeds_and_what_runs_inside(plain: testbeds.Testbed) -> None:
    words = testbeds.command(plain, 2, ["sleep", "60"])
    with subprocess.Popen(words) as sleeper:
        try:
            assert eventually(
                lambda: (
                    testbeds.status(plain.name).hosts[1].pids == (sleeper.pid,)
                    and Path(f"/proc/{sleeper.pid}/comm").read_text() == "sleep\n"
                )
            )
            assert f"testbed {plain.name}: 3 hosts" in headway("status").stdout
        finally:
            sleeper.kill()


def test_status_of_a_testbed_that_is_not_there_is_refused(name: str) -> None:
    told = headway("status", "--name", name)
    assert told.returncode == 2
    assert f"there is no testbed '{name}'" in told.stderr


def test_ctrl_c_reaches_the_command_in_the_host(plain: testbeds.Testbed) -> None:
    words = ["-m", "headway", "testbed", "exec", "--name", plain.name, "1", "sleep", "60"]
    with subprocess.Popen([sys.executable, *words], start_new_session=True) as running:
        here = plain.namespace(1)
        comm = Path(f"/proc/{running.pid}/comm")
        assert eventually(lambda: comm.read_text() == "sleep\n")
        assert processes.inside([here]) == {here: [running.pid]}
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait() == -signal.SIGINT
    assert processes.inside([here]) == {here: []}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["1", "no-such-command"], "there is no command 'no-such-command'"),
        (["9", "true"], "host: must be at most 3"),
    ],
)
def test_a_command_or_host_that_is_not_there_is_refused(
    plain: testbeds.Testbed, words: list[str], problem: str
) -> None:
    ran = headway("exec", "--name", plain.name, *words)
    assert ran.returncode == 2
    assert problem in ran.stderr


def test_exec_in_a_testbed_that_is_not_there_is_refused(name: str) -> None:
    ran = headway("exec", "--name", name, "1", "true")
    assert ran.returncode == 2
    assert f"there is no testbed '{name}'" in ran.stderr


def test_all_and_a_name_exclude_each_other(name: str) -> None:
    assert headway("down", "--all", "--name", name).returncode == 2


@pytest.mark.parametrize("words", [["up"], ["status"], ["exec", "1", "true"], ["down"]])
def test_anyone_but_root_is_told_so(words: list[str]) -> None:
    # All is imported first: whoever else runs this may not be allowed to read where it lies.
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


def test_a_machine_without_iproute2_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    ran = headway("up")
    assert ran.returncode == 2
    assert "iproute2" in ran.stderr


def test_what_ip_refuses_is_passed_on_in_one_line() -> None:
    with (
        testbeds.state.locked() as lock,
        pytest.raises(MachineError, match=r"^ip: .*\(ip link set nothing up\)$") as refused,
    ):
        system.batch("ip", ["link show lo", "link set nothing up"], lock)
    assert "\n" not in str(refused.value)


def test_the_folder_of_states_is_closed_to_others(plain: testbeds.Testbed) -> None:
    assert FOLDER.stat().st_mode & 0o777 == 0o700
    assert (FOLDER / f"{plain.name}.json").is_file()
