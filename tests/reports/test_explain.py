"""Where a job's time went: parts that add up exactly, and agree with a recomputation."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from builders import make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.records import BACKWARD, COMMUNICATION, FORWARD, Records
from headway.engine.run import simulate
from headway.reports.explain import MAX_OTHERS, PARTS, Explanation, explain
from headway.results.schema import Result
from headway.results.timeline.file import read_timeline
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.sinks import Timeline
from headway.results.timeline.window import Window
from results.recording import CROWD, TWO_BY_TWO, options_of, record
from strategies import Case, cases


def run_twice(path: Path, workload: Any, cluster: Cluster, **options: Any) -> tuple[Result, Any]:
    """Write a run's timeline, and return its result and tasks."""
    record(path, workload, cluster, **options)
    timeline = Timeline()
    result = simulate(workload, cluster, timeline=timeline, **options)
    return result, timeline.tasks()


def overlap(first: tuple[int, int], second: tuple[int, int]) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))


def recompute(
    result: Result, tasks: Records, job: int
) -> tuple[dict[str, int], dict[str, Counter[str]]]:
    """Return where a job's time went, worked out task by task and instant by instant."""
    servers = [set(result.settings.cluster.servers_of(gpus)) for gpus in result.gpus]
    names = [one.job_id for one in result.workload]
    parts = dict.fromkeys(PARTS, 0)
    others: dict[str, Counter[str]] = defaultdict(Counter)
    arrival, start = int(result.arrival_ns[job]), int(result.start_ns[job])
    parts["queued"] = start - arrival
    for other, gpus in enumerate(result.gpus):
        life = (int(result.start_ns[other]), int(result.finish_ns[other]))
        others["queued"][names[other]] += overlap(life, (arrival, start)) * len(gpus)
    everything = [
        (t.job.item(), t.kind.item(), t.gpu.item(), t.iteration.item(), t.start_ns.item(),
         t.end_ns.item())
        for t in tasks
    ]  # fmt: skip
    messages = [(who, a, b) for who, kind, _, _, a, b in everything if kind == COMMUNICATION]
    near = [m for m in messages if servers[m[0]] & servers[job]]
    now = start
    for iteration in range(result.workload[job].iterations):
        mine = [t for t in everything if t[0] == job and t[3] == iteration]
        last = max(b for _, kind, _, _, _, b in mine if kind == BACKWARD)
        gpu = min(g for _, kind, g, _, _, b in mine if kind == BACKWARD and b == last)
        (forward,) = ((a, b) for _, kind, g, _, a, b in mine if kind == FORWARD and g == gpu)
        (backward,) = ((a, b) for _, kind, g, _, a, b in mine if kind == BACKWARD and g == gpu)
        parts["computing"] += forward[1] - forward[0] + backward[1] - backward[0]
        for gap in ((now, forward[0]), (forward[1], backward[0])):
            parts["waiting_for_gpu"] += gap[1] - gap[0]
            for who, kind, g, _, a, b in everything:
                if kind != COMMUNICATION and g == gpu:
                    others["waiting_for_gpu"][names[who]] += overlap((a, b), gap)
        now = last
        for a, b in sorted((a, b) for _, kind, _, _, a, b in mine if kind == COMMUNICATION):
            parts["waiting_for_admission"] += a - now
            for who, c, d in near:
                if who != job:
                    others["waiting_for_admission"][names[who]] += overlap((c, d), (now, a))
                    others["sending_under_contention"][names[who]] += overlap((c, d), (a, b))
            times = sorted({a, b, *(t for _, c, d in near for t in (c, d) if a < t < b)})
            for low, high in itertools.pairwise(times):
                k = max(
                    sum(c <= low < d and server in servers[who] for who, c, d in near)
                    for server in servers[job]
                )
                parts["sending_alone" if k == 1 else "sending_under_contention"] += high - low
            now = b
    assert now == result.finish_ns[job]
    return parts, others


def check(found: Explanation, result: Result, tasks: Records, job: int) -> None:
    parts, others = recompute(result, tasks, job)
    assert found.parts_ns == parts
    assert sum(found.parts_ns.values()) == result.finish_ns[job] - result.arrival_ns[job]
    assert found.gpus == result.gpus[job]
    assert found.iterations == result.workload[job].iterations
    for part, shares in found.others.items():
        expected = {name: ns for name, ns in others[part].items() if ns > 0}
        assert {other.job_id: other.ns for other in shares}.items() <= expected.items()
        assert len(shares) == min(MAX_OTHERS, len(expected))
        assert [other.ns for other in shares] == sorted(expected.values())[::-1][:MAX_OTHERS]
    if len(others["waiting_for_gpu"]) <= MAX_OTHERS:
        waited = sum(other.ns for other in found.others["waiting_for_gpu"])
        assert waited == found.parts_ns["waiting_for_gpu"]


