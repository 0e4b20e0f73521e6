"""A real scheduler on a real Ray cluster of two nodes, with DDP jobs gated over TLS."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.threaded_gate import make_certificate
from live.executors.helpers import processes_with
from live.ports import free_ports
from live.scheduler_process import PRINTS, SLEEPS, SchedulerProcess, python
from waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.ray, pytest.mark.torch, pytest.mark.slow]

HERE = Path(__file__).parent
START_S = 180.0
"""How long two processes may take to import torch on a busy machine."""
TRAINING = HERE.parents[1] / "worker" / "training_script.py"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Return the address of a cluster whose nodes are both named `twin`."""
    with running_cluster("twin", "twin") as address:
        yield address


@contextlib.contextmanager
def running_cluster(*names: str) -> Iterator[str]:
    """Run a cluster with nodes of these names for the duration of a with block."""
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        token = Path(folder, "token")
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Loopback alone: see headway.ray_session.
            "RAY_TMPDIR": folder,
            "TMPDIR": folder,
        }
        for name, value in variables.items():
            patch.setenv(name, value)
        [port] = free_ports(1)
        words = [sys.executable, str(HERE.parent / "ray_nodes.py"), str(port), *names]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as nodes:
            assert nodes.stdout is not None
            assert any(line == b"up\n" for line in nodes.stdout)
            yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def scheduler(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    folder = tmp_path_factory.mktemp("served")
    certificate, key = make_certificate(folder)
    served = SchedulerProcess(
        folder / "state",
        f'gate_port = {free_ports(1)[0]}\ncertificate = "{certificate}"\nkey = "{key}"\n'
        f'[executor]\nkind = "ray"\naddress = "{cluster}"\n',
    )
    try:
        yield served
    finally:
        served.finish()


def train(one: SchedulerProcess, go: Path, **values: object) -> str:
    """Submit a job with a rank on each node, which pauses midway until a file exists."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PAUSE": f"3:{go}"}
    words = [sys.executable, str(TRAINING), "6", str(go.name)]
    return one.submit(words, gpus=2, environment=environment, **values)


def ranks(go: Path) -> list[int]:
    """Return the processes of the job that waits for this file: another worker may train too."""
    mine = f"PAUSE=3:{go}".encode()
    found = []
    for pid in processes_with(str(TRAINING)):
        with contextlib.suppress(OSError):
            if mine in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def printed(one: SchedulerProcess, job: str) -> list[list[str]]:
    """Return the words of each line in rank 0's output."""
    text = b"".join(one.client.logs(job)).decode()
    lines = [line.split() for line in text.splitlines()]
    return [words for words in lines if words[:1] in (["pausing"], ["plain"])]


def same_weights(lines: list[list[str]]) -> bool:
    """Return whether it trained once, to the same weights with and without the gate."""
    return len(lines) == 2 and lines[0] == ["pausing"] and lines[1][1] == lines[1][2]


def test_a_gated_job_survives_a_killed_scheduler_and_ends_once(
    scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "plain"
    job = train(scheduler, go)
    eventually(lambda: ["pausing"] in printed(scheduler, job), within_s=START_S)
    assert scheduler.client.status()["grants"] > 0
    running = ranks(go)
    assert len(running) == 2
    scheduler.kill()
    scheduler.start()
    assert scheduler.client.job(job)["state"] == "running"
    assert ranks(go) == running
    eventually(lambda: scheduler.client.status()["workers"] == 1)
    go.touch()
    found = scheduler.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 1)
    assert same_weights(printed(scheduler, job))
    assert scheduler.client.status()["grants"] > 0  # From the second scheduler, on the same port.


@pytest.mark.parametrize("log_too", [False, True])
def test_jobs_of_a_lost_database_are_refused_and_then_adopted(
    scheduler: SchedulerProcess, tmp_path: Path, log_too: bool
) -> None:
    go = tmp_path / "plain"
    job = train(scheduler, go, name="kept")
    waits = scheduler.submit(python(PRINTS), gpus=2, retries=3)
    eventually(lambda: ["pausing"] in printed(scheduler, job), within_s=START_S)
    running = ranks(go)
    before = scheduler.client.job(job)
    scheduler.kill()
    for pattern in ("state.db*", "events*") if log_too else ("state.db*",):
        for path in scheduler.folder.glob(pattern):
            path.unlink()
    refused = subprocess.run(
        scheduler.command, capture_output=True, text=True, timeout=120, check=False
    )
    assert refused.returncode == 2, refused
    assert f"does not know the attempts {job}.1, which are running" in refused.stderr
    assert ranks(go) == running
    scheduler.options = ("--adopt",)
    try:
        scheduler.start()
    finally:
        scheduler.options = ()
    assert ranks(go) == running
    found = scheduler.client.job(job)
    assert (found["state"], found["slots"]) == ("running", before["slots"])
    assert found["spec"]["name"] == "kept"
    if not log_too:
        assert scheduler.client.job(waits)["state"] == "queued"
    go.touch()
    found = scheduler.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 1)
    assert same_weights(printed(scheduler, job))
    if not log_too:
        assert scheduler.wait_for(waits, "done", "failed")["state"] == "done"


