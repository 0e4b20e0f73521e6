"""Real jobs that request each message from a real scheduler."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.threaded_gate import make_certificate
from headway import simulate
from headway import testbed as testbeds
from headway.live.replay import replay_folder
from headway.workload.files import read_workload, write_workload
from live.ports import free_ports
from live.scheduler_process import SchedulerProcess, python, running_scheduler
from waiting import eventually

pytestmark = pytest.mark.slow

NODES = '[executor]\nkind = "local"\nnodes = 2\nslots = 2\nmemory_mb = 1024\n'
"""A job with three slots fills one node and half of the other."""

ASKS = """
import os, sys, time
from headway.gate.environment import WorkerEnvironment
from headway.worker.client import GateClient
if os.environ["RANK"] != "0":
    sys.exit()
print(os.getpid(), flush=True)
gate = GateClient(WorkerEnvironment.from_variables(os.environ))
gate.wait_for_first_try(30)
messages, seconds = int(sys.argv[1]), float(sys.argv[2])
while messages > 0 or not os.path.exists(sys.argv[3]):
    messages -= 1
    request = gate.message_ready(25 * 2**20, 25 * 2**20)
    granted = gate.wait_for_grant(request)
    began = time.monotonic_ns()
    time.sleep(seconds)
    # In one piece: a warning of another thread may come between pieces.
    sys.stdout.write(f"{int(granted)} {began} {time.monotonic_ns()}\\n")
    gate.message_done(request)
"""


COMPUTES = """
import os, sys, time
from headway.gate.environment import WorkerEnvironment
from headway.worker.client import GateClient
rank = int(os.environ["RANK"])
environment = WorkerEnvironment.from_variables(os.environ)
gate = GateClient(environment, rank)
gate.wait_for_first_try(30)
for number in range(10):
    request = gate.compute_ready()
    granted = gate.wait_for_grant(request)
    began = time.monotonic_ns()
    time.sleep(0.01)
    ended = time.monotonic_ns()
    gate.compute_done(request)
    # In one piece: a warning of another thread may come between pieces.
    sys.stdout.write(f"{rank} {int(granted)} {began} {ended}\\n")
