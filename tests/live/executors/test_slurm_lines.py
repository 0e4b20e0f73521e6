"""The commands for Slurm, directives, clear errors, and an executor on programs like Slurm's."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from headway.domain.errors import HeadwayError, InputError
from headway.live.core.events import NEVER_STARTED, JobSpec, Slot
from headway.live.daemon.settings import ExecutorSettings
from headway.live.executors import Attempt, AttemptEnd, shim
from headway.live.executors.attempt_folders import RUNNING, Launched
from headway.live.executors.slurm import attempt_files
from headway.live.executors.slurm.cluster import SlurmCluster, SlurmSettings
from headway.live.executors.slurm.executor import SlurmExecutor
from headway.live.executors.slurm.lines import (
    Directives,
    NodeShare,
    SlurmLines,
    directives_of,
)
from headway.slurm.programs import SlurmError, Unit, is_refusal, last_error, run
from live.executors.helpers import RecordingHandler

FOLDER = Path("/shared/attempts/1.1")
ANSWERS = "case $1 in --version) echo slurm 23.11.4;; *) {};; esac"
PLAIN = JobSpec(command=("train",))


def test_a_step_is_pinned_to_the_nodes_that_the_policy_chose() -> None:
    words = SlurmLines("x").step("7", "1.1", FOLDER, ["gpu1", "gpu4"], "8", PLAIN)
    assert words[0] == "srun"
    for option in (
        *("--jobid=7", "--job-name=job-1:headway-x:1.1", "--nodes=2", "--nodelist=gpu1,gpu4"),
        *("--ntasks=2", "--ntasks-per-node=1", "--overlap", "--gres=gpu:8"),
    ):
        assert option in words
    # Modules in the folder where the scheduler was started must not replace Headway's.
    assert words[-4:-1] == ["-P", "-m", "headway.live.executors.slurm.step_task"]
    assert words[-1] == str(FOLDER)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("resnet50", "resnet50"),
        ("BERT large, run 3", "BERT-large-run-3"),
        ("a:b\nc|d\u2028e", "a-b-c-d-e"),
        ("x" * 100, "x" * 40),
        ("", "job-7"),
        ("\u00e4", "job-7"),
    ],
)
def test_an_attempt_is_named_after_its_job_and_recognized(name: str, title: str) -> None:
    lines = SlurmLines("x")
    found = lines.attempt_name("7.2", JobSpec(command=("train",), name=name))
    assert found == f"{title}:headway-x:7.2"
    assert lines.attempt_in(found) == lines.attempt_in("headway-x:7.2") == "7.2"
    assert SlurmLines("y").attempt_in(found) is None


def test_directives_are_added_replace_headways_and_leave_out_others() -> None:
    own = Directives(("--mem=4G", "-p gpu", "--qos=low"), ("--mpi",))
    spec = JobSpec(command=("train",), directives=("--qos=high",), skip_directives=("--overlap",))
    words = SlurmLines("x", own).step("7", "1.1", FOLDER, ["gpu1"], "", spec)
    assert [word for word in words if word.startswith("--mem")] == ["--mem=4G"]
    assert [word for word in words if word.startswith("--qos")] == ["--qos=high"]
    assert words[words.index("-p") + 1] == "gpu"
    assert not {"--overlap", "--mpi=none"} & set(words)


def test_a_job_can_leave_out_a_directive_of_the_cluster() -> None:
    own = Directives(("--qos=low",))
    spec = JobSpec(command=("train",), skip_directives=("--qos",))
    words = SlurmLines("x", own).batch("1.1", FOLDER, ["gpu1"], NodeShare("2", "16", "4000"), spec)
    assert not [word for word in words if word.startswith("--qos")]
    assert {"--gres=gpu:2", "--cpus-per-task=16", "--mem=4000"} <= set(words)
    assert words[-1].startswith("--wrap=exec srun")


def test_short_and_long_names_of_an_option_are_the_same() -> None:
    spec = JobSpec(command=("train",), skip_directives=("--qos",))
    words = SlurmLines("x", Directives(("-q low", "-t5"))).step(
        "7", "1.1", FOLDER, ["gpu1"], "", spec
    )
    assert "-q" not in words
    assert "-t5" in words
    spec = JobSpec(command=("train",), directives=("--time=9",), skip_directives=("-q",))
    words = SlurmLines("x", Directives(("--qos=low", "-t5"))).step(
        "7", "1.1", FOLDER, ["gpu1"], "", spec
    )
    assert not {"-t5", "--qos=low"} & set(words)
    assert [Directives((word,)).value("--partition") for word in ("-p gpu", "-pgpu")] == ["gpu"] * 2
    assert Directives(("--partition=gpu",)).value("--partition") == "gpu"


def test_an_option_that_slurm_refuses_beside_headways_replaces_it() -> None:
    words = SlurmLines("x", Directives(("--mem-per-cpu=1G",))).step(
        "7", "1.1", FOLDER, ["gpu1"], "", PLAIN
    )
    assert "--mem=0" not in words


def test_an_attempts_folder_is_no_pattern_for_slurm() -> None:
    share = NodeShare("", "1", "1")
    words = SlurmLines("x").batch("1.1", Path("/a/%j.1"), ["gpu1"], share, PLAIN)
    assert "--output=/a/%%j.1/slurm.log" in words


@pytest.mark.parametrize("word", ["--constraint=a100", "-C a100", "--exclude=gpu3", "-x gpu3"])
def test_a_directive_that_chooses_nodes_is_an_error(word: str) -> None:
    with pytest.raises(InputError, match="Headway chooses the nodes"):
        directives_of(JobSpec(command=("train",), directives=(word,)))
    with pytest.raises(InputError, match="Headway chooses the nodes"):
        ExecutorSettings(kind="slurm", directives=(word,))
    asked = ExecutorSettings(kind="slurm", allocation_directives=(word,)).slurm()
    assert asked.allocation_directives.extra == (word,)


@pytest.mark.parametrize("word", ["--reservation=r1", "-p gpu"])
def test_a_job_cannot_leave_the_nodes_of_its_scheduler(word: str) -> None:
    with pytest.raises(InputError, match="set it for the scheduler"):
        directives_of(JobSpec(command=("train",), directives=(word,)))


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ("Batch job submission failed: Invalid qos specification", True),
        ("Batch job submission failed: Invalid feature specification", True),
        ("Invalid account or account/partition combination specified", True),
        ("User's group not permitted to use this partition", True),
        ("Access/permission denied", True),
        ("Batch job submission failed: Requested node configuration is not available", True),
        ("unrecognized option '--foo'", True),
        ("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive", True),
        ("Unable to contact slurm controller (connect failure)", False),
        ("Socket timed out on send/recv operation", False),
        ("Slurm temporarily unable to accept job, sleeping and retrying", False),
        ("Unable to create step for job 7: Job/step already completing or completed", False),
        ("Unable to confirm allocation for job 7: Invalid job id specified", False),
        ("Required node not available (down, drained or reserved)", False),
    ],
)
def test_what_slurm_will_never_accept_is_told_from_what_it_may(said: str, refusal: bool) -> None:
    assert is_refusal(said) == refusal


def test_an_allocation_survives_the_loss_of_a_node() -> None:
    lines = SlurmLines("x", allocation_directives=Directives(("--time=1:00:00",)), partition="gpu")
    words = lines.allocation(4)
    assert {"--nodes=4", "--no-kill", "--no-shell", "--partition=gpu", "--time=1:00:00"} <= set(
        words
    )


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("qos=high", "directives: must be options such as '--qos=high' or '--exclusive'"),
        ("--nodes=3", "directives: --nodes is set by Headway."),
        ("-N 3", "directives: --nodes is set by Headway."),
        ("-w", "directives: --nodelist is set by Headway."),
        ("--nodel=n1", "directives: --nodelist is set by Headway."),
        ("--ntasks-per-n 2", "directives: --ntasks-per-node is set by Headway."),
        ("--a\nb", "directives: must be options"),
    ],
)
def test_a_bad_directive_is_an_error(word: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        Directives((word,))
    assert str(error.value).startswith(problem)


def test_a_dry_run_shows_the_commands() -> None:
    asked, step = SlurmSettings(nodes=3).dry_run(Path("/shared"))
    assert asked.startswith("salloc --no-shell --job-name=headway-SCHEDULER --nodes=3")
    assert "srun --jobid=ALLOCATION" in step
    [batch] = SlurmSettings(batch=True).dry_run(Path("/shared"))
    assert "--nodelist=NODE,NODE" in batch
    [step] = SlurmSettings(allocation="7").dry_run(Path("/shared"))
    assert step.startswith("srun --jobid=7 ")


def problem_of(settings: SlurmSettings, folder: Path) -> str:
    with pytest.raises(HeadwayError) as error:
        asyncio.run(SlurmExecutor(settings, folder).start(RecordingHandler()))
    return str(error.value)


def fake(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs in place of Slurm's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return folder


def test_a_machine_without_slurm_is_one_clear_line(programs: Path, tmp_path: Path) -> None:
    assert problem_of(SlurmSettings(), tmp_path / "state") == (
        "there is no program scontrol here; run this where Slurm's commands are installed."
    )


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("slurm 20.11.9", "needs Slurm 22.05 or later; this is 'slurm 20.11.9'."),
        ("hello", "this is not a version of Slurm: 'hello'."),
    ],
)
def test_a_version_that_is_not_supported_is_one_clear_line(
    programs: Path, tmp_path: Path, version: str, problem: str
) -> None:
    fake(programs, "scontrol", f"echo {version}")
    assert problem_of(SlurmSettings(), tmp_path / "state") == problem


def test_a_user_who_may_not_ask_for_nodes_is_told_why(programs: Path, tmp_path: Path) -> None:
    fake(programs, "scontrol", "echo slurm-wlm 24.05.1")
    reason = "Batch job submission failed: Invalid account or account/partition combination"
    fake(programs, "squeue", "")
    for program in ("salloc", "sbatch"):
        fake(programs, program, f'echo "{program}: error: {reason}" >&2; exit 1')
    assert problem_of(SlurmSettings(), tmp_path / "state") == f"salloc: {reason}."
    assert problem_of(SlurmSettings(batch=True), tmp_path / "other") == f"sbatch: {reason}."


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            "JobId=7 UserId=root(0) JobState=PENDING Reason=Priority",
            "is pending; it must be running.",
        ),
        (
            "JobId=7 UserId=root(0) JobState=COMPLETED Reason=None",
            "is completed; it must be running.",
        ),
    ],
)
def test_an_allocation_that_does_not_run_is_one_clear_line(
    programs: Path, tmp_path: Path, answer: str, problem: str
) -> None:
    fake(
        programs,
        "scontrol",
        f'case $1 in --version) echo slurm 23.11.4;; *) echo "{answer}";; esac',
    )
    found = problem_of(SlurmSettings(allocation="7"), tmp_path / "state")
    assert found == f"allocation: job 7 {problem}"


def test_somebody_elses_allocation_is_one_clear_line(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = "JobId=7 UserId=ada(1000) JobState=RUNNING Reason=None"
    fake(
        programs,
        "scontrol",
        f'case $1 in --version) echo slurm 23.11.4;; *) echo "{answer}";; esac',
    )
    monkeypatch.setattr("os.getuid", lambda: 54321)
    monkeypatch.setenv("LOGNAME", "ada")
    assert problem_of(SlurmSettings(allocation="7"), tmp_path / "state") == (
        "allocation: job 7 belongs to ada, and you are user 54321."
    )


def test_an_unknown_allocation_is_one_clear_line(programs: Path, tmp_path: Path) -> None:
    said = "slurm_load_jobs error: Invalid job id specified"
    fake(programs, "scontrol", ANSWERS.format(f'echo "{said}" >&2; exit 1'))
    assert problem_of(SlurmSettings(allocation="7"), tmp_path / "state") == (
        "allocation: there is no job 7 in Slurm."
    )


def test_a_variable_with_a_job_that_is_gone_is_named(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    said = "slurm_load_jobs error: Invalid job id specified"
    fake(programs, "scontrol", ANSWERS.format(f'echo "{said}" >&2; exit 1'))
    assert problem_of(SlurmSettings(), tmp_path / "state") == (
        "$SLURM_JOB_ID: there is no job 7 in Slurm. Unset the variable, or run this inside a job."
    )


def test_a_missing_configuration_is_one_clear_line() -> None:
    said = (
        "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
        "scontrol: error: fetch_config: DNS SRV lookup failed\n"
        "scontrol: fatal: Could not establish a configuration source\n"
    )
    assert last_error(said) == "no slurm.conf was found; set SLURM_CONF to its path"


class FakeSlurm:
    """Programs that answer from files: `nodes`, `job-9`, `steps`, `named`; `refused` refuses.

    A file `bad-NAME` replaces the next answer.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder / "slurm"
        self.folder.mkdir()
        answer = (
            f'answer() {{ f={self.folder}/$1; [ -e "$f" ] || f=/dev/null; b={self.folder}/bad-$1;'
            ' if [ -e "$b" ]; then /bin/cat "$b"; /bin/rm "$b"; else /bin/cat "$f"; fi; }\n'
        )
        unknown = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
        fake(
            programs,
            "scontrol",
            f"{answer}case $1$2 in --v*) echo slurm 22.05;; shownodes) answer nodes;; "
            f"showjob) [ -e {self.folder}/job-$3 ] || {{ {unknown}; }}; answer job-$3;; esac",
        )
        fake(
            programs,
            "squeue",
            f"{answer}case $* in *--name=*) answer named;; *--jobs=*) answer steps;; "
            "*) answer jobs;; esac",
        )
        fake(
            programs,
            "salloc",
            f"cd {self.folder}; [ -e refused ] && {{ /bin/cat refused >&2; exit 1; }}; "
            'echo "$*" >> asked; /bin/cat next >> named',
        )
        fake(programs, "scancel", "")
        self.write("up", "")
        fake(programs, "srun", f"while [ -e {self.folder}/up ]; do /bin/sleep 0.05; done")
        fake(programs, "sinfo", f"{answer}answer members")
        self.write("next", "9\n")
        self.nodes(n1="IDLE", n2="IDLE")
        self.job("9", "RUNNING", "n1", "n2")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def nodes(self, **states: str) -> None:
        """Let nodes have these states."""
        lines = [
            f"NodeName={name} CPUTot=2 RealMemory=1000 State={states[name]}" for name in states
        ]
        self.write("nodes", "\n".join(lines))

    def job(self, number: str, state: str, *nodes: str, size: int | None = None) -> None:
        """Let an allocation have this state and these nodes."""
        line = f"JobId={number} JobName=headway-x UserId=root(0) JobState={state} Reason=None "
        parts = [f"Nodes={name} CPU_IDs=0-1 Mem=1000 GRES=" for name in nodes]
        self.write(f"job-{number}", " ".join([f"{line}NumNodes={size or len(nodes)}", *parts]))

    def answer_badly(self, name: str, text: str = "") -> None:
        """Let the next answer be this one."""
        self.write(f"bad-{name}", text)

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def slurm_like(programs: Path, tmp_path: Path) -> Iterator[FakeSlurm]:
    slurm = FakeSlurm(programs, tmp_path)
    yield slurm
    (slurm.folder / "up").unlink()


