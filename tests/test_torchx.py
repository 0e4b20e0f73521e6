"""TorchX apps become jobs, and TorchX's commands work on a real scheduler."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torchx.components import dist, utils
from torchx.runner import Runner
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.api import Stream
from torchx.specs import (
    AppDef,
    AppState,
    AppStatus,
    BindMount,
    InvalidRunConfigException,
    Resource,
    Role,
)

from headway.domain.errors import HeadwayError
from headway.live.core.events import JobSpec
from headway.torchx.scheduler import HeadwayScheduler, TorchXError
from live.scheduler_process import FINISHED, SLEEPS, SchedulerProcess, running_scheduler
from waiting import PATIENCE_S, eventually

TRAIN = """\
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = torch.ones(1)
dist.all_reduce(ranks)
# Whole lines: unbuffered, `print` writes words, and what other threads say may come in between.
if dist.get_rank() == 0:
    os.write(2, f"ranks: {int(ranks)}\\n".encode())
os.write(1, f"arguments: {sys.argv[1:]}\\n".encode())
os.write(1, f"job: {os.environ['TORCHX_JOB_ID']}\\n".encode())
dist.destroy_process_group()
"""


def make_app(**fields: Any) -> AppDef:
    """Return an app of one role that runs `train --fast`."""
    role = Role(name="trainer", image="", entrypoint="train", args=["--fast"])
    return AppDef(name="mine", roles=[dataclasses.replace(role, **fields)])


def spec_of(app: AppDef, **options: Any) -> JobSpec:
    spec = HeadwayScheduler("session").submit_dryrun(app, options).request
    assert isinstance(spec, JobSpec)
    return spec


def test_torchx_finds_the_scheduler_by_its_entry_point() -> None:
    scheduler = get_scheduler_factories()["headway"]("session")
    assert (scheduler.backend, scheduler.session_name) == ("headway", "session")


def test_a_role_becomes_a_job_with_a_rank_for_each_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = make_app(num_replicas=3, max_retries=2, env={"SEED": "1"}, resource=Resource(4, 1, 100))
    assert spec_of(app) == JobSpec(
        command=("train", "--fast"),
        gpus=3,
        retries=2,
        name="mine",
        folder=str(tmp_path),
        environment={"SEED": "1", "ROLE_NAME": "trainer"},
    )


def test_torchrun_of_dist_ddp_becomes_ranks_and_the_app_stays_as_it_was() -> None:
    app = dist.ddp("--rate", "a b", script="train.py", j="2x4", gpu=4, max_retries=1)
    before = dataclasses.asdict(app)
    for _ in range(2):
        spec = spec_of(app)
        assert spec.command == (sys.executable, "train.py", "--rate", "a b")
        assert (spec.gpus, spec.retries, spec.name) == (8, 1, "train")
        assert spec.environment["ROLE_NAME"] == "train"
    assert dataclasses.asdict(app) == before


def test_options_say_what_an_app_cannot() -> None:
    options = {"iterations": 5, "model": "resnet50", "priority": -1, "folder": "/data"}
    spec = spec_of(make_app(), **options)
    assert (spec.iterations, spec.model, spec.priority) == (5, "resnet50", -1)
    assert (spec.folder, spec.forward_ns, spec.memory_bytes) == ("/data", 25_000_000, 3213 << 20)
    assert spec_of(make_app(), memory_mb=100, model="resnet50").memory_bytes == 100 << 20


def test_macros_are_filled_in_for_each_rank() -> None:
    app = make_app(
        entrypoint="printenv",
        args=["ID", "$$HOME", "'${replica_id}'", "${img_root}/a b", "${rank0_env}", ""],
        env={"ID": "${app_id} of ${replica_id}"},
    )
    spec = spec_of(app)
    script = spec.command[2].replace("exec printenv", "exec python -c", 1)
    assert spec.command == ("sh", "-c", spec.command[2])
    code = "import os, sys; print([os.environ['ID'], *sys.argv[1:]])"
    ranks = {"HEADWAY_JOB": "7", "RANK": "1", "PATH": str(Path(sys.executable).parent)}
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace(" ID ", f' "{code}" ', 1)],
        env=ranks,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['7 of 1', '$HOME', \"'1'\", '/a b', 'MASTER_ADDR', '']\n"


REFUSED: dict[str, tuple[AppDef, str]] = {
    "two roles": (
        AppDef("mine", make_app().roles * 2),
        "app mine: has 2 roles; Headway runs apps with one role",
    ),
    "mounts": (make_app(mounts=[BindMount("/a", "/b")]), "role trainer: mounts are not supported"),
    "elastic": (
        dist.ddp(script="train.py", j="1:2x4"),
        "role train: cannot run with 1 to 2 replicas",
    ),
    "idle GPUs": (
        dist.ddp(script="train.py", j="1x2", gpu=4),
        "role train: asks for 4 GPUs for 2 processes in each replica",
    ),
    "a process with two GPUs": (
        make_app(resource=Resource(1, 2, 1)),
        "role trainer: asks for 2 GPUs for 1 processes",
    ),
    "nodes": (
        make_app(entrypoint="torchrun", args=["--nnodes", "2", "train.py"]),
        "role trainer: has 1 replicas, but torchrun has --nnodes 2.",
    ),
    "torchrun in a script": (
        make_app(entrypoint="sh", args=["-c", "cd x; torchrun y"]),
        "role trainer: args: runs torchrun among other things",
    ),
    "a reserved variable": (
        make_app(env={"HEADWAY_JOB": "${app_id}"}),
        "environment: HEADWAY_JOB is set by the scheduler.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_app_that_cannot_run_is_refused_in_one_line(case: str) -> None:
    app, problem = REFUSED[case]
    with pytest.raises(TorchXError) as caught:
        spec_of(app)
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"iteration": 5}, "-cfg: unknown option 'iteration'. Did you mean 'iterations'?"),
        ({"iterations": 0}, "iterations: must be at least 1, not 0."),
        ({"memory_mb": -1}, "memory_mb: must be 0 or more MB, not -1."),
        ({"model": "resnt50"}, "model: unknown model 'resnt50'. Did you mean 'resnet50'?"),
        ({"priority": 10**9}, "priority: must be at most 1,000,000"),
    ],
)
def test_an_invalid_option_is_refused_in_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TorchXError, match=f"^{re.escape(problem)}"):
        spec_of(make_app(), **options)
    with pytest.raises(InvalidRunConfigException):
        spec_of(make_app(), priority="high")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("iteration=5", "-cfg: unknown option 'iteration'. Did you mean 'iterations'?"),
        ("iterations=many", "-cfg iterations: must be a whole number, not 'many'."),
        ("iterations", "`iterations` does not have at least one `key=value` pair"),
    ],
)
def test_the_text_of_options_is_checked(
    text: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = HeadwayScheduler("session").run_opts()
    assert options.cfg_from_str("priority=-2,model=resnet50") == {
        "priority": -2,
        "model": "resnet50",
    }
    with pytest.raises(SystemExit, match="2"):
        options.cfg_from_str(text)
    assert capsys.readouterr().err == f"torchx: error: {problem}\n"


def test_without_a_scheduler_variables_are_named_rather_than_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = HeadwayScheduler("session")
    monkeypatch.setenv("HEADWAY_FOLDER", str(tmp_path))
    with pytest.raises(TorchXError, match="its location with HEADWAY_FOLDER or HEADWAY_SERVER"):
        scheduler.list()
    monkeypatch.delenv("HEADWAY_FOLDER")
    monkeypatch.setenv("HEADWAY_SERVER", "http://127.0.0.1:1")
    with pytest.raises(TorchXError, match="HEADWAY_SERVER: requires HEADWAY_TOKEN_FILE"):
        scheduler.schedule(scheduler.submit_dryrun(make_app(), {}))


class Site(NamedTuple):
    """A scheduler, and a folder from which jobs are submitted."""

    scheduler: SchedulerProcess
    folder: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run the scheduler that these tests share."""
    folder = tmp_path_factory.mktemp("torchx")
    (folder / "train.py").write_text(TRAIN)
    with running_scheduler(folder / "state", slots=2) as scheduler:
        yield Site(scheduler, folder)


