"""Real DDP jobs at the gate: the same weights, whatever the gate does."""

from __future__ import annotations

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

from gate.gates import SECRET, Recorder, Running, make_certificate, running_gate
from headway.domain.errors import InputError
from headway.gate import connections
from headway.gate.tokens import job_token
from worker.scheduling import Scheduler

HERE = Path(__file__).parent
DEADLINE_S = 120


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class Lines:
    """What a process prints, line by line, and the process."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words],
            env=os.environ | {"PYTHONPATH": path()} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.seen: list[str] = []
        self._timer = threading.Timer(DEADLINE_S, self.process.kill)
        self._timer.start()

    def until(self, *words: str) -> str:
        """Read until a line begins with these words; return it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line.strip())
            if line.split()[: len(words)] == list(words):
                return line.strip()
        raise AssertionError(f"no {words} in {self.seen}")

    def rest(self) -> list[str]:
        """Wait for the end; return all lines."""
        assert self.process.stdout is not None
        self.seen += [line.strip() for line in self.process.stdout]
        self.process.wait()
        return self.seen

    def end(self) -> None:
        """Make sure that the process has ended."""
        self._timer.cancel()
        self.process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait()


def path() -> str:
    import headway

    source = str(Path(headway.__file__).parents[1])
    return os.pathsep.join([source, str(HERE.parent), os.environ.get("PYTHONPATH", "")])


@contextlib.contextmanager
def job(ranks: int, gate: str, steps: int, *variants: str, **more: str) -> Iterator[list[Lines]]:
    """Run a training; the variables are those a scheduler gives."""
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "HEADWAY_GATE": gate,
        "HEADWAY_JOB": "j",
        "HEADWAY_ATTEMPT": "1",
        "HEADWAY_JOB_TOKEN": job_token(SECRET, "j", 1),
        **more,
    }
    words = [str(HERE / "training.py"), str(steps), *variants]
    with contextlib.ExitStack() as stack:
        started = []
        for rank in range(ranks):
            started.append(Lines(words, common | {"RANK": str(rank)}))
            stack.callback(started[-1].end)
        yield started


@contextlib.contextmanager
def granting(where: Path, *words: str) -> Iterator[Lines]:
    """Run a gate in a process of its own."""
    server = Lines([str(HERE.parent / "gate" / "granting.py"), str(where), *words], {})
    try:
        server.until("listening")
        yield server
    finally:
        server.end()


def digests(lines: list[str], variants: list[str]) -> dict[str, list[str]]:
    found = {line.split()[0]: line.split()[1:] for line in lines if line.split()[0] in variants}
    assert list(found) == variants, lines
    return found


class Late(Recorder):
    """Grants after a while, which differs."""

    def __init__(self, running: Running) -> None:
        super().__init__()
        self.gate = running.gate
        self._loop = running.loop
        self._draw = random.Random(0)

    def message_ready(self, job: str, attempt: int, request: int, *sizes: Any) -> None:
        self.heard.append(("ready", job, attempt, request, *sizes))
        assert self.gate is not None
        delay_s = self._draw.random() * 0.01
        self._loop.call_later(delay_s, self.gate.grant, job, attempt, request)


VARIANTS = ["bucket", "iteration", "static", "view", "kept", "accumulated", "busy", "by-hand"]
STEPS = 6


