"""Where a job's time went: parts that add up exactly, and agree with a recomputation."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from builders import MB, make_graph_job, make_job, make_workload
from graph_nodes import expansion_of, nodes_of
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.domain.records import BACKWARD, COMMUNICATION, FORWARD, NOBODY, Records
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.reports.explain import MAX_OTHERS, PARTS, Explanation, Other, explain
from headway.results.schema import Result
from headway.results.timeline.file import read_timeline
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.sinks import Timeline
from headway.results.timeline.window import Window
from oracle import Expansion, Node
from results.recording import CROWD, MIX, TWO_BY_TWO, drop_checksum, options_of, record
from strategies import Case, cases


def run_twice(path: Path, workload: Any, cluster: Cluster, **options: Any) -> tuple[Result, Any]:
    """Write a run's timeline, and return its result and tasks."""
    record(path, workload, cluster, **options)
    timeline = Timeline()
    result = simulate(workload, cluster, timeline=timeline, **options)
    return result, timeline.tasks()


def overlap(first: tuple[int, int], second: tuple[int, int]) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))


def covered(spans: list[tuple[int, int]], gap: tuple[int, int]) -> int:
    """Return for how long of a gap at least one span is open."""
    times = sorted({*gap, *(t for span in spans for t in span if gap[0] < t < gap[1])})
    return sum(
        high - low
        for low, high in itertools.pairwise(times)
        if any(first <= low < last for first, last in spans)
    )


_COLUMNS = {
    "queued": "waiting_ns",
    "computing": "running_ns",
    "waiting_for_gpu": "waiting_ns",
    "waiting_for_admission": "waiting_ns",
    "sending_alone": "running_ns",
    "sending_under_contention": "contention_ns",
}
"""Where the parts of a completion time are among those of an entry."""