stray = GateClient(environment, 7)
stray.wait_for_first_try(30)
sys.stdout.write(f"{rank} {int(stray.wait_for_grant(stray.compute_ready()))} 0 0\\n")
"""


TRAINS = """
import time
import torch
import torch.distributed as dist
import headway.torch
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.01)
headway.torch.attach(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
dist.destroy_process_group()
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[SchedulerProcess]:
    # No lease ends before a slow machine has started the jobs that wait for it.
    with running_scheduler(tmp_path / "state", "lease_s = 600\n" + NODES) as one:
        yield one


def asking(
    one: SchedulerProcess, messages: int, seconds: float, script: str = ASKS, last: str = ""
) -> str:
    """Submit a job that shares its slots and whose messages cross the network.

    It ends after these messages, and not before the file `last` exists.
    """
    words = python(script, str(messages), str(seconds), last or "/")
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return one.submit(words, gpus=3, memory_bytes=2**20, environment=path)


def lines(one: SchedulerProcess, job: str) -> list[list[int]]:
    """Return the job's output: its process id, then granted, start and end of each message."""
    text = b"".join(one.client.logs(job)).decode()
    whole = text.split("\n")[:-1]  # The last line may not be there yet, or not all of it.
    printed = [line.split() for line in whole if line[:1].isdigit()]
    return [[int(word) for word in words] for words in printed]


def test_messages_that_share_a_node_are_granted_one_at_a_time_and_the_run_can_be_replayed(
    scheduler: SchedulerProcess,
) -> None:
    jobs = [asking(scheduler, 10, 0.01) for _ in range(3)]
    for job in jobs:
        assert scheduler.wait_for(job, "done", "failed")["state"] == "done"
    spans = sorted(
        (begin, end, granted) for job in jobs for granted, begin, end in lines(scheduler, job)[1:]
    )
    assert [granted for _, _, granted in spans] == [1] * 30
    assert all(end <= later[0] for (_, end, _), later in itertools.pairwise(spans))
    assert scheduler.client.status()["grants"] == 30
    scheduler.stop()
    assert_replays(scheduler)


def assert_replays(scheduler: SchedulerProcess) -> None:
    words = [sys.executable, "-m", "headway", "replay", str(scheduler.folder / "events.jsonl")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "the same decisions" in done.stdout) == (0, True), done


@pytest.mark.torch
def test_a_training_job_is_exported_as_the_graph_that_it_measured(
    scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    path = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    job = scheduler.submit(python(TRAINS), gpus=2, memory_bytes=2**20, environment=path)
    assert scheduler.wait_for(job, "done", "failed")["state"] == "done"
    scheduler.stop()
    (run,) = replay_folder(scheduler.folder)
    assert run.difference is None
    write_workload(run.history.workload(), tmp_path / "run.csv")
    (exported,) = read_workload(tmp_path / "run.csv")
    assert (exported.gpus, exported.iterations) == (2, 6)
    graph = exported.graph
    assert graph is not None
    buckets = len(graph.messages)
    assert buckets > 1
    assert sum(message.buffer_bytes for message in graph.messages) == 3 * 4 * (64 * 64 + 64)
    names = ["forward", *(f"backward-{n + 1}" for n in range(buckets)), "optimizer"]
    assert [task.name for task in graph.tasks] == names
    # The script sleeps for 20 ms between iterations.
    assert graph.tasks[-1].duration_ns > 20_000_000
    result = simulate(read_workload(tmp_path / "run.csv"), run.history.cluster())
    assert result.jct_s[0] > 6 * 0.02


def test_a_worker_killed_during_a_message_frees_its_grant(
    scheduler: SchedulerProcess,
) -> None:
    holds = asking(scheduler, 1, 600)
    eventually(lambda: scheduler.client.nodes()[0]["messages"])
    waits = asking(scheduler, 1, 0)
    waiting = eventually(lambda: scheduler.client.nodes()[0]["waiting"])
    assert waiting[0]["job_id"] == waits
    assert waiting[0]["why"].startswith("its all-reduce of 25 MB waits: 1 message on node1 (job ")
    os.kill(eventually(lambda: lines(scheduler, holds))[0][0], signal.SIGKILL)
    assert scheduler.wait_for(waits, "done", "failed")["state"] == "done"
    assert scheduler.wait_for(holds, "failed")["state"] == "failed"


def test_a_worker_waiting_for_a_grant_is_released_when_its_job_is_cancelled(
    scheduler: SchedulerProcess,
) -> None:
    asking(scheduler, 1, 600)
    eventually(lambda: scheduler.client.nodes()[0]["messages"])
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + ASKS
    waits = asking(scheduler, 1, 0, script=deaf)
    eventually(lambda: scheduler.client.nodes()[0]["waiting"])
    scheduler.client.cancel(waits)
    scheduler.wait_for(waits, "cancelled")
    # It ignores SIGTERM: without a response it would have waited until it was killed.
    assert [line[0] for line in lines(scheduler, waits)[1:]] == [0]


def test_workers_reach_the_gate_over_tcp_with_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    [port] = free_ports(1)
    settings = f'gate_host = "127.0.0.1"\ngate_port = {port}\n'
    settings += f'certificate = "{certificate}"\nkey = "{key}"\n'
    with running_scheduler(tmp_path / "state", settings + NODES) as one:
        place = {"HEADWAY_GATE": f"tcp:127.0.0.1:{port}", "HEADWAY_GATE_CERT": str(certificate)}
        job = asking(one, 5, 0.01, script=f"import os; os.environ.update({place})" + ASKS)
        assert one.wait_for(job, "done", "failed")["state"] == "done"
        assert [line[0] for line in lines(one, job)[1:]] == [1] * 5
        assert one.client.status()["grants"] == 5
        del place["HEADWAY_GATE_CERT"]  # Plain text gets no response: it continues ungated.
        job = asking(one, 1, 0, script=f"import os; os.environ.update({place})" + ASKS)
        assert one.wait_for(job, "done", "failed")["state"] == "done"
        assert [line[0] for line in lines(one, job)[1:]] == [0]


@pytest.mark.root
def test_jobs_on_the_hosts_of_a_testbed_are_gated(tmp_path: Path) -> None:
    bed = testbeds.Testbed(f"d{os.getpid()}", hosts=2, rate_mbit=200)
    assert testbeds.up(bed)
    try:
        place = f'[executor]\nkind = "testbed"\ntestbed = "{bed.name}"\nslots = 2\n'
        with running_scheduler(tmp_path / "state", place + "memory_mb = 1024\n") as one:
            assert [node["node"] for node in one.client.nodes()] == ["host1", "host2"]
            jobs = [asking(one, 5, 0.01) for _ in range(2)]
            for job in jobs:
                found = one.wait_for(job, "done", "failed")
                assert found["state"] == "done", found["reason"]
            spans = sorted((line[1], line[2]) for job in jobs for line in lines(one, job)[1:])
            assert len(spans) == 10
            assert all(end <= later[0] for (_, end), later in itertools.pairwise(spans))
            assert one.client.status()["grants"] == 10
    finally:
        testbeds.down(bed.name)


def test_training_continues_ungated_without_a_scheduler_and_uses_the_next_one(
    scheduler: SchedulerProcess,
) -> None:
    last = scheduler.folder.with_name("last")
    job = asking(scheduler, 1, 0.01, last=str(last))
    eventually(lambda: len(lines(scheduler, job)) > 5)
    output = scheduler.folder / "attempts" / f"{job}.1" / "rank-0.log"
    before = output.read_text().count("\n")
    scheduler.kill()
    eventually(lambda: output.read_text().count("\n") > before + 10)
    scheduler.start()
    eventually(lambda: scheduler.client.status()["grants"] > 5)
    last.touch()
    found = scheduler.wait_for(job, "done", "failed")
    assert (found["state"], found["attempts"]) == ("done", 1)
    granted = [line[0] for line in lines(scheduler, job)[1:]]
    assert granted[0] == 1
    assert 1 in granted[granted.index(0) :]


def test_gated_ranks_compute_one_at_a_time_on_a_shared_slot(
    scheduler: SchedulerProcess,
) -> None:
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    jobs = [
        scheduler.submit(python(COMPUTES), gpus=2, memory_bytes=2**20, environment=path)
        for _ in range(3)
    ]
    for job in jobs:
        assert scheduler.wait_for(job, "done", "failed")["state"] == "done"
    printed = []
    for job, rank in itertools.product(jobs, range(2)):
        text = (scheduler.folder / "attempts" / f"{job}.1" / f"rank-{rank}.log").read_text()
        words = [line.split() for line in text.splitlines() if line[:1].isdigit()]
        printed += [[int(word) for word in line] for line in words]
    for rank in range(2):
        spans = sorted(line[2:] for line in printed if line[0] == rank and line[2] > 0)
        assert len(spans) == 30
        assert all(end <= later for (_, end), (later, _) in itertools.pairwise(spans))
    # A rank without a slot is refused and continues ungated.
    assert [granted for _, granted, begin, _ in printed if begin == 0] == [0] * 6
    assert all(granted for _, granted, begin, _ in printed if begin > 0)
    assert scheduler.client.status()["grants"] == 0
    scheduler.stop()
    assert_replays(scheduler)