def test_a_job_whose_worker_is_killed_is_retried(
    scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "plain"
    job = train(scheduler, go, retries=1)
    eventually(lambda: ["pausing"] in printed(scheduler, job), within_s=START_S)
    os.kill(ranks(go)[1], signal.SIGKILL)
    go.touch()
    eventually(lambda: scheduler.client.job(job)["attempts"] == 2)
    eventually(lambda: ["pausing"] in printed(scheduler, job), within_s=START_S)
    found = scheduler.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 2)
    assert same_weights(printed(scheduler, job))


def test_nodes_keep_their_names_and_stay_drained_after_a_restart(
    scheduler: SchedulerProcess,
) -> None:
    before = scheduler.client.nodes()
    [other] = [node["node"] for node in before if node["node"] != "twin"]
    assert other.startswith("twin-")
    scheduler.client.drain(other)
    scheduler.kill()
    scheduler.start()
    assert {node["node"]: node["draining"] for node in scheduler.client.nodes()} == {
        "twin": False,
        other: True,
    }
    job = scheduler.submit(python(PRINTS))
    scheduler.wait_for(job, "done")
    scheduler.client.drain(other, draining=False)


def test_a_scheduler_that_stops_while_launching_leaves_no_job_half_started(
    scheduler: SchedulerProcess,
) -> None:
    jobs = [scheduler.submit(python(PRINTS)) for _ in range(4)]
    assert scheduler.stop() == 0
    assert "Traceback" not in scheduler.log.read_text()
    scheduler.start()
    for job in jobs:
        found = scheduler.wait_for(job, "done", "failed")
        assert found["state"] == "done"
        assert b"".join(scheduler.client.logs(job)) == b"rank 0\n"
    eventually(lambda: not list(Path(os.environ["TMPDIR"]).glob("headway-*/shim.py")))


class Impatient(SchedulerProcess):
    """A scheduler that does not wait long for Ray's control service."""

    @property
    def command(self) -> list[str]:
        code = (
            "from headway.live.executors.ray import executor; executor.CONTROL_LOST_S = 1.0; "
            "from headway.__main__ import main; main()"
        )
        return [sys.executable, "-c", code, *super().command[3:]]


def control_service(address: str) -> int:
    """Return the process of a cluster's control service."""
    option = f"--gcs_server_port={address.rpartition(':')[2]}"
    [found] = [
        pid
        for pid in processes_with(option)
        if "gcs_server" in Path(f"/proc/{pid}/comm").read_text()
    ]
    return found


def test_a_scheduler_whose_cluster_has_lost_its_control_service_says_so_and_ends(
    tmp_path: Path,
) -> None:
    with running_cluster("only") as address:
        place = f'[executor]\nkind = "ray"\naddress = "{address}"\n'
        one = Impatient(tmp_path / "state", f"gate_port = {free_ports(1)[0]}\n{place}")
        job = one.submit(python(SLEEPS))
        one.wait_for(job, "running")
        os.kill(control_service(address), signal.SIGKILL)
        assert one.process.wait(PATIENCE_S) == 1
        (lost,) = one.wait_for_entries(1, event="executor failed; the scheduler is stopping")
        assert f"Ray's control service (GCS) at {address} has been unreachable" in lost["error"]
