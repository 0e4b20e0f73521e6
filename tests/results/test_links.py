"""Link loads: what each link carried and for how long, counted again from the timeline."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from pathlib import Path

import polars
import pytest
from hypothesis import given, settings

from builders import make_job, make_workload
from graph_nodes import nodes_of, size_bytes
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.records import COMMUNICATION
from headway.domain.tiers import Tier
from headway.engine.run import simulate
from headway.network.contention import NetworkModel
from headway.results.links import check_links_file, write_links
from headway.results.timeline.sinks import Timeline
from oracle import Link
from strategies import Case, cases, oracle_before, run_engine

NETWORK = NetworkModel(a_ns=10, b_ns_per_byte=1.0, eta_ns_per_byte=0.0)


def test_a_job_alone_keeps_its_links_busy_while_it_sends() -> None:
    """Two servers of two rails, under two leaves; 2 iterations of 20 + 10 + 100 / 2 ns."""
    cluster = Cluster(2, 2, rails=2, tiers=(Tier("leaf", 1, 1),))
    job = make_job(
        gpus=4, iterations=2, forward_ns=10, backward_ns=10, gradient_bytes=100, memory_bytes=1
    )
    result = simulate(make_workload(job), cluster, network=NETWORK, timeline=Timeline())
    links = result.links
    assert links["link"].to_list() == [
        *(f"server {server} rail {rail}" for server in range(2) for rail in range(2)),
        *("leaf 0", "leaf 1"),
    ]
    assert links["tier"].to_list() == ["server"] * 4 + ["leaf"] * 2
    assert links["messages"].to_list() == [2] * 6
    assert links["bytes"].to_list() == [100.0] * 4 + [200.0] * 2
    assert links["busy_ns"].to_list() == [2 * 60] * 6
    assert links["busy_share"].to_list() == [120 / 160] * 6


def test_links_need_a_timeline_in_memory() -> None:
    result = simulate(make_workload(make_job()), "2x1")
    with pytest.raises(InputError, match="the run has no timeline in memory"):
        result.links  # noqa: B018


@settings(max_examples=min(settings().max_examples, 30))
@given(case=cases(general=True, graphs=True, fabric=True))
def test_link_loads_are_what_the_timeline_adds_up_to(case: Case) -> None:
    """Bytes bucket by bucket, and busy nanoseconds between the starts and ends of messages."""
    timeline = Timeline()
    result = run_engine(case, timeline)
    world = oracle_before(case)
    carried: dict[Link, float] = defaultdict(float)
    count: dict[Link, int] = defaultdict(int)
    spans: dict[Link, list[tuple[int, int]]] = defaultdict(list)
    sent: dict[tuple[int, int, int], int] = defaultdict(int)
    tasks = timeline.tasks()
    messages = tasks[tasks.kind == COMMUNICATION]
    left = Counter(map(tuple, messages[["job", "node", "iteration"]].tolist()))
    for task in tasks:
        if task.kind != COMMUNICATION:
            continue
        job, gpus = case.workload[task.job], result.gpus[task.job]
        ranks, size = gpus, job.gradient_bytes
        if job.graph is not None:
            node = nodes_of(job.graph)[task.node]
            ranks = tuple(gpus[rank] for rank in sorted(node.ranks))
            on = [world.server[gpu] for gpu in ranks]
            size = size_bytes(node.entry, on, case.network.ring_size is not None)
        key = (int(task.job), int(task.node), int(task.iteration))
        left[key] -= 1
        bucket = min(size - sent[key], case.bucket_bytes or size)
        if case.buckets_if_shared and left[key] == 0:
            bucket = size - sent[key]
        sent[key] += bucket
        for link, part in world.links_of(ranks).items():
            carried[link] += part * bucket
            count[link] += 1
            spans[link].append((int(task.start_ns), int(task.end_ns)))
    ports: list[Link] = [
        ("rail", server, rail) for server, rails in enumerate(world.rails) for rail in range(rails)
    ]
    for tier, (switch_of, _) in enumerate(world.tiers):
        switches = sorted(set(switch_of))
        ports += [("uplink", tier, switch) for switch in switches if len(switches) > 1]
    table = result.links
    assert len(table) == len(ports)
    for link, row in zip(ports, table.iter_rows(named=True), strict=True):
        assert row["messages"] == count[link]
        assert math.isclose(row["bytes"], carried[link], rel_tol=1e-9, abs_tol=0.5)
        assert row["busy_ns"] == covered(spans[link])


def covered(spans: list[tuple[int, int]]) -> int:
    """Return how long at least one span is open, edge by edge."""
    edges = sorted({edge for span in spans for edge in span})
    return sum(
        high - low
        for low, high in itertools.pairwise(edges)
        if any(start <= low and high <= end for start, end in spans)
    )


def test_loads_are_written_as_csv_and_as_parquet(tmp_path: Path) -> None:
    job = make_job(gpus=2, iterations=3)
    result = simulate(make_workload(job), "2x1", timeline=Timeline())
    for name, read in (("l.csv", polars.read_csv), ("l.parquet", polars.read_parquet)):
        write_links(result.links, tmp_path / name)
        assert read(tmp_path / name).equals(result.links)
    check_links_file("-")
    with pytest.raises(InputError, match=r"l\.txt: must end in \.csv or \.parquet\."):
        check_links_file("l.txt")