class Recomputed:
    """Where a job's time went, worked out task by task and instant by instant."""

    def __init__(self, result: Result, tasks: Records, job: int) -> None:
        self.result, self.job = result, job
        self.rows = [
            (t.job.item(), t.kind.item(), t.gpu.item(), t.iteration.item(), t.start_ns.item(),
             t.end_ns.item(), t.node.item())
            for t in tasks
        ]  # fmt: skip
        self.parts = dict.fromkeys(PARTS, 0)
        fabric = result.settings.cluster.fabric
        self.all_rails = set(np.flatnonzero(fabric.server != NOBODY).tolist())
        self.own = dict.fromkeys(("waiting_for_admission", "sending_under_contention"), 0)
        self.others: dict[str, Counter[str]] = defaultdict(Counter)
        self.entries: dict[str, Counter[str]] = defaultdict(Counter)
        arrival, start = int(result.arrival_ns[job]), int(result.start_ns[job])
        self.parts["queued"] = start - arrival
        for other, gpus in enumerate(result.gpus):
            life = (int(result.start_ns[other]), int(result.finish_ns[other]))
            name = result.workload[other].job_id
            self.others["queued"][name] += overlap(life, (arrival, start)) * len(gpus)
        now = start
        for iteration in range(result.workload[job].iterations):
            mine = [row for row in self.rows if row[0] == job and row[3] == iteration]
            graph = result.workload[job].graph
            if graph is None:
                now = self.plain(mine, now)
            else:
                now = self.graph(mine, now, expansion_of(graph))
        assert now == result.finish_ns[job]

    def plain(self, mine: Sequence[tuple[int, ...]], now: int) -> int:
        """Add an iteration of forward, backward, all-reduce; return when it ended."""
        last = max(b for _, kind, _, _, _, b, _ in mine if kind == BACKWARD)
        gpu = min(g for _, kind, g, _, _, b, _ in mine if kind == BACKWARD and b == last)
        for stage in (FORWARD, BACKWARD):
            (span,) = ((a, b) for _, kind, g, _, a, b, _ in mine if kind == stage and g == gpu)
            self.compute(gpu, now, *span)
            now = span[1]
        for a, b in sorted((a, b) for _, kind, _, _, a, b, _ in mine if kind == COMMUNICATION):
            self.send(-1, now, a, b)
            now = b
        return now

    def graph(self, mine: Sequence[tuple[int, ...]], started: int, graph: Expansion) -> int:
        """Add the critical path of an iteration of a graph; return when it ended."""
        rows = {
            node: sorted((a, b, g) for *_, g, _, a, b, number in mine if number == node.number)
            for node in graph.nodes
        }

        @cache
        def end(node: Node) -> int:
            return rows[node][-1][1] if rows[node] else ready(node)

        @cache
        def ready(node: Node) -> int:
            return max([started, *map(end, graph.waits[node])])

        ended = max(map(end, rows))
        node = next(node for node in graph.nodes if end(node) == ended)
        on_path = set()
        while True:
            now, parts = ready(node), dict(self.parts)
            for a, b, gpu in rows[node]:
                if node.is_message:
                    self.send(node.number, now, a, b)
                else:
                    self.compute(gpu, now, a, b)
                now = b
            if rows[node]:
                spent = self.entries[node.entry.name]
                spent["iterations"] += node.entry.name not in on_path
                on_path.add(node.entry.name)
                for part, ns in self.parts.items():
                    spent[_COLUMNS[part]] += ns - parts[part]
            before = [other for other in graph.nodes if other in graph.waits[node]]
            if not before:
                return ended
            node = next(other for other in before if end(other) == ready(node))

    def compute(self, gpu: int, ready: int, a: int, b: int) -> None:
        self.parts["computing"] += b - a
        self.parts["waiting_for_gpu"] += a - ready
        for who, kind, g, _, c, d, _ in self.rows:
            if kind != COMMUNICATION and g == gpu:
                name = self.result.workload[who].job_id
                self.others["waiting_for_gpu"][name] += overlap((c, d), (ready, a))

    def send(self, node: int, ready: int, a: int, b: int) -> None:
        own = self.rails(self.job, node)
        near = [
            (row[0], row[6], row[4], row[5], self.rails(row[0], row[6]))
            for row in self.rows
            if row[1] == COMMUNICATION and self.rails(row[0], row[6]) & own
        ]
        self.parts["waiting_for_admission"] += a - ready
        for who, job in enumerate(self.result.workload):
            spans = [
                (c, d)
                for other, number, c, d, _ in near
                if other == who and (other, number) != (self.job, node)
            ]
            self.others["waiting_for_admission"][job.job_id] += covered(spans, (ready, a))
            self.others["sending_under_contention"][job.job_id] += covered(spans, (a, b))
        others = [row[2:4] for row in near if row[:2] != (self.job, node)]
        theirs = [row[2:4] for row in near if row[0] != self.job]
        gaps = {"waiting_for_admission": (ready, a), "sending_under_contention": (a, b)}
        for part, gap in gaps.items():
            self.own[part] += covered(others, gap) - covered(theirs, gap)
        times = sorted({a, b, *(t for _, _, c, d, _ in near for t in (c, d) if a < t < b)})
        for low, high in itertools.pairwise(times):
            k = max(
                sum(c <= low < d and rail in theirs for _, _, c, d, theirs in near) for rail in own
            )
            self.parts["sending_alone" if k == 1 else "sending_under_contention"] += high - low

    def rails(self, job: int, node: int) -> set[int]:
        graph, gpus = self.result.workload[job].graph, self.result.gpus[job]
        if graph is not None:
            gpus = tuple(gpus[rank] for rank in nodes_of(graph)[node].ranks)
        return set(self.result.settings.cluster.fabric.shares(gpus)) & self.all_rails


