"""SimAI's workload text becomes a graph on all ranks of its header."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from builders import EXAMPLES
from headway.domain.errors import InputError
from headway.graphs.imports.imported import message_totals
from headway.graphs.imports.simai import import_simai

HEADER = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tp} ep: {ep} pp: {pp} vpp: 1 "
    "ga: {ga} all_gpus: {gpus} checkpoints: 0 checkpoint_initiates: 0 pp_comm: {send}"
)
ROW = "layer -1 100 ALLREDUCE 4096 200 ALLGATHER 8192 300 REDUCESCATTER 16384 100"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def text(*rows: str, **sizes: float) -> str:
    header = HEADER.format(**({"tp": 1, "ep": 1, "pp": 1, "ga": 1, "gpus": 4, "send": 0} | sizes))
    return "\n".join([header, str(len(rows)), *rows, ""])


def write(content: str) -> str:
    Path("w.txt").write_text(content)
    return "w.txt"


def test_a_layer_waits_for_its_messages_but_not_for_those_of_its_weights() -> None:
    graph = import_simai(write(text(ROW, ROW, tp=2))).graph
    assert [(one.duration_ns, one.after) for one in graph.tasks] == [
        (100, ()),
        (100, ("layer-1-forward-message",)),
        (200, ("layer-2-forward-message",)),
        (300, ("layer-2-input-message",)),
        (200, ()),
        (300, ("layer-1-input-message",)),
    ]
    assert [(one.kind, one.groups, one.buffer_bytes, one.after) for one in graph.messages] == [
        ("all-reduce", ((0, 1), (2, 3)), 4096, ("layer-1-forward",)),
        ("all-reduce", ((0, 1), (2, 3)), 4096, ("layer-2-forward",)),
        ("all-gather", ((0, 1), (2, 3)), 8192, ("layer-2-input",)),
        ("reduce-scatter", ((0, 2), (1, 3)), 16384, ("layer-2-weight",)),
        ("all-gather", ((0, 1), (2, 3)), 8192, ("layer-1-input",)),
        ("reduce-scatter", ((0, 2), (1, 3)), 16384, ("layer-1-weight",)),
    ]
    assert graph.unit_ns() == 2 * (100 + 200 + 300)


def test_computing_with_no_message_between_is_one_task() -> None:
    quiet = "quiet -1 5 NONE 0 6 NONE 0 7 NONE 0 100"
    imported = import_simai(write(text(quiet, quiet)))
    assert [task.duration_ns for task in imported.graph.tasks] == [36]
    assert "Merged: 6 computations became 1 task; those with no message between them are one." in (
        imported.notes
    )


def test_experts_are_groups_within_data_parallel_ranks() -> None:
    row = "moe -1 1 ALLTOALL_EP 64 1 NONE 0 1 ALLREDUCE_DP_EP 32 100"
    graph = import_simai(write(text(row, tp=2, ep=2, gpus=16))).graph
    experts, replicas = graph.messages
    assert experts.kind == "all-to-all"
    assert experts.groups == (
        *((0, 2), (1, 3), (4, 6), (5, 7)),
        *((8, 10), (9, 11), (12, 14), (13, 15)),
    )
    assert replicas.groups == ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (2, 4), (4, 3)])
def test_a_pipeline_takes_one_microbatch_for_each_stage_more(
    stages: int, microbatches: int
) -> None:
    layers = [
        "embedding_layer -1 40 NONE 0 20 NONE 0 10 NONE 0 100",
        "mlp_layer -1 60 NONE 0 30 NONE 0 40 NONE 0 100",
    ]
    content = text(*layers * microbatches, pp=stages, ga=microbatches, gpus=stages * 2, send=64)
    imported = import_simai(write(content))
    assert imported.graph.unit_ns() == (microbatches + stages - 1) * (100 + 100)
    sends = [one for one in message_totals(imported.graph) if one.kind == "send"]
    assert [(one.messages, one.total_bytes) for one in sends] == [
        (2 * 2 * microbatches * (stages - 1), 64 * 2 * 2 * microbatches * (stages - 1))
    ]
    assert imported.notes[0] == (
        f"{2 * microbatches} rows on {2 * stages} ranks: tensor 1, data 2 (expert 1), pipeline "
        f"{stages}."
    )


def test_totals_are_those_of_the_rows_on_every_rank() -> None:
    path = str(EXAMPLES / "simai" / "moe.txt")
    lines = Path(path).read_text().splitlines()
    header = lines[0].split()
    sizes = {
        key: float(header[header.index(key) + 1])
        for key in ("model_parallel_NPU_group:", "ep:", "pp:", "all_gpus:", "ga:", "pp_comm:")
    }
    tensor, expert, stages, ranks, microbatches, send = map(int, sizes.values())
    data = ranks // tensor // stages
    groups = {"tp": tensor, "dp": data, "ep": expert, "dp-ep": data // expert}
    kinds = {
        "ALLREDUCE": "all-reduce",
        "ALLGATHER": "all-gather",
        "REDUCESCATTER": "reduce-scatter",
        "ALLTOALL": "all-to-all",
    }
    expected: Counter[tuple[str, int]] = Counter()
    for line in lines[2:]:
        words = line.split()
        for kind, size, default in ((3, 4, "tp"), (6, 7, "tp"), (9, 10, "dp")):
            name = words[kind]
            if name == "NONE" or words[size] == "0":
                continue
            stem, _, suffix = name.partition("_")
            among = groups[suffix.lower().replace("_", "-") or default]
            if among > 1:
                expected[kinds[stem], among] += int(words[size]) * (ranks // among)
    expected["send", 2] = 2 * send * microbatches * (stages - 1) * tensor * data
    found = {
        (one.kind, one.group_ranks): one.total_bytes
        for one in message_totals(import_simai(path).graph)
    }
    assert found == dict(expected)


def test_an_old_header_needs_the_number_of_ranks() -> None:
    path = write(
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 2 checkpoints: 0 "
        f"checkpoint_initiates: 0\n1\n{ROW}\n"
    )
    assert problem(path) == (
        "w.txt, line 1: has no all_gpus; give the number of GPUs with --ranks."
    )
    assert import_simai(path, ranks=6).graph.messages[-1].groups == ((0, 2, 4), (1, 3, 5))


def problem(path: str, **options: int) -> str:
    with pytest.raises(InputError) as caught:
        import_simai(path, **options)
    return str(caught.value)


BAD = {
    "nothing": (
        "",
        "line 1: must begin with HYBRID_TRANSFORMER_FWD_IN_BCKWD or HYBRID_TRANSFORMER, not "
        "nothing.",
    ),
    "another loop": (
        "MICRO\n1\n" + ROW,
        "line 1: must begin with HYBRID_TRANSFORMER_FWD_IN_BCKWD or HYBRID_TRANSFORMER, not "
        "'MICRO'.",
    ),
    "no count": (
        HEADER.split(maxsplit=1)[0] + " all_gpus: 4",
        "line 2, rows: must be a number, not ''.",
    ),
    "fewer rows": (
        text(ROW).replace("\n1\n", "\n2\n"),
        "line 2: says that there are 2 rows, but there are 1.",
    ),
    "more rows": (
        text(ROW, ROW).replace("\n2\n", "\n1\n"),
        "line 2: says that there are 1 rows, but there are 2.",
    ),
    "few columns": (text("layer -1 100 NONE"), "line 3: has 4 columns; a row has 12."),
    "time": (
        text(ROW.replace("100 ALLREDUCE", "fast ALLREDUCE")),
        "line 3, column 3: must be a number, not 'fast'.",
    ),
    "negative": (
        text(ROW.replace("8192", "-8192")),
        "line 3, column 8: must be at least 0, not '-8192'.",
    ),
    "kind": (
        text(ROW.replace("ALLGATHER", "ALLGATER")),
        "line 3, column 7: unknown kind of message 'ALLGATER'. Known: ALLGATHER, ALLREDUCE, "
        "ALLTOALL, BROADCAST, NONE, REDUCESCATTER.",
    ),
    "huge": (
        text(ROW.replace("4096", "1" + "0" * 30)),
        "line 3, column 5: must be at most 9,007,199,254,740,992, not "
        "'1000000000000000000000000000000'.",
    ),
    "infinite": (
        text(ROW.replace("4096", "inf")),
        "line 3, column 5: must be a number, not 'inf'.",
    ),
    "recomputing": (
        text(ROW).replace("checkpoints: 0", "checkpoints: 1 0"),
        "line 1, checkpoints: must be 0: computing the forward pass again is not supported.",
    ),
    "no value": (
        HEADER.split(maxsplit=1)[0] + " all_gpus:\n1\n" + ROW,
        "line 1, all_gpus: has no number.",
    ),
    "no experts": (text(ROW, ep=0), "line 1, ep: must be at least 1, not '0'."),
    "indivisible": (
        text(ROW, tp=3),
        "line 1: 4 GPUs cannot be cut into groups of 3: 3 (model_parallel_NPU_group) times 1 (pp).",
    ),
    "experts": (
        text(ROW, ep=3),
        "line 1: 4 data-parallel ranks cannot be cut into groups of 3 (ep).",
    ),
    "microbatches": (
        text(ROW, ROW, ROW, pp=2, ga=2, send=1),
        "with a pipeline (pp: 2) the 3 rows from line 3 on must be 2 times (ga) the same layers.",
    ),
    "no computing": (
        text("layer -1 0 ALLREDUCE 4 0 NONE 0 0 NONE 0 100", tp=2),
        "no row computes anything.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_text_is_refused(case: str) -> None:
    content, expected = BAD[case]
    separator = ", " if expected.startswith("line") else ": "
    assert problem(write(content)) == f"w.txt{separator}{expected}"


def test_bytes_that_are_no_text_are_refused() -> None:
    Path("w.txt").write_bytes(b"HYBRID_TRANSFORMER\n\xff")
    assert problem("w.txt") == "w.txt, line 2: not UTF-8 text: byte 0xff."


def test_ranks_must_be_those_of_the_header() -> None:
    assert problem(write(text(ROW)), ranks=8) == ("ranks: must be 4, the header's all_gpus, not 8.")


def test_messages_without_bytes_or_partners_are_dropped_and_counted() -> None:
    imported = import_simai(write(text(ROW.replace("4096", "0"))))
    # Tensor groups have one rank: the forward's message has no bytes, the gradient's no partner.
    assert [one.kind for one in imported.graph.messages] == ["reduce-scatter"]
    assert "Dropped: 4 messages of 0 bytes." in imported.notes
    assert "Dropped: 4 messages of a single rank." in imported.notes
