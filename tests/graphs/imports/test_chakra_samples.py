"""Every sample of a Chakra trace imports, and its graph has the bytes of its files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from agreement import check
from builders import make_job
from graphs.imports.chakra_messages import (
    COLLECTIVE,
    COMPUTE,
    SEND,
    attributes,
    nodes_of,
    unpack,
)
from graphs.imports.longest_paths import path_of_graph, path_of_operations
from headway import Cluster
from headway.domain.graph import Graph
from headway.domain.workload import Workload
from headway.graphs.imports.assembly import assemble
from headway.graphs.imports.chakra import import_chakra
from headway.graphs.imports.chakra_file import read_rank
from headway.graphs.imports.chakra_folder import find_trace, read_groups
from headway.graphs.imports.chakra_operations import TraceOperations
from headway.graphs.imports.imported import Imported, message_totals
from headway.graphs.imports.operations import schedule
from headway.graphs.imports.roofline import Roofline, roofline
from headway.network.contention import NetworkModel
from strategies import Case, run_engine

H100 = roofline("h100", None, None)
STG = ["gpt_dp4", "gpt_dp2pp2", "llama_fsdp4", "llama_dp2tp4pp4"]
MICRO = [
    f"{kind}/{ranks}npus_1MB"
    for kind in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
    for ranks in (4, 8)
]
KINDS = {0: "all-reduce", 2: "all-gather", 6: "all-to-all", 7: "reduce-scatter"}

NO_CHAIN = {"forward_ns": 0, "backward_ns": 0, "gradient_bytes": 0}

Totals = Counter[tuple[str, tuple[int, ...]]]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    for sample in (*STG, "feeder_tests_trace", "astra_microbenchmarks"):
        unpack(sample, folder)
    return folder


def folder_of(samples: Path, sample: str) -> Path:
    return samples / ("astra_microbenchmarks" if "npus" in sample else "") / sample


def bytes_in_files(folder: Path, element_bytes: int) -> Totals:
    """Return the bytes M of each kind and group, each message counted once."""
    files = sorted(folder.glob("*.et"))
    groups = {
        name: tuple(ranks)
        for path in folder.glob("*.json")
        for name, ranks in json.loads(path.read_text()).items()
    }
    totals: Totals = Counter()
    for path in files:
        rank = int(path.name.split(".")[1])
        for node in nodes_of(path):
            found = attributes(node)
            if node.type == COLLECTIVE:
                group = groups[found["pg_name"]] if "pg_name" in found else tuple(range(len(files)))
                if rank == min(group):
                    kind = KINDS[found["comm_type"]]
                    whole = len(group) if kind == "all-gather" else 1
                    totals[kind, group] += found["comm_size"] * whole * element_bytes
            elif node.type == SEND:
                pair = tuple(sorted((rank, found["comm_dst"])))
                totals["send", pair] += found["comm_size"] * element_bytes
    return totals


def bytes_in_graph(graph: Graph) -> Totals:
    totals: Totals = Counter()
    for message in graph.messages:
        for group in message.groups:
            totals[message.kind, tuple(sorted(group))] += message.buffer_bytes
    return totals


@pytest.mark.parametrize("sample", [*STG, *MICRO])
def test_a_graph_has_the_bytes_of_its_files_by_kind_and_group(samples: Path, sample: str) -> None:
    folder = folder_of(samples, sample)
    expected = bytes_in_files(folder, 4 if sample in STG else 1)
    assert expected
    assert bytes_in_graph(import_chakra(str(folder), cost=H100).graph) == expected


def summary(imported: Imported) -> list[tuple[str, int, int, int]]:
    return [
        (one.kind, one.group_ranks, one.messages, one.total_bytes)
        for one in message_totals(imported.graph)
    ]


def test_totals_are_those_counted_with_the_classes_of_protoc(samples: Path) -> None:
    def totals(sample: str) -> list[tuple[str, int, int, int]]:
        return summary(import_chakra(str(samples / sample), cost=H100))

    assert totals("gpt_dp4") == [("all-reduce", 4, 14, 648_806_400)]
    assert totals("gpt_dp2pp2") == [
        ("all-reduce", 2, 34, 2_022_703_104),
        ("send", 2, 16, 268_435_456),
    ]
    assert totals("llama_fsdp4") == [
        ("all-gather", 4, 16, 4 * 704_643_072),
        ("all-reduce", 4, 2, 524_288_000),
        ("reduce-scatter", 4, 8, 1_409_286_144),
    ]
    assert totals("llama_dp2tp4pp4") == [
        ("all-gather", 4, 384, 4 * 6_442_450_944),
        ("all-reduce", 2, 136, 26_877_100_032),
        ("all-reduce", 4, 4, 2_097_152_000),
        ("reduce-scatter", 4, 256, 17_179_869_184),
        ("send", 2, 192, 3_221_225_472),
    ]


def test_the_trace_of_one_rank_of_pytorch_runs_on_several(samples: Path) -> None:
    folder = samples / "tests" / "data"
    imported = import_chakra(str(folder), ranks=4)
    assert summary(imported) == [
        ("all-gather", 4, 2, 212_904),
        ("all-reduce", 4, 5, 102_228_128),
    ]
    gpu_us = sum(
        node.duration_micros
        for node in nodes_of(folder / "chakra.0.et")
        if node.type == COMPUTE and not attributes(node)["is_cpu_op"]
    )
    # 157 copies without a time take 1 ns each.
    assert imported.graph.unit_ns() == gpu_us * 1000 + 157
    optimizer = imported.graph.tasks[-1]
    reduced = {one.name for one in imported.graph.messages if one.kind == "all-reduce"}
    assert set(optimizer.after) == reduced
    assert any("Dropped: 9,792 nodes of the CPU, 209.0 ms" in note for note in imported.notes)


@pytest.mark.parametrize("sample", STG)
def test_all_computing_of_a_rank_is_in_its_tasks(samples: Path, sample: str) -> None:
    cost = Roofline(tflops=1, memory_gb_s=1e3)
    folder = samples / sample
    graph = import_chakra(str(folder), cost=cost).graph
    for path in folder.glob("*.et"):
        rank = int(path.name.split(".")[1])
        expected = 0
        for node in nodes_of(path):
            if node.type == COMPUTE:
                found = attributes(node)
                flops = found["num_ops"] * (2 if found["op_type"] == "M" else 1)
                expected += max(1, round(max(flops / 1e3, 4 * found["tensor_size"] / 1e3)))
        assert sum(task.duration_ns for task in graph.tasks if rank in task.ranks) == expected


def operations_of(folder: Path) -> TraceOperations:
    found = find_trace(str(folder))
    traces = [read_rank(path) for path in found.files]
    assert found.groups is not None
    groups = read_groups(found.groups, len(traces))
    # The time is in proportion to num_ops.
    return TraceOperations(traces, groups, 4, Roofline(1e-3, 1e18), multiply_adds=False)


def test_a_pipeline_runs_as_in_astra_sim_of_what_is_ready_the_lowest_id_first(
    samples: Path,
) -> None:
    made = operations_of(samples / "llama_dp2tp4pp4")
    graph = assemble(made.operations, schedule(made.operations, 32), 32)
    busy = Counter[int]()
    for task in graph.tasks:
        for rank in task.ranks:
            busy[rank] += task.duration_ns
    # Each rank in an order of its own would take 2.71 times its busiest rank.
    assert graph.unit_ns() / max(busy.values()) == pytest.approx(1.62, abs=0.01)


@pytest.mark.parametrize("sample", STG)
def test_merging_changes_no_start_whatever_messages_take(samples: Path, sample: str) -> None:
    made = operations_of(samples / sample)
    ranks = 32 if sample == "llama_dp2tp4pp4" else 4
    plan = schedule(made.operations, ranks)
    graph = assemble(made.operations, plan, ranks)
    assert len(graph.tasks) < graph.expanded.tasks
    for seed in range(3):
        assert path_of_graph(graph, seed) == path_of_operations(made.operations, plan, seed)


def test_what_is_guessed_dropped_and_merged_is_said(samples: Path) -> None:
    imported = import_chakra(str(samples / "llama_fsdp4"), cost=H100)
    assert list(imported.notes) == [
        "1,432 nodes of 4 ranks: 1,328 computations, 26 collectives, 0 sends.",
        "Merged: 1,328 computations became 148 tasks; those with no message between them are one.",
        "Guessed: 1,328 computations without a time take that of a GPU with 67 TFLOPS and 3,350 "
        "GB/s of memory bandwidth.",
        "Guessed: 600 matrix products of STG count multiply-adds, so each is two floating-point "
        "operations.",
        "Guessed: sizes count elements of 4 bytes (--element-bytes).",
        "As in the files, nothing comes before 16 messages, so they may start with the iteration.",
    ]


def test_weights_are_gathered_in_the_order_in_which_layers_need_them(samples: Path) -> None:
    graph = import_chakra(str(samples / "llama_fsdp4"), cost=H100).graph
    gathers = [one.name for one in graph.messages if one.kind == "all-gather"]
    forward = [f"mb0.transformer.{layer}._assembled_weight@0_X1COMM" for layer in range(8)]
    backward = [
        f"mb0.transformer.{layer}._assembled_weight_backward@0_X1COMM"
        for layer in reversed(range(8))
    ]
    assert gathers == forward + backward


def test_an_imported_graph_contends_with_a_plain_job_as_the_oracle_says(samples: Path) -> None:
    graph = import_chakra(str(samples / "gpt_dp2pp2"), cost=H100).graph
    jobs = [
        make_job("graph", gpus=4, iterations=1, graph=graph, **NO_CHAIN),
        make_job("plain", gpus=4, iterations=3),
    ]
    case = Case(Workload(jobs), Cluster(2, 4), NetworkModel(), "spread", "srsf", "srsf:2", 0, None)
    check(case)
    alone = [run_engine(replace(case, workload=Workload([job]))) for job in jobs]
    both = run_engine(case)
    assert (both.finish_ns > [result.finish_ns[0] for result in alone]).any()
