"""Sweeps on a Ray cluster: the same bits as in threads, whatever happens to workers."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.sweeps import deterministic_bytes, finished, small_sweep
from experiments.test_sweep import start, wait_for_runs
from headway.domain.errors import InputError
from headway.experiments.sweep import on_ray, run_sweep, sweep_of
from headway.experiments.sweep.grid import Inputs, Outcome, key_of, points
from headway.experiments.sweep.store import RunStore
from headway.ray_session import connected
from waiting import eventually

pytestmark = pytest.mark.ray

OWN = '''
"""A policy whose file ends Ray workers that load it."""

import os
import sys
from pathlib import Path

if "default_worker" in sys.argv[0] and {condition}:
    os._exit(1)


def first(cluster, job, candidates, parameter):
    return True
'''


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with connected(None, 2) as ray:
        yield ray


def sweep_on(ray: Any, document: dict[str, Any], folder: Path) -> list[Outcome]:
    """Run a sweep on a cluster that is there; return what failed."""
    sweep = sweep_of(document)
    runs = [(key_of(sweep, point), point) for point in points(sweep)]
    failed: list[Outcome] = []
    with RunStore(folder) as store:

        def keep(outcome: Outcome) -> None:
            if outcome.problem is None:
                store.add(outcome)
            else:
                failed.append(outcome)

        on_ray.send(ray, dict(runs), Inputs.of(sweep, rows=["jobs"]), 2, keep)
        store.write_tables(sweep, runs)
    return failed


def test_ray_changes_no_bit(ray: Any, tmp_path: Path) -> None:
    sweep = small_sweep(tmp_path)
    assert sweep_on(ray, sweep, tmp_path / "ray") == []
    run_sweep(sweep, tmp_path / "threads", jobs=True, threads=2)
    run_sweep(sweep, tmp_path / "serial", jobs=True, threads=1)
    expected = deterministic_bytes(tmp_path / "serial")
    assert deterministic_bytes(tmp_path / "threads") == expected
    assert deterministic_bytes(tmp_path / "ray") == expected
    assert len(expected) == 1 + 16


def test_workers_get_the_contents_of_files(ray: Any, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN.format(condition="False"))
    document = small_sweep(tmp_path, policies=["paper", f"{own}:first+srsf:1"])
    sweep = sweep_of(document)
    run_sweep(sweep, tmp_path / "threads", jobs=True)
    for gone in (own, tmp_path / "a.csv"):
        gone.unlink()
    outcomes: list[Outcome] = []
    todo = {key_of(sweep, point): point for point in points(sweep)}
    on_ray.send(ray, todo, Inputs.of(sweep, rows=["jobs"]), 2, outcomes.append)
    assert len(outcomes) == 16
    expected = deterministic_bytes(tmp_path / "threads")
    for outcome in outcomes:
        assert outcome.rows["jobs"] == expected[f"{outcome.key}.parquet"]


def test_the_runs_of_a_dead_worker_are_done_by_another(ray: Any, tmp_path: Path) -> None:
    own, mark = tmp_path / "once.py", tmp_path / "mark"
    condition = f"not Path({str(mark)!r}).exists() and not Path({str(mark)!r}).touch()"
    own.write_text(OWN.format(condition=condition))
    document = small_sweep(tmp_path, policies=["paper", f"{own}:first+srsf:1"])
    assert sweep_on(ray, document, tmp_path / "ray") == []
    assert mark.exists()
    run_sweep(document, tmp_path / "threads", jobs=True)
    assert deterministic_bytes(tmp_path / "ray") == deterministic_bytes(tmp_path / "threads")
    assert len(finished(tmp_path / "ray")) == 16


def test_a_run_that_kills_every_worker_fails_alone(ray: Any, tmp_path: Path) -> None:
    own = tmp_path / "always.py"
    own.write_text(OWN.format(condition="True"))
    document = small_sweep(
        tmp_path, seeds=1, clusters="3x2", policies=["paper", f"{own}:first+srsf:1", "ff+srsf:1"]
    )
    failed = sweep_on(ray, document, tmp_path / "ray")
    assert len(finished(tmp_path / "ray")) == 4
    assert len(failed) == 2
    for outcome in failed:
        assert outcome.problem is not None
        assert outcome.problem.startswith("its worker died 3 times: ")


def test_workers_with_other_code_are_refused(ray: Any, tmp_path: Path) -> None:
    sweep = sweep_of(small_sweep(tmp_path))
    inputs = replace(Inputs.of(sweep), code="of another day")
    todo = {key_of(sweep, point): point for point in points(sweep)}
    with pytest.raises(InputError, match="has another version of Headway than this machine"):
        on_ray.send(ray, todo, inputs, 2, lambda _: None)


def test_the_command_connects_to_a_cluster_by_its_address(ray: Any, tmp_path: Path) -> None:
    small_sweep(tmp_path)
    (tmp_path / "s.toml").write_text(
        'workloads = "a.csv"\nclusters = ["3x2", "2x4"]\npolicies = ["paper", "ff+srsf:1"]\n'
    )
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "headway", "sweep", "s.toml", "--on", address]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 runs in " in done.stderr
    run_sweep(tmp_path / "s.toml", tmp_path / "threads")
    assert deterministic_bytes(tmp_path / "s") == deterministic_bytes(tmp_path / "threads")


def test_ray_listens_on_the_loopback_interface_only(ray: Any, tmp_path: Path) -> None:
    sweep_on(ray, small_sweep(tmp_path), tmp_path / "ray")
    mark = f"RAY_AUTH_TOKEN_PATH={os.environ['RAY_AUTH_TOKEN_PATH']}"
    listening = listeners(processes_with(mark))
    assert len(listening) > 4
    assert {address for address, _ in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_an_interrupt_ends_ray_and_keeps_finished_runs(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = start(tmp_path, "--on", "ray", "-j", "2", slow_after=5, HEADWAY_TEST_MARK=mark)
    wait_for_runs(tmp_path / "many", 5, process)
    assert len(processes_with(f"HEADWAY_TEST_MARK={mark}")) > 4
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "Finished runs are kept in many; repeat the command to continue." in err
    eventually(lambda: not processes_with(f"HEADWAY_TEST_MARK={mark}"))
    assert len(finished(tmp_path / "many")) >= 5


def test_without_ray_the_error_says_what_to_install(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    (tmp_path / "s.toml").write_text('workloads = "a.csv"\npolicies = "paper"\n')
    code = (
        "import sys; sys.modules['ray'] = None; sys.argv = ['headway', 'sweep', 's.toml', "
        "'--on', 'ray']; from headway.cli.main import run; run()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    message = "this needs Ray, which is not installed: pip install '.[ray]' in Headway's checkout."
    assert done.stderr == f"headway: error: {message}\n"


def test_an_address_without_a_cluster_is_refused_at_once(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(InputError, match="no Ray cluster there: Connection refused"):
            run_sweep(small_sweep(tmp_path), tmp_path / "out", on=address)


def processes_with(setting: str) -> list[int]:
    """Return the processes that were started with an environment variable."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if setting.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def listeners(processes: list[int]) -> set[tuple[str, int]]:
    """Return the addresses and ports on which processes listen for TCP connections."""
    sockets = set()
    for process in processes:
        # Processes and their files may be gone meanwhile.
        with suppress(OSError):
            for handle in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    sockets.add(os.readlink(f"/proc/{process}/fd/{handle}"))
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address, port = fields[1].split(":")
                words = struct.unpack(f">{len(address) // 8}I", bytes.fromhex(address))
                packed = struct.pack(f"={len(words)}I", *words)
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found
