"""What is wrong with a Chakra trace is said with its file and node."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.imports.chakra_messages import (
    RECEIVE,
    SEND,
    Node,
    collective,
    compute,
    encoded,
    make_node,
    write_trace,
)
from headway.domain.errors import InputError
from headway.domain.gpus import GPUS
from headway.graphs.imports import chakra_file
from headway.graphs.imports.chakra import import_chakra
from headway.graphs.imports.roofline import MEMORY_GB_S, roofline

GOOD = encoded([compute(1), collective(2, after=[1])])


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f").mkdir()


def problem(folder: str = "f", **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        import_chakra(folder, **options)
    return str(caught.value)


def trace(*ranks: list[Any], **more: str) -> None:
    write_trace(Path("f"), *ranks, **more)


def files(*contents: bytes) -> None:
    for rank, content in enumerate(contents):
        Path(f"f/t.{rank}.et").write_bytes(content)


DAMAGED = {
    "garbage": (
        b"not a trace",
        "not a Chakra execution trace: it does not begin with a GlobalMetadata message.",
    ),
    "empty": (
        b"",
        "not a Chakra execution trace: it does not begin with a GlobalMetadata message.",
    ),
    "no metadata": (
        GOOD[8:],
        "not a Chakra execution trace: it does not begin with a GlobalMetadata message.",
    ),
    "no nodes": (encoded([]), "there are no nodes in the trace."),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_file_that_is_no_trace_is_refused(case: str) -> None:
    content, expected = DAMAGED[case]
    files(content, GOOD)
    assert problem() == f"f/t.0.et: {expected}"


def message_of(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return bytes([len(body)]) + body


BROKEN_NODES = {
    "length too long": (b"\xff" * 11, "a number is longer than 64 bits."),
    "length cut off": (b"\x80", "a number is cut off."),
    "name is a number": (
        message_of(b"\x10\x05"),
        "not a node: its field 'name' has the wrong type.",
    ),
    "ids are doubles": (
        message_of(b"\x29" + bytes(8)),
        "not a node: its field 'data_deps' has the wrong type.",
    ),
    "unknown type": (message_of(b"\x18\x63"), "not a node: it has the unknown type 99."),
    "field cut off": (message_of(b"\x12\x20ab"), "a field of 32 bytes is cut off after 2."),
    "fixed cut off": (message_of(b"\x0d\x00"), "a field of 4 bytes is cut off after 1."),
    "group": (message_of(b"\x0b"), "a field has the unknown wire type 3."),
    "field 0": (message_of(b"\x00"), "a field has the number 0."),
    "attribute's name": (
        message_of(b"\x52\x02\x08\x01"),
        "an attribute's name is no text.",
    ),
    "attribute's value": (
        message_of(b"\x52\x10\x0a\x09comm_size\x4a\x03abc"),
        "an attribute's value has the wrong type.",
    ),
}


@pytest.mark.parametrize("case", BROKEN_NODES)
def test_a_broken_node_is_refused_with_its_offset(case: str) -> None:
    start = encoded([compute(1)])
    content, expected = BROKEN_NODES[case]
    files(start + content, GOOD)
    found = problem()
    total = len(start) + len(content)
    where, _, what = found.partition(": ")
    assert what == expected
    offset = int(where.removeprefix("f/t.0.et, byte ").removesuffix(f" of {total}"))
    assert len(start) <= offset <= total


def test_a_cut_file_names_the_byte_and_the_lengths() -> None:
    files(encoded([compute(1), compute(2)])[:-3], GOOD)
    size = len(encoded([compute(1), compute(2)])) - 3
    begin = len(encoded([compute(1)]))
    length = compute(2).ByteSize()
    assert problem() == (
        f"f/t.0.et, byte {begin} of {size}: a message of {length} bytes is cut off after "
        f"{length - 3}."
    )


def test_gzip_is_unpacked_and_its_damage_named() -> None:
    files(gzip.compress(GOOD), GOOD)
    assert len(import_chakra("f").graph.messages) == 1
    cut = len(encoded([compute(1)]))
    files(gzip.compress(GOOD[:cut]) + gzip.compress(GOOD[cut:]) + bytes(8), GOOD)
    assert len(import_chakra("f").graph.messages) == 1
    files(gzip.compress(GOOD) + b"more", GOOD)
    assert problem() == "f/t.0.et: the gzip file is damaged."
    files(gzip.compress(GOOD)[:-4], GOOD)
    assert problem() == "f/t.0.et: the gzip file is truncated."
    files(b"\x1f\x8b" + bytes(30), GOOD)
    assert problem() == "f/t.0.et: the gzip file is damaged."


def test_a_trace_of_countless_nodes_is_refused_before_they_are_all_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = encoded([Node()])
    files(gzip.compress(nothing + b"\0" * 10**6), GOOD)
    read = Mock(side_effect=chakra_file._node)
    monkeypatch.setattr(chakra_file, "_node", read)
    assert problem().startswith("f/t.0.et: node 0 ('') has the same id as node 0 ('')")
    assert read.call_count == 2
    monkeypatch.setattr(chakra_file, "MAX_NODES", 3)
    trace([compute(number) for number in range(1, 9)])
    assert problem() == "f/t.0.et: has more than 3 nodes."


def test_a_missing_rank_is_named() -> None:
    trace([compute(1)], [compute(1)], [compute(1)])
    Path("f/t.1.et").unlink()
    assert problem() == (
        "f: there is no file 't.1.et', but one for rank 2; each rank from 0 on needs one."
    )


def test_a_folder_must_have_one_trace_or_its_name_must_be_given() -> None:
    assert problem() == (
        "f: there are no files of a trace; they are named NAME.RANK.et, such as gpt.0.et."
    )
    trace([compute(1)], name="a")
    trace([compute(1)], name="b")
    assert problem() == "f: there are 2 traces: a, b; choose one with --name."
    assert problem(name="c") == "f: there is no trace 'c'. Known: a, b."
    assert import_chakra("f", name="b").graph.ranks == 1
    Path("f/b.00.et").write_bytes(GOOD)
    assert problem() == "f: 'b.0.et' and 'b.00.et' are both for rank 0."
    assert problem("f/a.0.et") == (
        "f/a.0.et: is a file; give the folder that has one file NAME.RANK.et for each rank."
    )
    assert problem("nowhere") == "nowhere: No such file or directory."


def test_ids_must_differ_and_dependencies_exist() -> None:
    trace([compute(1, name="a"), compute(1, name="b")])
    assert problem() == "f/t.0.et: node 1 ('b') has the same id as node 1 ('a'); ids must differ."
    trace([compute(1, after=[7])])
    assert problem() == "f/t.0.et: node 1 ('n1') waits for node 7, which is not in the file."
    trace([compute(1, control=[7])])
    assert problem() == "f/t.0.et: node 1 ('n1') waits for node 7, which is not in the file."
    trace([compute(1, after=[1])])
    assert problem() == "f/t.0.et: node 1 ('n1') waits for itself."


def test_a_cycle_within_a_rank_or_over_ranks_is_named() -> None:
    trace([compute(1, after=[2]), compute(2, after=[1])])
    assert problem() == (
        "f: these wait for each other, each for the one before and the first for the last: "
        "node 2 ('n2') of f/t.0.et, node 1 ('n1') of f/t.0.et."
    )
    first = [collective(1), collective(2, after=[1])]
    second = [collective(1, after=[2]), collective(2)]
    trace(first, second)
    assert problem() == (
        "f: these wait for each other, each for the one before and the first for the last: "
        "node 2 ('n2') of f/t.0.et, node 1 ('n1') of f/t.0.et."
    )


def test_collectives_of_a_group_must_match() -> None:
    trace([collective(1, 0, 8)], [collective(5, 2, 8)])
    assert problem() == (
        "f: node 1 ('n1') of f/t.0.et and node 5 ('n5') of f/t.1.et should be one collective of "
        "the group of all ranks, but one is all-reduce with the comm_size 8, the other all-gather "
        "with the comm_size 8."
    )
    trace([collective(1, 0, 8)], [collective(5, 0, 9)])
    assert problem() == (
        "f: node 1 ('n1') of f/t.0.et and node 5 ('n5') of f/t.1.et should be one collective of "
        "the group of all ranks, but one is all-reduce with the comm_size 8, the other all-reduce "
        "with the comm_size 9."
    )
    trace([collective(1), collective(2)], [collective(5)])
    assert problem() == (
        "f: the group of all ranks: rank 0 has 2 collectives, but rank 1 has 1; each rank of a "
        "group needs the same."
    )
    trace([compute(1)], [collective(5)])
    assert problem() == (
        "f: the group of all ranks: rank 1 has 1 collective, but rank 0 has 0; each rank of a "
        "group needs the same."
    )


def test_a_collective_needs_its_attributes() -> None:
    trace([make_node(1, 7, comm_size=4)], [collective(1)])
    assert problem() == "f/t.0.et: node 1 ('n1') has no attribute 'comm_type'."
    trace([make_node(1, 7, comm_type=0)], [collective(1)])
    assert problem() == "f/t.0.et: node 1 ('n1') has no attribute 'comm_size'."
    trace([collective(1, 0, -4)], [collective(1, 0, -4)])
    assert problem() == (
        "f/t.0.et: node 1 ('n1'): the attribute 'comm_size' must be a whole number of 0 or more, "
        "not -4."
    )
    trace([collective(1, 12)], [collective(1, 12)])
    assert problem() == ("f/t.0.et: node 1 ('n1') has the unknown comm_type 12; known are 0 to 9.")


def test_process_groups_must_be_known() -> None:
    trace([collective(1, pg_name="7")], [collective(1, pg_name="7")])
    assert problem() == (
        "f/t.0.et: node 1 ('n1') is in the process group '7', but there is no file of groups; give "
        "it with --groups."
    )
    groups = Path("f/t.json")
    groups.write_text('{"8": [0, 1]}')
    assert problem() == "f/t.0.et: node 1 ('n1') is in the unknown process group '7'. Known: 8."
    groups.write_text('{"7": [1]}')
    assert problem() == (
        "f/t.0.et: node 1 ('n1') is in the process group '7', which does not have its rank, 0."
    )
    groups.write_text('{"7": [0, 1]}')
    assert import_chakra("f").graph.messages[0].channel == "group-7"


BAD_GROUPS = {
    '{"7": [0, 1]': "f/t.json, line 1, column 13: must be JSON: Expecting ',' delimiter.",
    "[1]": 'f/t.json: must be a JSON object such as {"1": [0, 1]}.',
    '{"7": 3}': "f/t.json, group '7': must be a list of ranks, not 3.",
    '{"7": []}': "f/t.json, group '7': must be a list of ranks, not [].",
    '{"7": [0, 2]}': "f/t.json, group '7': there is no rank 2; the trace has ranks 0 to 1.",
    '{"7": [0, true]}': "f/t.json, group '7': there is no rank True; the trace has ranks 0 to 1.",
    '{"7": [0, 0]}': "f/t.json, group '7': a rank is there twice.",
    "\udcff": "f/t.json: must be JSON: it is not UTF-8.",
    "[" * 100_000: "f/t.json: must be a JSON object of lists of ranks.",
}


@pytest.mark.parametrize("text", BAD_GROUPS, ids=lambda text: text[:12].encode("ascii", "replace"))
def test_a_bad_file_of_groups_is_refused(text: str) -> None:
    trace([collective(1)], [collective(1)])
    Path("f/t.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert problem() == BAD_GROUPS[text]


def send(node_id: int, to: int, size: int = 8, tag: int = 3) -> Any:
    return make_node(node_id, SEND, comm_dst=to, comm_size=size, comm_tag=tag)


def receive(node_id: int, source: int, size: int = 8, tag: int = 3) -> Any:
    return make_node(node_id, RECEIVE, comm_src=source, comm_size=size, comm_tag=tag)


BAD_SENDS: dict[str, tuple[list[Any], list[Any], str]] = {
    "no receive": (
        [send(1, 1)],
        [compute(1)],
        "f/t.0.et: node 1 ('n1') sends to rank 1 with the tag 3, but that rank has no such "
        "receive.",
    ),
    "no send": (
        [compute(1)],
        [receive(4, 0)],
        "f/t.1.et: node 4 ('n4') receives from rank 0 with the tag 3, but there is no such send "
        "to rank 1.",
    ),
    "other tag": (
        [send(1, 1, tag=4)],
        [receive(4, 0)],
        "f/t.1.et: node 4 ('n4') receives from rank 0 with the tag 3, but there is no such send "
        "to rank 1.",
    ),
    "other size": (
        [send(1, 1, 8)],
        [receive(4, 0, 16)],
        "f: node 1 ('n1') of f/t.0.et sends 8, but node 4 ('n4') of f/t.1.et receives 16.",
    ),
    "itself": (
        [send(1, 0)],
        [compute(1)],
        "f/t.0.et: node 1 ('n1') is on rank 0 and has the comm_dst 0; it must be another of the "
        "ranks 0 to 1.",
    ),
    "nobody": (
        [send(1, 5)],
        [compute(1)],
        "f/t.0.et: node 1 ('n1') is on rank 0 and has the comm_dst 5; it must be another of the "
        "ranks 0 to 1.",
    ),
}


@pytest.mark.parametrize("case", BAD_SENDS)
def test_sends_and_receives_must_match(case: str) -> None:
    first, second, expected = BAD_SENDS[case]
    trace(first, second)
    assert problem() == expected


def test_sends_are_matched_by_source_destination_and_tag() -> None:
    trace(
        [send(1, 1, 8, tag=5), send(2, 1, 16, tag=6), send(3, 1, 32, tag=5)],
        [receive(1, 0, 16, tag=6), receive(2, 0, 8, tag=5), receive(3, 0, 32, tag=5)],
    )
    messages = import_chakra("f").graph.messages
    assert sorted((one.kind, one.buffer_bytes) for one in messages) == [
        ("send", 8),
        ("send", 16),
        ("send", 32),
    ]


def test_a_cost_is_needed_for_computations_without_a_time() -> None:
    trace([make_node(1, 4, num_ops=10**9, tensor_size=10)])
    assert problem() == (
        "f/t.0.et: node 1 ('n1') has no time; give --gpu, or --flops and --memory-bandwidth, to "
        "cost what it computes."
    )
    graph = import_chakra("f", cost=roofline(None, 2, 100)).graph
    assert graph.tasks[0].duration_ns == 500_000
    trace([make_node(1, 4, num_ops=10, tensor_size=1000)])
    graph = import_chakra("f", cost=roofline(None, 2, 100), element_bytes=3).graph
    assert graph.tasks[0].duration_ns == 30


def test_the_roofline_of_every_built_in_gpu_is_known() -> None:
    assert MEMORY_GB_S.keys() == GPUS.keys()
    found = roofline("h200", None, 3000)
    assert found is not None
    assert (found.tflops, found.memory_gb_s) == (67, 3000)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            (None, 5.0, None),
            "memory_bandwidth: give both --flops and --memory-bandwidth, or a GPU's name with "
            "--gpu.",
        ),
        (("h100", 0.0, None), "flops: must be a number above 0, not 0.0."),
        (("h100", None, float("nan")), "memory_bandwidth: must be a number above 0, not nan."),
        (("h10", None, None), "gpu: unknown GPU 'h10'. Did you mean 'h100'?"),
    ],
)
def test_a_bad_roofline_is_refused(
    options: tuple[str | None, float | None, float | None], expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        roofline(*options)
    assert str(caught.value) == expected


def test_a_collective_of_one_rank_needs_the_number_of_ranks() -> None:
    trace([compute(1), collective(2, after=[1])])
    assert problem() == (
        "f/t.0.et: node 2 ('n2') is a collective, but the trace has one rank; give --ranks to run "
        "it on several."
    )
    assert import_chakra("f", ranks=3).graph.messages[0].groups == ((0, 1, 2),)
    alone = import_chakra("f", ranks=1)
    assert alone.graph.messages == ()
    assert "Dropped: 1 collective of a single rank." in alone.notes
    assert problem(ranks=0) == "ranks: must be at least 1, not 0."


def test_options_are_checked() -> None:
    trace([compute(1)], [compute(1)])
    assert problem(ranks=3) == (
        "ranks: the trace has 2 ranks; only a trace of one rank runs on others."
    )
    assert problem(element_bytes=0) == "element_bytes: must be at least 1, not 0."


@pytest.mark.parametrize(
    ("comm_type", "kind", "size"),
    [
        (1, "reduce-scatter", 8),
        (3, "all-gather", 16),
        (4, "reduce-scatter", 8),
        (5, "all-gather", 8),
        (8, "reduce-scatter", 8),
        (9, "all-reduce", 0),
    ],
)
def test_other_collectives_become_the_kind_that_moves_the_same_bytes(
    comm_type: int, kind: str, size: int
) -> None:
    trace([collective(1, comm_type, 8)], [collective(1, comm_type, 8)])
    message = import_chakra("f").graph.messages[0]
    assert (message.kind, message.buffer_bytes) == (kind, size)


def test_values_are_read_from_whichever_field_is_set() -> None:
    for field in (
        "int32_val",
        "uint32_val",
        "sint32_val",
        "sint64_val",
        "fixed32_val",
        "fixed64_val",
        "sfixed32_val",
        "sfixed64_val",
        "uint64_val",
        "int64_val",
    ):
        node = make_node(0, 7, comm_type=0)
        node.attr.add(name="comm_size", **{field: 77})
        node.attr.add(name="is_cpu_op", bool_val=False)
        trace([node], [node])
        assert import_chakra("f").graph.messages[0].buffer_bytes == 77


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_bytes_never_end_in_another_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("f")
    (folder / "t.0.et").write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    (folder / "t.1.et").write_bytes(GOOD)
    with contextlib.suppress(InputError):
        import_chakra(str(folder))