def connected(settings: SlurmSettings, folder: Path) -> SlurmCluster:
    """Return a cluster whose nodes were found."""
    cluster = SlurmCluster(settings, "x", folder / "allocation")
    cluster.connect()
    for _ in range(2):
        cluster.find_nodes()
    return cluster


def test_an_allocation_that_slurm_accepted_without_our_knowledge_is_found(
    slurm_like: FakeSlurm, tmp_path: Path
) -> None:
    slurm_like.write("named", "9\n")
    SlurmCluster(SlurmSettings(), "x", tmp_path / "allocation").connect()
    assert (tmp_path / "allocation").read_text() == "9"
    assert slurm_like.read("asked") == ""


def test_a_batch_job_that_slurm_accepts_and_fails_to_acknowledge_is_not_started_twice(
    programs: Path, tmp_path: Path
) -> None:
    """The plan is taken while `sbatch` waits for an answer that does not come."""
    state = tmp_path / "state"
    node = "NodeName=n1 NodeAddr=n1 CPUTot=2 RealMemory=1000 State=IDLE Gres=(null)"
    fake(programs, "scontrol", f'case $1 in --v*) echo slurm 22.05;; *) echo "{node}";; esac')
    fake(programs, "sinfo", "echo 'n1|main*'")
    fake(programs, "squeue", "")
    move = f"/bin/mv {state}/a.1/plan-n1.json {state}/a.1/running-n1.json"
    fails = "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1"
    fake(programs, "sbatch", f"case $1 in --test-only) exit 0;; esac; {move}; {fails}")

    async def run() -> None:
        handler = RecordingHandler()
        executor = SlurmExecutor(SlurmSettings(batch=True), state)
        await executor.start(handler)
        await executor.launch(Attempt("a", 1), PLAIN, [Slot("n1", 0)], {})
        assert handler.ends == []
        assert (state / "a.1" / "running-n1.json").exists()
        await executor.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "nodes"),
    [
        (SlurmSettings(batch=True), ["n1", "n2"]),
        (SlurmSettings(batch=True, partition="big"), ["n2", "n3"]),
        (SlurmSettings(batch=True, directives=Directives(("-p big",))), ["n2", "n3"]),
        (SlurmSettings(batch=True, directives=Directives(("--reservation=r1",))), ["n2"]),
    ],
)
def test_batch_jobs_use_the_nodes_that_sbatch_would(
    programs: Path, tmp_path: Path, settings: SlurmSettings, nodes: list[str]
) -> None:
    lines = "; ".join(
        f"echo NodeName=n{number} CPUTot=2 RealMemory=1000 State=IDLE" for number in (1, 2, 3)
    )
    reserved = "echo ReservationName=r1 Nodes=n[2-3] State=ACTIVE"
    fake(
        programs,
        "scontrol",
        f"case $1$2 in --v*) echo slurm 22.05;; showres*) {reserved};; *) {lines};; esac",
    )
    fake(programs, "sinfo", "echo 'n1|main*'; echo 'n2|main*'; echo 'n2|big'; echo 'n3|big'")
    fake(programs, "sbatch", "")
    cluster = SlurmCluster(settings, "x", tmp_path / "allocation")
    cluster.connect()
    cluster.find_nodes()
    assert sorted(cluster.nodes) == nodes


