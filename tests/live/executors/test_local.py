"""The local executor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.live.core.events import JobSpec
from headway.live.executors import Attempt
from headway.live.executors.attempt_tracker import Outcome
from headway.live.executors.local import executor as local_executor_module
from headway.live.executors.local.nodes import this_machine
from headway.live.executors.local.shim_process import final_outcome
from headway.live.executors.node_tools import FOLDER_LOST
from headway.live.executors.rank_plans import LaunchNode
from live.executors.helpers import NODES, job, local_executor, make_slots, processes_with
from waiting import eventually_async

pytestmark = pytest.mark.slow

A = Attempt("a", 1)
TELL = "import json, os, sys; print(json.dumps(dict(os.environ)))"
SLEEP = "import time; time.sleep(600)"


def test_ranks_have_the_variables_of_torchrun(tmp_path: Path) -> None:
    async def run() -> list[dict[str, str]]:
        async with local_executor(tmp_path) as (executor, handler):
            spec = job(TELL, environment={"MINE": "1", "RANK": "9"})
            await executor.launch(A, spec, make_slots("n2:3", "n1:0", "n2:1"), {"HEADWAY_JOB": "a"})
            assert (await handler.end_of(A)).code == 0
            return [json.loads(executor.log(A, rank).read_text()) for rank in range(3)]

    told = asyncio.run(run())
    for rank, (local_rank, local_size, group) in enumerate([(0, 2, 0), (0, 1, 1), (1, 2, 0)]):
        wanted = {
            "RANK": rank,
            "WORLD_SIZE": 3,
            "LOCAL_RANK": local_rank,
            "LOCAL_WORLD_SIZE": local_size,
            "GROUP_RANK": group,
            "GROUP_WORLD_SIZE": 2,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": 3,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": told[0]["MASTER_PORT"],
            "TORCHELASTIC_RUN_ID": "a.1",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "HEADWAY_JOB": "a",
            "MINE": "1",
        }
        assert {name: told[rank][name] for name in wanted} == {
            name: str(value) for name, value in wanted.items()
        }
        assert "CUDA_VISIBLE_DEVICES" not in told[rank] or "CUDA_VISIBLE_DEVICES" in os.environ


def test_a_rank_sees_the_gpus_of_its_job_in_the_order_of_local_ranks(tmp_path: Path) -> None:
    async def run() -> list[str]:
        node = LaunchNode("n1", 4, 2**30, cuda=True)
        async with local_executor(tmp_path, [node]) as (executor, handler):
            code = "import os; print(os.environ['LOCAL_RANK'], os.environ['CUDA_VISIBLE_DEVICES'])"
            await executor.launch(A, job(code), make_slots("n1:3", "n1:1"), {})
            await handler.end_of(A)
            return [executor.log(A, rank).read_text().strip() for rank in range(2)]

    assert asyncio.run(run()) == ["0 3,1", "1 3,1"]


def test_concurrent_jobs_have_different_rendezvous_ports(tmp_path: Path) -> None:
    async def run() -> set[str]:
        async with local_executor(tmp_path) as (executor, handler):
            attempts = [Attempt(str(number), 1) for number in range(5)]
            code = "import os, time; print(os.environ['MASTER_PORT']); time.sleep(600)"
            for attempt in attempts:
                await executor.launch(attempt, job(code), make_slots("n1:0"), {})
            logs = [executor.log(attempt, 0) for attempt in attempts]
            await eventually_async(lambda: all(log.exists() and log.read_text() for log in logs))
            for attempt in attempts:
                await executor.stop(attempt)
            for attempt in attempts:
                await handler.end_of(attempt)
            return {log.read_text() for log in logs}

    assert len(asyncio.run(run())) == 5


def test_a_script_gets_its_arguments_and_folder_unchanged(tmp_path: Path) -> None:
    words = ["a b", "$(touch broken)", "*", "", "--", "ü\n"]

    async def run() -> list[str]:
        async with local_executor(tmp_path / "state") as (executor, handler):
            code = "import json, os, sys; print(json.dumps([os.getcwd(), *sys.argv[1:]]))"
            await executor.launch(
                A, job(code, *words, folder=str(tmp_path)), make_slots("n1:0"), {}
            )
            await handler.end_of(A)
            return json.loads(executor.log(A, 0).read_text())  # type: ignore[no-any-return]

    assert asyncio.run(run()) == [str(tmp_path), *words]
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_the_standard_input_of_a_script_is_empty(tmp_path: Path) -> None:
    async def run() -> str:
        async with local_executor(tmp_path) as (executor, handler):
            await executor.launch(
                A, job("import sys; print(repr(sys.stdin.read()))"), make_slots("n1:0"), {}
            )
            assert (await handler.end_of(A)).code == 0
            return executor.log(A, 0).read_text()

    assert asyncio.run(run()) == "''\n"


FAILURES = [
    ("print('so')", 0, ""),
    ("import sys; sys.exit(3)", 3, "rank 1 exited with 3"),
    ("raise ValueError('no \\x1b[31m data')", 1, "rank 1 exited with 1: ValueError: no [31m data"),
    ("import os; os.kill(os.getpid(), 9)", 137, "rank 1 was killed by SIGKILL"),
    ("import os; os.kill(os.getpid(), 35)", 163, "rank 1 was killed by signal 35"),
]


@pytest.mark.parametrize(("code", "exit_code", "reason"), FAILURES)
def test_a_failed_rank_ends_the_others_and_is_the_reason(
    tmp_path: Path, code: str, exit_code: int, reason: str
) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            word = str(tmp_path)
            waits = f"import os, time\nif os.environ['RANK'] == '1': {code}\n"
            waits += f"else: time.sleep({600 if exit_code else 0})"
            await executor.launch(A, job(waits, word), make_slots("n1:0", "n1:1", "n2:0"), {})
            ended = await handler.end_of(A)
            assert (ended.code, ended.reason) == (exit_code, reason)
            assert processes_with(word) == []

    asyncio.run(run())


NO_START = [
    (JobSpec(command=("no-such-program",)), "No such file or directory: no-such-program"),
    (JobSpec(command=("/proc/version",)), "Permission denied: /proc/version"),
    (job("pass", folder="/no/such/folder"), "No such file or directory: /no/such/folder"),
    (job("pass", "nul\0"), "embedded null byte"),
    (job("pass", environment={"A=B": "C"}), "illegal environment variable name"),
]


@pytest.mark.parametrize(("spec", "reason"), NO_START)
def test_a_rank_that_cannot_start_ends_the_attempt(
    tmp_path: Path, spec: JobSpec, reason: str
) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            await executor.launch(A, spec, make_slots("n1:0"), {})
            ended = await handler.end_of(A)
            assert (ended.code, ended.reason) == (127, f"rank 0 could not start: {reason}")

    asyncio.run(run())


def test_an_unknown_node_ends_the_attempt(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            await executor.launch(A, job("pass"), make_slots("n9:0"), {})
            assert (await handler.end_of(A)).reason == "could not start: there is no node n9"
            assert list(tmp_path.iterdir()) == []

    asyncio.run(run())


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1); "
CHILDREN = (
    "import os, subprocess, sys, time; w = sys.argv[1:]; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', *w]); "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', *w], "
    "start_new_session=True); print(1); "
)


@pytest.mark.parametrize(
    ("code", "processes"),
    [(SLEEP, 1), (STUBBORN + SLEEP, 1), (CHILDREN + SLEEP, 3), (CHILDREN + STUBBORN + SLEEP, 3)],
    ids=["a plain one", "one that ignores SIGTERM", "one with children", "a stubborn family"],
)
def test_a_stopped_attempt_leaves_no_process(tmp_path: Path, code: str, processes: int) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            word = str(tmp_path)
            await executor.launch(A, job(code, word), make_slots("n1:0", "n2:0"), {})
            await eventually_async(lambda: len(processes_with(word)) == 2 * processes)
            await asyncio.gather(executor.stop(A), executor.stop(A))
            ended = await handler.end_of(A)
            assert (ended.code, ended.reason) == (143, "stopped")
            assert processes_with(word) == []

    asyncio.run(run())


def test_children_that_outlive_their_script_end_with_the_attempt(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            await executor.launch(A, job(CHILDREN, str(tmp_path)), make_slots("n1:0"), {})
            assert (await handler.end_of(A)).code == 0
            assert processes_with(str(tmp_path)) == []

    asyncio.run(run())


def test_a_stop_during_the_launch_takes_effect(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            launch = asyncio.create_task(executor.launch(A, job(SLEEP), make_slots("n1:0"), {}))
            await asyncio.sleep(0)
            await executor.stop(A)
            await launch
            assert (await handler.end_of(A)).reason == "stopped"

    asyncio.run(run())


def test_an_attempt_is_started_once_and_reported_once(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def run() -> None:
        async with local_executor(tmp_path / "state") as (executor, handler):
            spec = job("import sys; open(sys.argv[1], 'a').write('x')", str(mark))
            launches = (executor.launch(A, spec, make_slots("n1:0"), {}) for _ in range(3))
            await asyncio.gather(*launches)
            await handler.end_of(A)
            assert await executor.recover([A]) == []
            assert len(handler.ends) == 1
            # Starting it again is reported as never started.
            await executor.launch(A, spec, make_slots("n1:0"), {})
            assert (handler.ends[1].attempt, handler.ends[1].code) == (A, -1)
        async with local_executor(tmp_path / "state") as (executor, handler):
            await executor.launch(A, spec, make_slots("n1:0"), {})
            assert (await handler.end_of(A)).code == -1
            await executor.stop(A)

    asyncio.run(run())
    assert mark.read_text() == "x"


def test_ranks_end_when_the_shim_is_killed(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            word = str(tmp_path)
            await executor.launch(A, job(CHILDREN + SLEEP, word), make_slots("n1:0", "n2:0"), {})
            await eventually_async(lambda: len(processes_with(word)) == 6)
            os.kill(processes_with(f"{tmp_path}/a.1")[0], signal.SIGKILL)
            ended = await handler.end_of(A)
            assert (ended.code, ended.reason) == (137, "its shim was killed")
            assert processes_with(word) == []

    asyncio.run(run())


def test_a_shim_that_does_not_react_is_killed(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path, grace_s=-4.9) as (executor, handler):
            await executor.launch(A, job(SLEEP, str(tmp_path)), make_slots("n1:0"), {})
            await eventually_async(lambda: processes_with(str(tmp_path)))
            os.kill(processes_with(f"{tmp_path}/a.1")[0], signal.SIGSTOP)
            await executor.stop(A)
            assert (await handler.end_of(A)).reason == "its shim was killed"
            assert processes_with(str(tmp_path)) == []

    asyncio.run(run())


def test_an_attempt_without_folder_and_shim_has_failed(tmp_path: Path) -> None:
    removes = "import os, shutil; shutil.rmtree(os.environ['HEADWAY_ATTEMPT_FOLDER']); "

    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            spec = job(removes + "os.kill(os.getppid(), 9)")
            await executor.launch(A, spec, make_slots("n1:0"), {})
            ended = await handler.end_of(A)
            assert (ended.code, ended.reason) == FOLDER_LOST

    asyncio.run(run())


def test_an_end_is_reported_after_a_moment_without_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def without_memory_at_first(folder: Path) -> Outcome | None:
        calls.append(folder)
        if len(calls) == 1:
            raise MemoryError
        return final_outcome(folder)

    monkeypatch.setattr(local_executor_module, "RETRY_S", 0.01)
    monkeypatch.setattr(local_executor_module, "final_outcome", without_memory_at_first)

    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            await executor.launch(A, job("raise SystemExit(4)"), make_slots("n1:0"), {})
            assert (await handler.end_of(A)).code == 4

    asyncio.run(run())
    assert len(calls) == 2


def test_a_hundred_quick_jobs_leave_nothing_behind(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            before = len(os.listdir("/proc/self/fd"))
            attempts = [Attempt(str(number), 1) for number in range(100)]
            for ten in range(0, 100, 10):
                some = attempts[ten : ten + 10]
                for attempt in some:
                    await executor.launch(
                        attempt, job("pass", str(tmp_path)), make_slots("n1:0"), {}
                    )
                for attempt in some:
                    assert (await handler.end_of(attempt)).code == 0
            # A thread may still look for old folders.
            await eventually_async(lambda: len(os.listdir("/proc/self/fd")) == before)

    children = _children()
    asyncio.run(run())
    assert processes_with(str(tmp_path)) == []
    assert _children() <= children


def _children() -> set[int]:
    """Return the children of this process, also ended ones that nobody has waited for."""
    paths = Path("/proc/self/task").glob("*/children")
    return {int(pid) for path in paths for pid in path.read_text().split()}


def test_any_job_id_has_its_own_folder(tmp_path: Path) -> None:
    names = ["../up", ".", "..", "a/b", "a.1", "ü", ""]

    async def run() -> None:
        async with local_executor(tmp_path / "state") as (executor, handler):
            for name in names:
                await executor.launch(Attempt(name, 2), job("pass"), make_slots("n1:0"), {})
                assert (await handler.end_of(Attempt(name, 2))).code == 0
            too_long = Attempt("x" * 300, 1)
            await executor.launch(too_long, job("pass"), make_slots("n1:0"), {})
            assert (await handler.end_of(too_long)).reason == "could not start: File name too long"

    asyncio.run(run())
    assert len(list((tmp_path / "state").iterdir())) == len(names)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.torch
def test_two_ranks_meet_with_gloo(tmp_path: Path) -> None:
    code = (
        "import torch, torch.distributed as dist; dist.init_process_group('gloo'); "
        "x = torch.ones(4) * (1 + dist.get_rank()); dist.all_reduce(x); print(x.tolist()); "
        "dist.destroy_process_group()"
    )

    async def run() -> None:
        async with local_executor(tmp_path, [this_machine(2)]) as (executor, handler):
            spec = JobSpec(command=(sys.executable, "-c", code))
            await executor.launch(A, spec, make_slots("localhost:0", "localhost:1"), {})
            ended = await handler.end_of(A)
            assert ended.code == 0, ended
            for rank in range(2):
                assert "[3.0, 3.0, 3.0, 3.0]" in executor.log(A, rank).read_text()

    asyncio.run(run())


def test_this_machine_has_a_slot_per_core_or_as_many_as_requested() -> None:
    machine = this_machine()
    if machine.cuda:
        pytest.skip("this machine has GPUs")
    assert machine.gpus == len(os.sched_getaffinity(0))
    assert this_machine(64, 2**20).executor_node().gpus == 64
    with pytest.raises(InputError, match="at least 1"):
        this_machine(0)


def test_start_returns_the_nodes(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            assert await executor.start(handler) == [node.executor_node() for node in NODES]

    asyncio.run(run())
