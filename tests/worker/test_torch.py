"""Real DDP jobs at the gate: identical weights, whatever the gate does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gate.threaded_gate import SECRET, Recorder, make_certificate, threaded_gate
from headway.domain.errors import InputError
from headway.gate import connections
from headway.gate.tokens import job_token
from waiting import eventually
from worker.alone import ddp_model
from worker.core_handler import CoreHandler

pytestmark = [pytest.mark.torch, pytest.mark.slow]
HERE = Path(__file__).parent
DEADLINE_S = 900


@pytest.fixture(autouse=True)
def _workers_stay_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on a slow machine must stay connected."""
    monkeypatch.setattr(connections, "MAX_UNANSWERED_PINGS", 600)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Return a port for a process that names it; Linux gives it to no other meanwhile."""
    with socket.socket() as held:
        # Bound with this option and not listening, it does not keep PyTorch from listening.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]


class LoggedProcess:
    """A process and the lines that it prints."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words],
            # Lines are written as a whole, not in pieces between which others come.
            env=os.environ | {"PYTHONPATH": path(), "PYTHONUNBUFFERED": ""} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._timer = threading.Timer(DEADLINE_S, self.process.kill)
        self._timer.start()

    def until(self, *words: str) -> str:
        """Read until a line begins with these words; return it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if line.split()[: len(words)] == list(words):
                return line.strip()
        raise AssertionError(f"no {words} in {self.lines}")

    def rest(self) -> list[str]:
        """Wait for the end; return all lines."""
        assert self.process.stdout is not None
        self.lines += [line.strip() for line in self.process.stdout]
        self.process.wait()
        return self.lines

    def end(self) -> None:
        """Make sure that the process has ended."""
        self._timer.cancel()
        self.process.kill()
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def path() -> str:
    import headway

    source = str(Path(headway.__file__).parents[1])
    return os.pathsep.join([source, str(HERE.parent), os.environ.get("PYTHONPATH", "")])


@contextlib.contextmanager
def job(
    ranks: int, gate: str, steps: int, *variants: str, **more: str
) -> Iterator[list[LoggedProcess]]:
    """Run a training."""
    words = ["training_script.py", str(steps), *variants]
    with processes(ranks, gate, words, **more) as started:
        yield started


@contextlib.contextmanager
def processes(
    ranks: int, gate: str, words: list[str], **more: str
) -> Iterator[list[LoggedProcess]]:
    """Run a script of this folder in each rank; the variables are those a scheduler gives."""
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": str(ranks),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "HEADWAY_GATE": gate,
        "HEADWAY_JOB": "j",
        "HEADWAY_ATTEMPT": "1",
        "HEADWAY_JOB_TOKEN": job_token(SECRET, "j", 1),
        **more,
    }
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(reserved_port())
        started = []
        for rank in range(ranks):
            command = [str(HERE / words[0]), *words[1:]]
            own = {"MASTER_PORT": str(port), "RANK": str(rank)}
            started.append(LoggedProcess(command, common | own))
            stack.callback(started[-1].end)
        yield started


@contextlib.contextmanager
def gate_process(where: Path, *words: str) -> Iterator[LoggedProcess]:
    """Run a gate in a process of its own."""
    server = LoggedProcess([str(HERE.parent / "gate" / "gate_process.py"), str(where), *words], {})
    try:
        server.until("listening")
        yield server
    finally:
        server.end()


def digests(lines: list[str], variants: list[str]) -> dict[str, list[str]]:
    found = {line.split()[0]: line.split()[1:] for line in lines if line.split(" ")[0] in variants}
    assert list(found) == variants, lines
    return found


class Late(Recorder):
    """Grants each request after a random delay."""

    def __init__(self) -> None:
        super().__init__()
        self._draw = random.Random(0)

    def message_ready(self, job: str, attempt: int, request: int, *sizes: Any) -> None:
        self.calls.append(("ready", job, attempt, request, *sizes))
        delay_s = self._draw.random() * 0.01
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, self.gate.grant, job, attempt, request)


VARIANTS = ["bucket", "iteration", "static", "view", "kept", "accumulated", "busy", "by-hand"]
STEPS = 6


def test_weights_equal_those_of_plain_ddp_however_late_grants_come(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    late = Late()
    with (
        threaded_gate(tcp=("127.0.0.1", 0), ssl=context, recorder=late) as running,
        job(
            3,
            f"tcp:127.0.0.1:{running.gate.port}",
            STEPS,
            *VARIANTS,
            HEADWAY_GATE_CERT=str(certificate),
        ) as ranks,
    ):
        lines = ranks[0].rest()
        assert [rank.process.wait() for rank in ranks] == [0, 0, 0], lines
        running.wait_for_call("lost", "j", 1, 0)
    for variant, (plain, gated) in digests(lines, VARIANTS).items():
        assert plain == gated, variant
    assert late.kinds()[0] == "attached"
    assert late.kinds()[-1] == "lost"
    assert late.kinds().count("ready") == late.kinds().count("done")

    # Each bucket asks, and reports its iteration's unsent bytes; the first has one bucket.
    total = 4 * 4 * (32 * 32 + 32)
    ready = [one[4:] for one in late.calls if one[0] == "ready"]
    assert ready[0] == (total, total)
    assert ready[1][1] == total
    assert ready[1][0] < total
    assert ready[2][1] == total - ready[1][0]
    assert ready[-1] == (400, 400)

    # The average iteration has the buckets as DDP ordered them after the first iteration.
    profile = [one[3] for one in late.calls if one[0] == "profile"][-1]
    sizes = [size for size, _ in ready[1 : 1 + len(profile.buckets)]]
    assert [bucket.bucket_bytes for bucket in profile.buckets] == sizes
    assert sum(sizes) == total
    assert len(sizes) > 1
    assert min(profile.forward_ns, profile.optimizer_ns, profile.buckets[0].backward_ns) > 0

    # Only the first model's iterations count, and then those without DDP.
    iterations = [one[3:] for one in late.calls if one[0] == "iteration"]
    assert iterations[0][0] == 1
    assert all(forward > 0 and backward > 0 for _, forward, backward, _ in iterations[:1])
    assert iterations[0][3] == total
    assert iterations[-1] == (2 * STEPS, 0, 0, 400)


def test_weights_equal_those_of_plain_ddp_with_all_of_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = 3  # of which the reciprocal is not exact
    monkeypatch.setattr(sys, "path", [*sys.path, str(HERE)])
    # The script reads its rank when it is imported.
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    from worker.ddp_matrix_script import CASES

    with (
        threaded_gate(tmp_path / "gate", recorder=Late()),
        processes(ranks, f"unix:{tmp_path / 'gate'}", ["ddp_matrix_script.py", *CASES]) as started,
    ):
        lines = started[0].rest()
        assert [rank.process.wait() for rank in started] == [0] * ranks, lines
    assert lines == [f"{case} equal" for case in CASES]


@pytest.mark.parametrize(("gate", "turns"), [("bucket", 0), ("iteration", 0), ("iteration", 1)])
def test_a_backward_pass_that_fails_releases_its_grant_and_its_turn_at_once(
    tmp_path: Path, gate: str, turns: int
) -> None:
    scheduler = CoreHandler("ff+srsf:1", 2, "j")
    words = ["failing_pass_script.py", gate, str(turns)]
    with (
        threaded_gate(tmp_path / "gate", recorder=scheduler),
        processes(2, f"unix:{tmp_path / 'gate'}", words) as ranks,
    ):
        # Its groups have the timeout that the user gave.
        assert [rank.until("failed") for rank in ranks] == ["failed 45", "failed 45"]
        eventually(lambda: scheduler.kinds().count("done") == 2)
        eventually(lambda: scheduler.kinds().count("computed") == 8 * turns)
        assert scheduler.kinds().count("ready") == 2
        assert scheduler.kinds().count("compute") == 8 * turns
        assert "lost" not in scheduler.kinds()
    assert scheduler.problems == []


def spans(path: Path) -> list[tuple[int, int]]:
    """Return when a rank's passes began and ended."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(int(begin), int(end)) for begin, end in lines]