def test_weights_are_those_of_plain_ddp_however_late_grants_come(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with running_gate(tcp=("127.0.0.1", 0), ssl=context) as running:
        running.gate._listener = late = Late(running)
        with job(
            3,
            f"tcp:127.0.0.1:{running.gate.port}",
            STEPS,
            *VARIANTS,
            HEADWAY_GATE_CERT=str(certificate),
        ) as ranks:
            lines = ranks[0].rest()
            assert [rank.process.wait() for rank in ranks] == [0, 0, 0], lines
    for variant, (plain, gated) in digests(lines, VARIANTS).items():
        assert plain == gated, variant
    assert running.recorder.heard == []
    assert late.words()[0] == "attached"
    assert late.words()[-1] == "lost"
    assert late.words().count("ready") == late.words().count("done")

    # Each bucket asks, and says what is left of its iteration; DDP's first one has one bucket.
    total = 4 * 4 * (32 * 32 + 32)
    ready = [one[4:] for one in late.heard if one[0] == "ready"]
    assert ready[0] == (total, total)
    assert ready[1][1] == total
    assert ready[1][0] < total
    assert ready[2][1] == total - ready[1][0]
    assert ready[-1] == (400, 400)

    # Only the first model counts, and then the iterations by hand.
    iterations = [one[3:] for one in late.heard if one[0] == "iteration"]
    assert iterations[0][0] == 1
    assert all(forward > 0 and backward > 0 for _, forward, backward, _ in iterations[:1])
    assert iterations[0][3] == total
    assert iterations[-1] == (2 * STEPS, 0, 0, 400)


def spans(path: Path) -> list[tuple[int, int]]:
    """Return when a rank's passes began and ended."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(int(begin), int(end)) for begin, end in lines]


@pytest.mark.parametrize("device", ["cpu", *["cuda"] * torch.cuda.is_available()])
def test_jobs_on_the_same_slots_never_compute_at_once_and_weights_are_those_of_plain_ddp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    # A slow machine is no reason to let a worker go.
    monkeypatch.setattr(connections, "SILENT_BEATS", 600)
    variants = ["bucket", "iteration", "static", "accumulated", "by-hand"]
    with running_gate(unix=tmp_path / "gate") as running, contextlib.ExitStack() as stack:
        running.gate._listener = scheduler = Scheduler(running.gate, "ff+srsf:1", 2, "ab")
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
            assert not any("unasked" in line for line in lines)
    assert scheduler.problems == []
    # Forward and backward of each step, and one pass without gradients.
    passes = 3 * (2 * STEPS + 1) + (4 * STEPS + 1) + STEPS
    for rank in range(2):
        own = [spans(tmp_path / f"{name}.{rank}") for name in "ab"]
        assert [len(one) for one in own] == [passes, passes]
        both = sorted(own[0] + own[1])
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(both))
    assert scheduler.words().count("compute") == 4 * passes
    # Where a GPU says when a turn ends, a process may end before its last one does.
    unheard = 4 if device == "cuda" else 0
    assert 4 * passes - unheard <= scheduler.words().count("computed") <= 4 * passes


def test_a_turn_around_a_backward_pass_ends_before_its_gradients_wait_for_the_network(
    tmp_path: Path,
) -> None:
    with running_gate(unix=tmp_path / "gate") as running:
        running.gate._listener = scheduler = Scheduler(running.gate, "ff+srsf:1", 2, "j")
        with job(2, f"unix:{tmp_path / 'gate'}", STEPS, "around") as ranks:
            lines = ranks[0].rest()
            assert [rank.process.wait() for rank in ranks] == [0, 0], lines
    ((plain, gated),) = digests(lines, ["around"]).values()
    assert plain == gated
    assert scheduler.problems == []
    assert scheduler.words().count("compute") == 2 * STEPS


def test_a_gate_that_is_killed_stops_no_training_and_is_found_again(tmp_path: Path) -> None:
    where, go_on = tmp_path / "gate", tmp_path / "go on"
    with granting(where, "--grants", "10") as server:
        pause = {"PAUSE": f"20:{go_on}"}
        with job(2, f"unix:{where}", 30, "bucket", **pause) as ranks:
            server.until("held", "11")
            server.process.kill()
            ranks[0].until("pausing")
            with granting(where) as again:
                again.until("attached", "j", "1")
                go_on.touch()
                lines = ranks[0].rest()
                assert [rank.process.wait() for rank in ranks] == [0, 0], lines
                heard = again.until("lost", "j", "1")
                heard = " ".join(again.seen)
    ((plain, gated),) = digests(lines, ["bucket"]).values()
    assert plain == gated
    assert "granted" in heard
    assert "held" not in heard
    assert "iteration 30" in heard
    assert any("goes on unasked" in line for line in lines)
    assert any("again" in line for line in lines)


def test_a_rank_that_is_killed_ends_the_wait_of_rank_0(tmp_path: Path) -> None:
    where = tmp_path / "gate"
    with (
        granting(where, "--grants", "10") as server,
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
    def test_weights_are_those_of_plain_ddp_on_a_gpu(
        tmp_path: Path, backend: str, ranks: int, turns: bool
    ) -> None:
        variants = VARIANTS[:-2]
        with running_gate(unix=tmp_path / "gate") as running:
            running.gate._listener = late = Late(running)
            where = f"unix:{tmp_path / 'gate'}"
            more = {"DEVICE": "cuda", "BACKEND": backend}
            more |= {"SPANS": str(tmp_path / "spans")} if turns else {}
            with job(ranks, where, STEPS, *variants, **more) as started:
                lines = started[0].rest()
                assert [rank.process.wait() for rank in started] == [0] * ranks, lines
        for variant, (plain, gated) in digests(lines, variants).items():
            assert plain == gated, variant
        iterations = [one[3:] for one in late.heard if one[0] == "iteration"]
        assert all(forward > 0 and backward > 0 for _, forward, backward, _ in iterations)
        asked = {one[3:] for one in late.heard if one[0] == "compute"}
        ended = {one[3:] for one in late.heard if one[0] == "computed"}
        assert bool(asked) == turns
        # A process may end before its last turn does.
        assert len(asked - ended) <= ranks


def test_without_a_gate_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    import headway.torch

    monkeypatch.delenv("HEADWAY_GATE", raising=False)
    model: Any = torch.nn.Linear(2, 2)
    headway.torch.attach(model)
    with headway.torch.communication(100):
        headway.torch.iteration()
    with pytest.raises(InputError, match="'bucket' or 'iteration', not 'layer'"):
        headway.torch.attach(model, gate="layer")  # type: ignore[arg-type]