def check(found: Explanation, result: Result, tasks: Records, job: int) -> None:
    expected = Recomputed(result, tasks, job)
    parts, all_others = expected.parts, expected.others
    assert found.parts_ns == parts
    assert found.own_ns == expected.own
    assert sum(found.parts_ns.values()) == result.finish_ns[job] - result.arrival_ns[job]
    assert found.gpus == result.gpus[job]
    assert found.iterations == result.workload[job].iterations
    for part, shares in found.others.items():
        others = {name: ns for name, ns in all_others[part].items() if ns > 0}
        assert {other.job_id: other.ns for other in shares}.items() <= others.items()
        assert len(shares) == min(MAX_OTHERS, len(others))
        assert [other.ns for other in shares] == sorted(others.values())[::-1][:MAX_OTHERS]
    columns = ("iterations", *sorted(set(_COLUMNS.values())))
    entries = {one.name: {name: getattr(one, name) for name in columns} for one in found.entries}
    assert entries == {
        name: {column: spent[column] for column in columns}
        for name, spent in expected.entries.items()
    }
    totals = [one.total_ns for one in found.entries]
    assert totals == sorted(totals, reverse=True)
    if result.workload[job].graph is not None:
        assert sum(totals) == result.finish_ns[job] - result.start_ns[job]
    if len(all_others["waiting_for_gpu"]) <= MAX_OTHERS:
        waited = sum(other.ns for other in found.others["waiting_for_gpu"])
        assert waited == found.parts_ns["waiting_for_gpu"]


@settings(
    max_examples=min(settings().max_examples, 150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(case=cases() | cases(graphs=True) | cases(general=True, graphs=True, fabric=True))
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


@pytest.mark.parametrize("bucket_mb", [0, 4])
@pytest.mark.parametrize("scheduler", ["srsf:1", "srsf:3"])
def test_a_mix_of_graphs_waits_in_every_way(scheduler: str, bucket_mb: int) -> None:
    policy = f"ls+{scheduler}@{bucket_mb}"
    result = simulate(MIX, TWO_BY_TWO, policy=policy, timeline=Timeline())
    assert result.timeline is not None
    run, totals = RecordedRun.of(result), Counter[str]()
    for job in range(len(MIX)):
        found = explain(run, str(job))
        check(found, result, result.timeline.tasks(), job)
        totals.update(found.parts_ns)
    assert totals["queued"] > 0
    assert totals["waiting_for_gpu"] > 0
    assert totals["waiting_for_admission"] > 0 or scheduler == "srsf:3"
    assert (totals["sending_under_contention"] > 0) == (scheduler != "srsf:1")


def test_a_job_with_a_graph_can_contend_with_itself() -> None:
    """Two messages of 10 MB start together, on two channels: each is slowed down by the other."""
    graph = Graph(
        2,
        [Task("task", [0, 1], 1_000_000)],
        [
            Message("one", "all-reduce", [[0, 1]], 10 * MB, "a", ["task"]),
            Message("other", "all-reduce", [[0, 1]], 10 * MB, "b", ["task"]),
        ],
    )
    workload = Workload([Job("graph", 0, 2, 3, graph=graph)])
    result = simulate(workload, Cluster(2, 1), policy="ff+srsf:2", timeline=Timeline())
    found = explain(RecordedRun.of(result), "graph")
    sending_ns = found.jct_ns - 3_000_000
    assert found.parts_ns["computing"] == 3_000_000
    assert found.parts_ns["sending_under_contention"] == sending_ns
    assert found.others["sending_under_contention"] == (Other("graph", sending_ns),)
    assert found.own_ns["sending_under_contention"] == sending_ns
    result = simulate(workload, Cluster(2, 1), policy="ff+srsf:1", timeline=Timeline())
    found = explain(RecordedRun.of(result), "graph")
    assert found.parts_ns["sending_alone"] == found.parts_ns["waiting_for_admission"]
    waiting_ns = found.parts_ns["waiting_for_admission"]
    assert found.others["waiting_for_admission"] == (Other("graph", waiting_ns),)
    assert found.own_ns == {"waiting_for_admission": waiting_ns, "sending_under_contention": 0}


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


@pytest.mark.parametrize("has_graph", [False, True])
def test_damaged_bytes_without_a_checksum_are_refused_or_harmless(
    tmp_path: Path, has_graph: bool
) -> None:
    path, job = tmp_path / "t", make_job(gpus=2, iterations=3)
    other = make_graph_job("ddp", iterations=3) if has_graph else job
    record(path, make_workload(job, other), Cluster(4, 1) if has_graph else Cluster(2, 1))
    drop_checksum(path)
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