@settings(
    max_examples=min(settings().max_examples, 150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(case=cases())
def test_any_jobs_parts_are_exact(tmp_path: Path, case: Case) -> None:
    options = options_of(case)
    result, tasks = run_twice(tmp_path / "t", case.workload, case.cluster, **options)
    run = read_timeline(tmp_path / "t")
    for job in range(len(case.workload)):
        check(explain(run, case.workload[job].job_id), result, tasks, job)


@pytest.mark.parametrize("bucket_mb", [0, 4])
@pytest.mark.parametrize("scheduler", ["srsf:1", "srsf:3"])
def test_a_crowd_waits_in_every_way(tmp_path: Path, scheduler: str, bucket_mb: int) -> None:
    policy = f"ls+{scheduler}@{bucket_mb}"
    result, tasks = run_twice(tmp_path / "t", CROWD, TWO_BY_TWO, policy=policy)
    run = read_timeline(tmp_path / "t")
    totals: Counter[str] = Counter()
    for job in range(len(CROWD)):
        found = explain(run, str(job))
        check(found, result, tasks, job)
        totals.update(found.parts_ns)
    assert totals["queued"] > 0
    assert totals["waiting_for_gpu"] > 0
    assert (totals["waiting_for_admission"] > 0) == (scheduler != "srsf:3")
    assert (totals["sending_under_contention"] > 0) == (scheduler != "srsf:1")


def test_a_job_alone_waits_for_no_other(tmp_path: Path) -> None:
    record(tmp_path / "t", make_workload(make_job(gpus=4, iterations=3)), TWO_BY_TWO)
    found = explain(read_timeline(tmp_path / "t"), "0")
    assert found.parts_ns["computing"] == 9_000_000
    assert found.parts_ns["sending_alone"] == found.jct_ns - 9_000_000
    assert (found.servers, found.gpus) == ((0, 1), (0, 1, 2, 3))
    assert not any(found.others.values())
    assert json.loads(json.dumps(found.to_dict()))["jct_ns"] == found.jct_ns


def test_a_part_of_a_run_is_not_enough(tmp_path: Path) -> None:
    last_ns = int(record(tmp_path / "t", CROWD, TWO_BY_TWO).finish_ns.max())
    for window in (Window(1), Window(0, last_ns - 1), Window(0, 1)):
        record(tmp_path / "t", CROWD, TWO_BY_TWO, window)
        with pytest.raises(InputError, match=r"t: covers only .*needs the timeline of the whole"):
            explain(read_timeline(tmp_path / "t"), "0")
    record(tmp_path / "t", CROWD, TWO_BY_TWO, Window(0, last_ns))
    explain(read_timeline(tmp_path / "t"), "0")


def test_damaged_bytes_are_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "t"
    record(path, make_workload(*[make_job(gpus=2, iterations=3)] * 2), Cluster(2, 1))
    good, chance = path.read_bytes(), random.Random(0)
    explained = 0
    for _ in range(300):
        content = bytearray(good)
        content[chance.randrange(4, len(content) - 4)] = chance.randrange(256)
        path.write_bytes(content)
        try:
            found = explain(read_timeline(path), "1")
        except InputError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
        else:
            explained += 1
            assert sum(found.parts_ns.values()) == found.jct_ns
    assert explained > 20


def test_a_timeline_in_memory_can_be_explained() -> None:
    result = simulate(CROWD, TWO_BY_TWO, timeline=Timeline())
    assert result.timeline is not None
    check(explain(RecordedRun.of(result), "1"), result, result.timeline.tasks(), 1)


def test_it_works_without_the_compiler(tmp_path: Path) -> None:
    record(tmp_path / "t", CROWD, TWO_BY_TWO)
    code = (
        "import sys; from headway.reports.explain import explain\n"
        "from headway.results.timeline.file import read_timeline\n"
        "print(sorted(explain(read_timeline(sys.argv[1]), '2').parts_ns.items()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, tmp_path / "t"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = explain(read_timeline(tmp_path / "t"), "2")
    assert done.stdout == f"{sorted(found.parts_ns.items())}\n"


def test_an_unknown_job_is_an_error(tmp_path: Path) -> None:
    jobs = make_workload(*[make_job()] * 12)
    record(tmp_path / "t", jobs, TWO_BY_TWO)
    with pytest.raises(InputError, match=r"t: there is no job '111'\. Did you mean '11'\?"):
        explain(read_timeline(tmp_path / "t"), "111")
