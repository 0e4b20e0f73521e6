"""One iteration alone: its times, its critical path and its picture."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.graphs import Layer, MoeLayer, ddp, fsdp, moe, pipeline
from headway.network.contention import NetworkModel
from headway.reports.iteration import run_alone
from headway.reports.iteration_layout import OTHER, families, family, lay_out
from headway.reports.iteration_picture import write_iteration

LAYERS = [Layer(1000 + 10 * index, 2000, 5000, 700, 300) for index in range(4)]
EXPERTS = [MoeLayer(1000, 2000, 1500, 3000, 900, 4000, 5000)] * 3
GRAPHS = {
    "ddp": ddp(LAYERS, 4, bucket_bytes=8000, first_bucket_bytes=1),
    "fsdp": fsdp(LAYERS, 4),
    "1f1b": pipeline([[layer] for layer in LAYERS], 4),
    "pipelines": pipeline([LAYERS[:2], LAYERS[2:]], 4, data_parallel=2, tensor_parallel=2),
    "moe": moe(EXPERTS, 6, expert_parallel=2),
    "one rank": ddp(LAYERS, 1),
}
NETWORK = NetworkModel(a_ns=1000, b_ns_per_byte=2.0, eta_ns_per_byte=1.0)


def oracle_ns(graph: Graph, gpus_per_server: int) -> int:
    servers = -(-graph.ranks // gpus_per_server)
    job = oracle.OracleJob(0, graph.ranks, 1, 0, 0, 0, 1, graph)
    given: dict[str, Any] = {"a_ns": 1000, "b": 2.0, "eta": 1.0, "admission": "srsf:99"}
    outcome = oracle.run(
        [job],
        server_gpus=[gpus_per_server] * servers,
        memory_bytes=[1],
        placement="ff",
        **given,
    )
    return int(outcome.finish_ns[0])


@pytest.mark.parametrize("gpus_per_server", [1, 2, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_an_iteration_takes_as_long_as_by_the_oracle(name: str, gpus_per_server: int) -> None:
    graph = GRAPHS[name]
    found = run_alone(graph, NETWORK, gpus_per_server)
    assert found.length_ns == oracle_ns(graph, gpus_per_server)


@pytest.mark.parametrize("gpus_per_server", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_critical_path_spans_the_iteration_without_a_gap(
    name: str, gpus_per_server: int
) -> None:
    found = run_alone(GRAPHS[name], NETWORK, gpus_per_server)
    path = found.critical_path
    starts, ends = found.start_ns[path], found.end_ns[path]
    assert starts[0] == 0
    assert np.array_equal(starts[1:], ends[:-1])
    assert ends[-1] == found.length_ns == sum(found.path_parts_ns.values())
    for node, following in pairwise(path):
        assert node in found.before(following)


def test_the_critical_path_goes_through_what_delays_the_end() -> None:
    tasks = [Task("quick", [0], 100), Task("slow", [1], 900), Task("last", [0], 50, ["sent"])]
    graph = Graph(2, tasks, [Message("sent", "send", [(0, 1)], 1000, after=["slow"])])
    found = run_alone(graph, NETWORK)
    assert [found.name(node) for node in found.critical_path] == ["slow", "sent", "last"]
    assert found.path_parts_ns == {"computing": 950, "send": 500 + 1000}
    assert [found.ranks(node) for node in found.critical_path] == [[1], [0, 1], [0]]


def test_all_ranks_on_one_server_take_as_long_as_with_free_messages() -> None:
    graph = GRAPHS["1f1b"]
    assert run_alone(graph, NETWORK, 8).length_ns == graph.unit_ns()


def test_ranks_that_do_the_same_share_a_row_if_there_are_many() -> None:
    rows = lay_out(run_alone(ddp(LAYERS, 13), NETWORK))
    assert [row.label for row in rows] == ["all ranks"]
    rows = lay_out(run_alone(pipeline([LAYERS[:2], LAYERS[2:]], 4, data_parallel=7), NETWORK))
    assert [row.label for row in rows] == ["0-6", "7-13"]
    rows = lay_out(run_alone(ddp(LAYERS, 3), NETWORK))
    assert [row.label for row in rows] == ["rank 0", "rank 1", "rank 2"]


def test_boxes_of_a_row_never_overlap() -> None:
    for graph in GRAPHS.values():
        for row in lay_out(run_alone(graph, NETWORK)):
            by_lane: dict[float, float] = {}
            for box in sorted(row.boxes, key=lambda box: box.from_ms):
                assert by_lane.get(box.top, 0) <= box.from_ms < box.to_ms
                by_lane[box.top] = box.to_ms
                assert row.top <= box.top
                assert box.top + box.height <= row.top + row.height


def test_too_many_boxes_are_refused() -> None:
    graph = Graph(1, [Task(f"t{number}", [0], 1) for number in range(20_001)])
    with pytest.raises(InputError, match="20,001 tasks and messages are too many for a picture"):
        lay_out(run_alone(graph, NETWORK))


def test_tasks_have_the_colour_of_their_family() -> None:
    assert family("forward-3.1") == family("forward_2") == family("forward") == "forward"
    assert family("1") == "1"
    tasks = [Task(f"{letter}-{n}", [0], 10 + n) for n, letter in enumerate("abcdefg")]
    found = run_alone(Graph(1, tasks), NETWORK)
    named = families(found, lay_out(found))
    assert named == {"a-0": OTHER, "b-1": OTHER} | {
        f"{x}-{n + 2}": x for n, x in enumerate("cdefg")
    }


@pytest.mark.parametrize("name", GRAPHS)
def test_every_picture_is_drawn_and_is_the_same_each_time(name: str, tmp_path: Path) -> None:
    found = run_alone(GRAPHS[name], NETWORK)
    contents = []
    for file in ("a.svg", "b.svg"):
        write_iteration(found, "A <title> & $more$", tmp_path / file)
        contents.append((tmp_path / file).read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(b"<?xml")


def test_a_page_has_the_picture_inside(tmp_path: Path) -> None:
    write_iteration(run_alone(GRAPHS["ddp"], NETWORK), "A <title>", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "<h1>A &lt;title&gt;</h1>" in page
    assert "<svg" in page
    assert "Critical path: computing 0.0" in page