@pytest.mark.parametrize("device", ["cpu", *["cuda"] * torch.cuda.is_available()])
def test_jobs_on_shared_slots_compute_one_at_a_time_and_weights_equal_those_of_plain_ddp(
    tmp_path: Path, device: str
) -> None:
    variants = ["bucket", "iteration", "static", "accumulated", "by-hand"]
    scheduler = CoreHandler("ff+srsf:1", 2, "ab")
    with (
        threaded_gate(tmp_path / "gate", recorder=scheduler) as running,
        contextlib.ExitStack() as stack,
    ):
        jobs = {}
        for name in "ab":
            more = {
                "HEADWAY_JOB": name,
                "HEADWAY_JOB_TOKEN": job_token(SECRET, name, 1),
                "SPANS": str(tmp_path / name),
                "DEVICE": device,
            }
            where = f"unix:{tmp_path / 'gate'}"
            jobs[name] = stack.enter_context(job(2, where, STEPS, *variants, **more))
        for ranks in jobs.values():
            lines = ranks[0].rest()
            assert [rank.process.wait() for rank in ranks] == [0, 0], lines
            for variant, (plain, gated) in digests(lines, variants).items():
                assert plain == gated, variant
            assert not any("ungated" in line for line in lines)
        for name, rank in itertools.product("ab", range(2)):
            running.wait_for_call("lost", name, 1, rank)
    assert scheduler.problems == []
    # Forward and backward of each step, and one pass without gradients.
    passes = 3 * (2 * STEPS + 1) + (4 * STEPS + 1) + STEPS
    for rank in range(2):
        own = [spans(tmp_path / f"{name}.{rank}") for name in "ab"]
        assert [len(one) for one in own] == [passes, passes]
        both = sorted(own[0] + own[1])
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(both))
    turns = 4 * (passes + 4 * STEPS)  # steps of the optimizer have turns too
    assert scheduler.kinds().count("compute") == turns
    assert scheduler.kinds().count("computed") == turns