@pytest.fixture
def runner(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """Return what TorchX's commands call, without a process for each."""
    monkeypatch.setenv("HEADWAY_FOLDER", str(site.scheduler.folder))
    with Runner("session", {"headway": lambda name, **_: HeadwayScheduler(name)}) as one:
        yield one


def ended(site: Site, runner: Runner, handle: str) -> AppStatus:
    """Wait until a job has ended; return its status."""
    site.scheduler.wait_for(handle.rpartition("/")[2], *FINISHED)
    return runner.status(handle)


def torchx(site: Site, *words: str) -> tuple[int, str, str]:
    """Run a command of TorchX; return its exit code, standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", *words],
        cwd=site.folder,
        env=os.environ | {"HEADWAY_FOLDER": str(site.scheduler.folder), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.torch
def test_the_commands_of_torchx_work_from_dry_run_to_logs(site: Site) -> None:
    words = ("dist.ddp", "-j", "1x2", "--script", "train.py", "--", "--rate", "$HOME 1")
    status, out, _ = torchx(site, "run", "-s", "headway", "--dryrun", *words)
    assert (status, site.scheduler.client.jobs()) == (0, [])
    request = out.partition("=== SCHEDULER REQUEST ===\n")[2]
    assert '"gpus": 2' in request
    assert "exec " + sys.executable + " train.py --rate '$HOME 1'" in request

    status, out, err = torchx(site, "run", "-s", "headway", "--wait", "--log", *words)
    handle = out.strip()
    assert re.fullmatch(r"headway://torchx/\d+", handle), err
    assert (status, err.count("arguments: ['--rate', '$HOME 1']")) == (0, 2)
    status, out, _ = torchx(site, "log", f"{handle}/train/0")
    lines = [re.sub("\033.*?m", "", line) for line in out.splitlines()]
    assert lines == [
        "train/0 ranks: 2",
        "train/0 arguments: ['--rate', '$HOME 1']",
        f"train/0 job: {handle}",
    ]
    status, out, _ = torchx(site, "status", handle)
    assert (status, out.count("SUCCEEDED")) == (0, 3)
    status, out, _ = torchx(site, "list", "-s", "headway")
    assert f"{handle}  SUCCEEDED" in out

    status, out, err = torchx(site, "run", "-s", "headway", "dist.ddp", "-j9x9", "-m", "x")
    assert (status, out, err.count("Traceback")) == (1, "", 0)
    assert "app x: 81 GPUs, but the scheduler has 2 slots; the job could never start." in err


@pytest.mark.slow
def test_a_job_can_be_watched_followed_and_cancelled(site: Site, runner: Runner) -> None:
    script = f"import os; print('rank', os.environ['RANK'], flush=True); {SLEEPS}"
    app = make_app(entrypoint=sys.executable, args=["-c", script], num_replicas=2)
    handle = runner.run(app, "headway")
    job = handle.rpartition("/")[2]
    assert handle == f"headway://session/{job}"
    waiting = runner.run(utils.echo("hello", num_replicas=2), "headway")
    site.scheduler.wait_for(job, "running")
    found = runner.status(handle)
    assert (found.state, found.num_restarts) == (AppState.RUNNING, 0)
    replicas = found.roles[0].replicas
    assert [(one.id, one.role, one.hostname) for one in replicas] == [
        (0, "trainer", "localhost"),
        (1, "trainer", "localhost"),
    ]
    queued = runner.status(waiting)
    assert (queued.state, queued.msg[:8]) == (AppState.PENDING, "needs 2 ")
    follow = iter(runner.log_lines(handle, "trainer", 1, should_tail=True))
    assert next(follow) == "rank 1\n"
    states = {one.app_handle: one.state for one in runner.list("headway")}
    assert (states[handle], states[waiting]) == (AppState.RUNNING, AppState.PENDING)

    runner.cancel(handle)
    assert list(follow) == []
    assert ended(site, runner, handle).state == AppState.CANCELLED
    runner.cancel(handle)
    assert ended(site, runner, waiting).state == AppState.SUCCEEDED
    assert list(runner.log_lines(waiting, "echo", 1, regex="l+")) == ["hello\n"]
    assert list(runner.log_lines(waiting, "echo", 0, regex="nothing")) == []


@pytest.mark.slow
def test_a_failed_job_says_why_and_how_often_it_was_restarted(site: Site, runner: Runner) -> None:
    code = "import sys; sys.stdout.buffer.write(b'no \\xff end'); raise SystemExit(3)"
    app = make_app(entrypoint=sys.executable, args=["-c", code], max_retries=1)
    handle = runner.run(app, "headway", cfg={"folder": "/"})
    found = ended(site, runner, handle)
    assert (found.state, found.num_restarts) == (AppState.FAILED, 1)
    assert "3" in found.msg
    assert list(runner.log_lines(handle, "trainer")) == ["no \\xff end"]
    with pytest.raises(ValueError, match=r"has no role other; its role is trainer\."):
        runner.log_lines(handle, "other")
    with pytest.raises(ValueError, match="must be combined"):
        runner.log_lines(handle, "trainer", streams=Stream.STDERR)
    with pytest.raises(HeadwayError, match="rank: must be at most 0, not 7"):
        list(runner.log_lines(handle, "trainer", 7))
    assert runner.status("headway://session/9999") is None


@pytest.mark.slow
def test_jobs_of_other_clients_are_shown_too(site: Site, runner: Runner) -> None:
    job = site.scheduler.submit(["echo", "hello"], name="other")
    site.scheduler.wait_for(job, "done")
    app = runner.describe(f"headway://session/{job}")
    assert (app.roles[0].name, app.roles[0].entrypoint, app.roles[0].args) == (
        "rank",
        "echo",
        ["hello"],
    )
    assert eventually(lambda: list(runner.log_lines(f"headway://session/{job}", "rank")))