def test_the_end_of_an_allocation_is_noticed_though_slurm_refuses_another(
    slurm_like: FakeSlurm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = connected(SlurmSettings(nodes=2), tmp_path)
    assert (sorted(cluster.nodes), cluster.ended) == (["n1", "n2"], False)
    slurm_like.write("refused", "salloc: error: Job violates accounting/QOS policy")
    slurm_like.job("9", "TIMEOUT")
    slurm_like.write("named", "")
    cluster.find_nodes()
    assert (list(cluster.nodes), cluster.ended) == ([], True)
    cluster.ended = False  # The executor has reported what ended with it.
    cluster.find_nodes()
    # It is said once.
    assert len([one for one in caplog.messages if "grants no nodes" in one]) == 1
    (slurm_like.folder / "refused").unlink()
    slurm_like.job("10", "RUNNING", "n2", "n1")
    slurm_like.write("next", "10\n")
    for _ in range(2):
        cluster.find_nodes()
    assert (sorted(cluster.nodes), cluster.ended) == (["n1", "n2"], False)


def test_lost_nodes_are_asked_for_again_and_jobs_run_across_both_allocations(
    slurm_like: FakeSlurm, tmp_path: Path
) -> None:
    cluster = connected(SlurmSettings(nodes=2), tmp_path)
    slurm_like.nodes(n1="IDLE", n2="DOWN")
    slurm_like.job("9", "RUNNING", "n1")
    slurm_like.job("10", "PENDING", size=1)
    slurm_like.write("next", "10\n")
    for _ in range(3):
        cluster.find_nodes()
    assert list(cluster.nodes) == ["n1"]
    asked = slurm_like.read("asked").splitlines()
    assert ["--nodes=2" in asked[0], "--nodes=1" in asked[1], len(asked)] == [True, True, 2]
    assert (tmp_path / "allocation").read_text().split() == ["9", "10"]
    slurm_like.nodes(n1="IDLE", n2="IDLE")
    slurm_like.job("10", "RUNNING", "n2")
    cluster.find_nodes()
    words = cluster.step_words(FOLDER, cluster.allocations, PLAIN)
    assert sorted(cluster.nodes) == ["n1", "n2"]
    assert {job_id: one[one.index("--nodes=1") + 1] for job_id, one in words.items()} == {
        "9": "--nodelist=n1",
        "10": "--nodelist=n2",
    }
    slurm_like.job("9", "TIMEOUT")
    slurm_like.write("named", "10\n")
    cluster.find_nodes()
    assert (list(cluster.nodes), cluster.ended) == (["n2"], True)
    assert [cluster.is_over("9"), cluster.is_over("10")] == [True, False]


PART = "JobId=9 JobName=headway-x UserId=root(0) JobState=RUNNING Reason=None NumNodes=2"


@pytest.mark.parametrize(
    ("batch", "name", "answer", "left"),
    [
        (False, "nodes", "", []),
        (False, "nodes", "NodeName=n1 CPUTot=2 RealMemory=1000 State=IDLE", ["n1"]),
        (False, "job-9", "", []),
        (False, "job-9", PART, []),
        (True, "nodes", "", []),
        (True, "members", "", []),
        (True, "members", "n1|main*", ["n1"]),
    ],
)
def test_what_one_answer_of_slurm_lacks_is_there_until_the_next_lacks_it_too(
    slurm_like: FakeSlurm,
    programs: Path,
    tmp_path: Path,
    batch: bool,
    name: str,
    answer: str,
    left: list[str],
) -> None:
    fake(programs, "sbatch", "")
    slurm_like.write("members", "n1|main*\nn2|main*")
    cluster = connected(SlurmSettings(batch, nodes=2), tmp_path)
    for _ in range(2):
        slurm_like.answer_badly(name, answer)
        cluster.find_nodes()
        assert (sorted(cluster.nodes), cluster.ended) == (["n1", "n2"], False)
        cluster.find_nodes()
    assert slurm_like.read("asked").count("\n") == (not batch)
    slurm_like.write(name, answer)
    slurm_like.write("named", "")
    slurm_like.write("refused", "salloc: error: not now")
    for _ in range(2):
        cluster.find_nodes()
    assert sorted(cluster.nodes) == left
    slurm_like.write("named", "9\n")
    # A scheduler that starts does not believe one answer either.
    slurm_like.nodes(n1="IDLE", n2="IDLE")
    slurm_like.job("9", "RUNNING", "n1", "n2")
    slurm_like.write("members", "n1|main*\nn2|main*")
    slurm_like.answer_badly(name, answer)
    assert sorted(connected(SlurmSettings(batch, nodes=2), tmp_path).nodes) == ["n1", "n2"]


@pytest.mark.parametrize("batch", [False, True])
def test_nodes_that_slurm_does_not_know_yet_keep_their_jobs_and_get_no_new_ones(
    slurm_like: FakeSlurm, programs: Path, tmp_path: Path, batch: bool
) -> None:
    problem = "allocation failure: Requested node configuration is not available"
    fake(programs, "sbatch", f"echo '{problem}' >&2; exit 1")
    slurm_like.write("members", "n1|main*\nn2|main*")
    slurm_like.nodes(n1="UNKNOWN", n2="IDLE")
    cluster = connected(SlurmSettings(batch, nodes=2), tmp_path)
    assert (sorted(cluster.nodes), cluster.draining) == (["n1", "n2"], frozenset(["n1"]))
    slurm_like.nodes(n1="IDLE", n2="IDLE")
    cluster.find_nodes()
    assert (sorted(cluster.nodes), cluster.draining) == (["n1", "n2"], frozenset())


ODD_NAMES = ("a\nb|c\n\x0cd\u2028e|", "\x0c", "7|x\n8|RUNNING|None")


def test_other_jobs_of_the_user_may_have_any_name(
    slurm_like: FakeSlurm, programs: Path, tmp_path: Path
) -> None:
    fake(programs, "sbatch", "")
    slurm_like.write("members", "n1|main*")
    lines = [f"4|RUNNING|None|{name}" for name in ODD_NAMES]
    slurm_like.write("jobs", "\n".join([*lines, "5|PENDING|Priority|t:headway-x:1.2", ""]))
    cluster = connected(SlurmSettings(batch=True), tmp_path)
    assert cluster.units() == {
        "1.2": Unit(("5",), waits_for="Priority"),
    }
    slurm_like.write("steps", "9.0|a\nb\u2028c|\n|\n9.1|headway-x:1.2\n")
    slurm_like.write("job-9", slurm_like.read("job-9").replace("headway-x", "a\nb\u2028 c"))
    cluster = connected(SlurmSettings(allocation="9"), tmp_path)
    assert sorted(cluster.nodes) == ["n1", "n2"]
    assert cluster.units() == {"1.2": Unit(("9.1",), ("9",))}


@contextlib.asynccontextmanager
async def executor_like(
    settings: SlurmSettings, state: Path, handler: RecordingHandler
) -> AsyncIterator[SlurmExecutor]:
    """Run an executor that polls when told, with attempts `a` on n1 and `b` on n2."""
    state.mkdir()
    (state / "identity").write_text("x")
    executor = SlurmExecutor(settings, state)
    await executor.start(handler)
    assert executor._polling is not None
    executor._polling.cancel()
    for name, node in (("a", "n1"), ("b", "n2")):
        await executor.launch(Attempt(name, 1), PLAIN, [Slot(node, 0)], {})
    yield executor
    await executor.close()


def test_nodes_of_an_allocation_that_has_ended_get_no_jobs_before_they_are_lost(
    slurm_like: FakeSlurm, tmp_path: Path
) -> None:
    class Handler(RecordingHandler):
        def attempt_ended(self, end: AttemptEnd) -> None:
            super().attempt_ended(end)
            self.nodes.append(end.attempt.job_id)

    async def main() -> None:
        handler, state = Handler(), tmp_path / "state"
        async with executor_like(SlurmSettings(nodes=2), state, handler) as executor:
            attempt_files.claim(state / "a.1", "n1")
            slurm_like.job("9", "TIMEOUT")
            slurm_like.write("named", "")
            slurm_like.write("refused", "salloc: error: not now")
            await executor._poll(look=True)
        told = handler.nodes
        assert sorted(told[:2]) == ["!n1", "!n2"]
        assert sorted(told[2:4]) == ["a", "b"]
        assert told[4:] == ["-n1", "-n2", "?n1", "?n2"]
        assert sorted((end.code, end.reason) for end in handler.ends) == [
            (NEVER_STARTED, "the allocation ended before it started"),
            (255, "the allocation ended"),
        ]

    asyncio.run(main())


def test_an_attempt_that_is_stopped_before_it_has_started_never_started(
    slurm_like: FakeSlurm, tmp_path: Path
) -> None:
    async def main() -> None:
        handler, state = RecordingHandler(), tmp_path / "state"
        async with executor_like(SlurmSettings(nodes=2), state, handler) as executor:
            await executor.stop(Attempt("a", 1))
            await executor._poll()
        assert [(end.code, end.reason) for end in handler.ends] == [(NEVER_STARTED, "stopped")]

    asyncio.run(main())


def test_an_unknown_attempt_is_found_though_one_answer_of_slurm_lacks_it(
    slurm_like: FakeSlurm, tmp_path: Path
) -> None:
    async def main() -> None:
        state = tmp_path / "state"
        async with executor_like(SlurmSettings(nodes=2), state, RecordingHandler()) as executor:
            slurm_like.write("steps", "9.0|headway-x:a.1\n9.1|headway-x:b.1\n")
            slurm_like.answer_badly("steps", "9.0|headway-x:a.1\n")
            found = await executor.find_unknown([Attempt("a", 1)])
            assert [one.attempt for one in found] == [Attempt("b", 1)]

    asyncio.run(main())


def test_a_job_that_one_answer_of_slurm_lacks_keeps_its_place_in_the_queue(
    slurm_like: FakeSlurm, programs: Path, tmp_path: Path
) -> None:
    fake(programs, "sbatch", "echo 5")
    slurm_like.write("members", "n1|main*\nn2|main*")
    lines = [f"{number}|PENDING|Priority|t:headway-x:{'ab'[number]}.1" for number in (0, 1)]
    slurm_like.write("jobs", "\n".join(lines))

    async def main() -> None:
        handler = RecordingHandler()
        async with executor_like(
            SlurmSettings(batch=True), tmp_path / "state", handler
        ) as executor:
            for _ in range(2):
                slurm_like.answer_badly("jobs", lines[0])
                await executor._poll(look=True)
                assert (tmp_path / "state" / "b.1" / "plan-n2.json").exists()
                await executor._poll(look=True)
            slurm_like.write("jobs", lines[0])
            for _ in range(2):
                assert handler.ends == []
                await executor._poll(look=True)
        [ended] = handler.ends
        assert (ended.attempt, ended.code) == (Attempt("b", 1), NEVER_STARTED)

    asyncio.run(main())


def test_an_unknown_attempt_may_end_while_it_is_being_stopped(
    slurm_like: FakeSlurm, programs: Path, tmp_path: Path
) -> None:
    state, stopped = tmp_path / "state", tmp_path / "stopped"
    folder = state / "a.1"
    folder.mkdir(parents=True)
    (state / "identity").write_text("x")
    (state / "allocation").write_text("9")
    attempt_files.write_plans(folder, {"n1": {}})
    attempt_files.claim(folder, "n1")
    (folder / RUNNING).write_bytes(msgspec.json.encode(Launched(PLAIN, (Slot("n1", 0),))))
    fake(programs, "squeue", f"[ -e {stopped} ] || echo '9.0|headway-x:a.1'")
    outcome = f'{{"code": {shim.STOPPED}, "reason": "stopped"}}'
    ends = f"echo '{outcome}' > {folder}/ended-n1.json; echo > {stopped}"
    gone = f"while [ ! -e {tmp_path}/reported ]; do /bin/sleep 0.05; done"
    fake(programs, "scancel", f"{ends}; {gone}")

    async def main() -> None:
        handler = RecordingHandler()
        executor = SlurmExecutor(SlurmSettings(), state)
        await executor.start(handler)
        recovering = asyncio.ensure_future(executor.recover([]))
        while not executor._attempts.has_ended(Attempt("a", 1)):
            await asyncio.sleep(0.01)
        while executor._attempts.running:
            await asyncio.sleep(0.01)
        (tmp_path / "reported").touch()
        assert await recovering == []
        assert handler.ends == []
        await executor.close()

    asyncio.run(main())


TERMINATED_TWICE = """
import os, signal, sys
from pathlib import Path
from headway.live.executors.slurm import attempt_files, step_task
def terminate(): os.kill(os.getpid(), signal.SIGTERM)
report = attempt_files.report
attempt_files.read_port = lambda folder: terminate()
attempt_files.report = lambda *words: [terminate(), report(*words)]
step_task.main(Path(sys.argv[1]), {"SLURMD_NODENAME": "n1"})
"""
"""A task that gets SIGTERM while it waits for rank 0's node, and again before it has reported."""


def test_a_task_that_is_stopped_twice_reports_its_outcome(tmp_path: Path) -> None:
    attempt_files.write_plans(tmp_path, {"n1": {"ports": [], "ranks": []}})
    subprocess.run([sys.executable, "-c", TERMINATED_TWICE, str(tmp_path)], check=False)
    assert attempt_files.outcome_on(tmp_path, "n1") == (shim.STOPPED, "stopped")


def test_a_program_that_cannot_be_run_is_one_clear_line(programs: Path) -> None:
    fake(programs, "scontrol", "echo hello")
    (programs / "scontrol").write_bytes(b"\0")
    with pytest.raises(SlurmError, match=r"^scontrol: Exec format error\.$"):
        run("scontrol", "--version")
