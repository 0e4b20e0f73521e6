"""What every executor must do, on each of them: the same jobs on two nodes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.live.executors import Attempt
from headway.live.executors.attempt_folders import folder_name
from live.executors.executor_process import ExecutorProcess
from live.executors.helpers import job, processes_with
from live.executors.ray_on_testbed import ONE, TWO
from live.slurm_cluster import SlurmOnThisMachine
from waiting import eventually

pytestmark = pytest.mark.slow

A = Attempt("a", 1)
TELL = "import json, os, sys; print(json.dumps(dict(os.environ)))"
SLEEP = "import time; print('begun'); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
CHILD = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', "
    "'import time; time.sleep(600)', *sys.argv[1:]], start_new_session=True); "
)
UNTIL_TOLD = (
    "import os, sys, time\nprint('begun')\n"
    "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    "print('ended'); sys.exit(4)"
)


class Kind:
    """An executor: how to start it, and two of its nodes."""

    def __init__(self, one: str, two: str) -> None:
        self.one, self.two = one, two

    def start(self, folder: Path) -> ExecutorProcess:
        """Start it in a process of its own."""
        raise NotImplementedError

    def processes_with(self, word: str) -> list[int]:
        """Return the processes of its jobs that have a word among their arguments."""
        return processes_with(word)


class Local(Kind):
    def start(self, folder: Path) -> ExecutorProcess:
        return ExecutorProcess("local", str(folder))


class Ray(Kind):
    def __init__(self, cluster: Any) -> None:
        super().__init__(ONE, TWO)
        self._cluster = cluster

    def start(self, folder: Path) -> ExecutorProcess:
        return self._cluster.scheduler(folder)  # type: ignore[no-any-return]

    def processes_with(self, word: str) -> list[int]:
        return self._cluster.processes_with(word)  # type: ignore[no-any-return]


class Slurm(Kind):
    def __init__(self, cluster: SlurmOnThisMachine, *words: str) -> None:
        super().__init__(*(("node1", "node2") if words[0] == "slurm" else ("node3", "node4")))
        self._words, self._environment = words, os.environ | cluster.environment

    def start(self, folder: Path) -> ExecutorProcess:
        name, *others = self._words
        return ExecutorProcess(name, str(folder), *others, env=self._environment)


@contextlib.contextmanager
def allocation(cluster: SlurmOnThisMachine) -> Iterator[str]:
    """Hold two nodes for the duration of a with block."""
    found = cluster.run(
        *("sbatch", "--parsable", "--nodelist=node1,node2", "--exclusive", "--output=/dev/null"),
        "--wrap=exec sleep infinity",
    ).strip()
    eventually(lambda: cluster.run("squeue", "--noheader", f"--jobs={found}", "-o%t") == "R\n")
    yield found
    cluster.run("scancel", found)


@pytest.fixture(
    scope="module",
    params=[
        "local",
        pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.root]),
        pytest.param("slurm", marks=pytest.mark.slurm),
        pytest.param("slurm-batch", marks=pytest.mark.slurm),
    ],
)
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    if request.param == "local":
        yield Local("n1", "n2")
    elif request.param == "ray":
        yield Ray(request.getfixturevalue("ray_cluster"))
    elif request.param == "slurm":
        cluster = request.getfixturevalue("slurm_cluster")
        with allocation(cluster) as found:
            yield Slurm(cluster, "slurm", found)
    else:
        yield Slurm(request.getfixturevalue("slurm_cluster"), "slurm-batch", "batch")


def log(folder: Path, attempt: Attempt, rank: int) -> str:
    return (folder / folder_name(attempt) / f"rank-{rank}.log").read_text()


def test_ranks_have_the_variables_of_torchrun(kind: Kind, tmp_path: Path) -> None:
    with kind.start(tmp_path / "state") as executor:
        spec = job(TELL, environment={"MINE": "1", "RANK": "9"})
        executor.launch(A, spec, f"{kind.two}:0", f"{kind.one}:0", f"{kind.two}:1")
        assert executor.next_end().code == 0
    told = [json.loads(log(tmp_path / "state", A, rank)) for rank in range(3)]
    for rank, (local_rank, local_size, group) in enumerate([(0, 2, 0), (0, 1, 1), (1, 2, 0)]):
        wanted = {
            "RANK": rank,
            "WORLD_SIZE": 3,
            "LOCAL_RANK": local_rank,
            "LOCAL_WORLD_SIZE": local_size,
            "GROUP_RANK": group,
            "GROUP_WORLD_SIZE": 2,
            "MASTER_ADDR": told[0]["MASTER_ADDR"],
            "MASTER_PORT": told[0]["MASTER_PORT"],
            "TORCHELASTIC_RUN_ID": "a.1",
            "MINE": "1",
        }
        assert {name: told[rank][name] for name in wanted} == {
            name: str(value) for name, value in wanted.items()
        }


FAILURES = [
    ("print('no'); sys.exit(3)", 3, "rank 1 exited with 3: no"),
    ("os.kill(os.getpid(), 9)", 137, "rank 1 was killed by SIGKILL"),
]


def test_a_failed_rank_ends_the_others_and_is_the_reason(kind: Kind, tmp_path: Path) -> None:
    with kind.start(tmp_path / "state") as executor:
        for number, (code, exit_code, reason) in enumerate(FAILURES):
            fails = f"import os, sys, time\nif os.environ['RANK'] == '1': {code}\ntime.sleep(600)"
            executor.launch(
                Attempt("a", number), job(fails, str(tmp_path)), f"{kind.one}:0", f"{kind.two}:0"
            )
            ended = executor.next_end()
            assert (ended.code, ended.reason) == (exit_code, reason)
            assert kind.processes_with(str(tmp_path)) == []


def test_how_an_attempt_ended_is_known_although_it_removed_its_folder(
    kind: Kind, tmp_path: Path
) -> None:
    removes = (
        "import os, shutil, sys; shutil.rmtree(os.environ['HEADWAY_ATTEMPT_FOLDER']); "
        "sys.exit(int(sys.argv[1]))"
    )
    with kind.start(tmp_path / "state") as one:
        for number, code in enumerate((0, 4), start=1):
            attempt = Attempt("a", number)
            one.launch(attempt, job(removes, str(code)), f"{kind.one}:0")
            ended = one.next_end()
            assert (ended.attempt, ended.code) == (attempt, code)


def test_an_attempt_that_cannot_start_says_why(kind: Kind, tmp_path: Path) -> None:
    with kind.start(tmp_path / "state") as executor:
        executor.launch(A, job("pass", folder="/no/such"), f"{kind.two}:0")
        ended = executor.next_end()
        assert (ended.code, ended.reason) == (
            127,
            "rank 0 could not start: No such file or directory: /no/such",
        )
        executor.launch(Attempt("b", 1), job("pass"), "n9:0")
        ended = executor.next_end()
        assert (ended.code, ended.reason) == (-1, "could not start: there is no node n9")


@pytest.mark.parametrize("code", [SLEEP, CHILD + STUBBORN + SLEEP], ids=["plain", "stubborn"])
def test_a_stopped_attempt_leaves_no_process(kind: Kind, tmp_path: Path, code: str) -> None:
    with kind.start(tmp_path / "state") as executor:
        executor.launch(A, job(code, str(tmp_path)), f"{kind.one}:0", f"{kind.two}:0")
        count = 4 if code.startswith(CHILD) else 2
        eventually(lambda: len(kind.processes_with(str(tmp_path))) == count)
        executor.send(do="stop", attempt={"job_id": "a", "number": 1})
        executor.send(do="stop", attempt={"job_id": "a", "number": 1})
        ended = executor.next_end()
        assert (ended.code, ended.reason) == (143, "stopped")
        assert kind.processes_with(str(tmp_path)) == []


def test_an_attempt_can_be_stopped_as_soon_as_it_is_launched(kind: Kind, tmp_path: Path) -> None:
    with kind.start(tmp_path / "state") as executor:
        executor.launch(A, job(SLEEP, str(tmp_path)), f"{kind.one}:0")
        executor.send(do="stop", attempt={"job_id": "a", "number": 1})
        assert executor.next_end().reason == "stopped"
        assert kind.processes_with(str(tmp_path)) == []


def test_an_attempt_is_started_once(kind: Kind, tmp_path: Path) -> None:
    mark, state = tmp_path / "mark", tmp_path / "state"
    spec = job("import sys; open(sys.argv[1], 'a').write('x')", str(mark))
    with kind.start(state) as executor:
        executor.launch(A, spec, f"{kind.one}:0")
        assert executor.next_end().code == 0
        executor.launch(A, spec, f"{kind.one}:0")
        assert executor.next_end().code == -1
    assert mark.read_text() == "x"
    if isinstance(kind, Ray):
        return  # Nothing on its nodes remembers an attempt that has ended.
    with kind.start(state) as executor:
        executor.launch(A, spec, f"{kind.one}:0")
        assert executor.next_end().code == -1
    assert mark.read_text() == "x"


def test_any_job_id_has_its_own_folder(kind: Kind, tmp_path: Path) -> None:
    names = ["../up", "a/b", "a.1", "ü %j"]
    with kind.start(tmp_path / "state") as executor:
        for name in names:
            executor.launch(Attempt(name, 2), job("print('so')"), f"{kind.one}:0")
            assert executor.next_end().code == 0
    assert [log(tmp_path / "state", Attempt(name, 2), 0) for name in names] == ["so\n"] * len(names)


def test_jobs_continue_without_their_scheduler_and_the_next_one_finds_them(
    kind: Kind, tmp_path: Path
) -> None:
    long, short, other = (str(tmp_path / name) for name in ("long", "short", "other"))
    state = tmp_path / "state"
    with kind.start(state) as first:
        first.launch(Attempt("long", 1), job(UNTIL_TOLD, long), f"{kind.one}:0", f"{kind.two}:0")
        first.launch(Attempt("short", 1), job(UNTIL_TOLD, short), f"{kind.two}:1")
        first.launch(Attempt("other", 1), job(UNTIL_TOLD, other), f"{kind.one}:1")
        eventually(lambda: all(map(kind.processes_with, (short, other))))
        eventually(lambda: len(kind.processes_with(long)) == 2)
        first.kill()
    Path(short).touch()
    eventually(lambda: kind.processes_with(short) == [])
    # The process that ran it writes down how it ended.
    eventually(lambda: processes_with(str(state / "short.1")) == [])
    with kind.start(state) as second:
        known = [{"job_id": name, "number": 1} for name in ("long", "short", "never")]
        second.send(do="recover", known=known)
        assert second.next_report("running") == [{"job_id": "long", "number": 1}]
        ended = second.next_end()
        assert (ended.attempt.job_id, ended.code) == ("short", 4)
        assert kind.processes_with(other) == []
        # A running attempt is not started again.
        second.launch(Attempt("long", 1), job(UNTIL_TOLD, long), f"{kind.one}:0", f"{kind.two}:0")
        assert len(kind.processes_with(long)) == 2
        Path(long).touch()
        last = second.next_end()
        assert (last.attempt.job_id, last.code) == ("long", 4)
    said = [log(state, Attempt("long", 1), rank) for rank in range(2)]
    assert "begun\nended\n" in said