def test_a_turn_around_a_backward_pass_ends_before_gradients_wait_for_the_network(
    tmp_path: Path,
) -> None:
    scheduler = CoreHandler("ff+srsf:1", 2, "j")
    with (
        threaded_gate(tmp_path / "gate", recorder=scheduler) as running,
        job(2, f"unix:{tmp_path / 'gate'}", STEPS, "around") as ranks,
    ):
        lines = ranks[0].rest()
        assert [rank.process.wait() for rank in ranks] == [0, 0], lines
        for rank in range(2):
            running.wait_for_call("lost", "j", 1, rank)
    ((plain, gated),) = digests(lines, ["around"]).values()
    assert plain == gated
    assert scheduler.problems == []
    assert scheduler.kinds().count("compute") == 2 * STEPS


def test_training_continues_when_the_gate_is_killed_and_finds_it_again(tmp_path: Path) -> None:
    where, go_on = tmp_path / "gate", tmp_path / "go on"
    with gate_process(where, "--grants", "10") as server:
        pause = {"PAUSE": f"20:{go_on}"}
        with job(2, f"unix:{where}", 30, "bucket", **pause) as ranks:
            server.until("held", "11")
            server.process.kill()
            ranks[0].until("pausing")
            with gate_process(where) as again:
                again.until("attached", "j", "1")
                go_on.touch()
                lines = ranks[0].rest()
                assert [rank.process.wait() for rank in ranks] == [0, 0], lines
                heard = again.until("lost", "j", "1")
                heard = " ".join(again.lines)
    ((plain, gated),) = digests(lines, ["bucket"]).values()
    assert plain == gated
    assert "granted" in heard
    assert "held" not in heard
    assert "iteration 30" in heard
    assert any("training continues ungated" in line for line in lines)
    assert any("again" in line for line in lines)


def test_a_killed_rank_ends_the_wait_of_rank_0(tmp_path: Path) -> None:
    where = tmp_path / "gate"
    with (
        gate_process(where, "--grants", "10") as server,
        job(2, f"unix:{where}", 30, "bucket") as ranks,
    ):
        server.until("held", "11")
        ranks[1].process.kill()
        server.process.kill()
        lines = ranks[0].rest()
        assert ranks[0].process.wait() == 1, lines
        assert any("Error" in line for line in lines)


if torch.cuda.is_available():

    @pytest.mark.parametrize("turns", [False, True])
    @pytest.mark.parametrize(("backend", "ranks"), [("gloo", 2), ("nccl", 1)])
    def test_weights_equal_those_of_plain_ddp_on_a_gpu(
        tmp_path: Path, backend: str, ranks: int, turns: bool
    ) -> None:
        variants = VARIANTS[:-2]
        late = Late()
        with threaded_gate(tmp_path / "gate", recorder=late) as running:
            where = f"unix:{tmp_path / 'gate'}"
            more = {"DEVICE": "cuda", "BACKEND": backend}
            more |= {"SPANS": str(tmp_path / "spans")} if turns else {}
            with job(ranks, where, STEPS, *variants, **more) as started:
                lines = started[0].rest()
                assert [rank.process.wait() for rank in started] == [0] * ranks, lines
            for rank in range(ranks if turns else 1):
                running.wait_for_call("lost", "j", 1, rank)
        for variant, (plain, gated) in digests(lines, variants).items():
            assert plain == gated, variant
        iterations = [one[3:] for one in late.calls if one[0] == "iteration"]
        assert all(forward > 0 and backward > 0 for _, forward, backward, _ in iterations)
        asked = {one[3:] for one in late.calls if one[0] == "compute"}
        ended = {one[3:] for one in late.calls if one[0] == "computed"}
        assert bool(asked) == turns
        assert asked == ended


def test_without_a_gate_calls_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import headway.torch

    monkeypatch.delenv("HEADWAY_GATE", raising=False)
    model = ddp_model()
    headway.torch.attach(model)
    compiled: Any = torch.nn.Module()  # like that of torch.compile, which takes seconds to import
    compiled._orig_mod = model
    headway.torch.attach(compiled)
    with headway.torch.communication(100):
        headway.torch.iteration()
    with pytest.raises(InputError, match="'bucket' or 'iteration', not 'layer'"):
        headway.torch.attach(model, gate="layer")  # type: ignore[arg-type]


class FullyShardedModel(torch.nn.Linear):
    """Not in DistributedDataParallel."""


@pytest.mark.parametrize("gate", [None, "unix:/nowhere"])
def test_only_ddp_can_be_attached_with_or_without_a_gate(
    gate: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import headway.torch

    if gate is None:
        monkeypatch.delenv("HEADWAY_GATE", raising=False)
    else:
        monkeypatch.setenv("HEADWAY_GATE", gate)
    model: Any = FullyShardedModel(2, 2)
    with pytest.raises(TypeError, match=r"DistributedDataParallel\(model\) .* FullyShardedModel"):
        headway.torch.attach(model)
