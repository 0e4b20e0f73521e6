"""`headway graph ddp`, `fsdp`, `pipeline` and `moe`, and the ways in which they can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import EXAMPLES
from cli.commands import headway
from headway.configuration import profiles_from
from headway.domain.graph import Graph
from headway.domain.layers import merged
from headway.domain.models import MODELS
from headway.graphs import Layer, MoeLayer, ddp, fsdp, moe, pipeline, split_layers
from headway.graphs.layers import with_experts
from headway.graphs.parallel import parse_parallel
from headway.workload.graphs import read_graph

MB = 2**20
MS = 10**6
PLAIN = str(EXAMPLES / "layers" / "gpt.csv")
EXPERTS = str(EXAMPLES / "layers" / "experts.csv")
BLOCK = Layer(2_900_000, 5_800_000, 27 * MB, 12 * MB, 24 * MB)
LAYERS = [
    Layer(400_000, 900_000, round(150.2 * MB), 12 * MB),
    *[BLOCK] * 12,
    Layer(8_600_000, 17_100_000, round(0.1 * MB)),
]
EXPERT_LAYERS = [MoeLayer(1_600_000, 3_200_000, 2_400_000, 4_800_000, 12 * MB, 9 * MB, 36 * MB)] * 6


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "graph"),
    [
        (f"ddp {PLAIN} --ranks 4", ddp(LAYERS, 4)),
        (
            "ddp - --ranks 8 --bucket-mb 50 --first-bucket-mb 2.5 --optimizer-ms 0.5",
            ddp(
                LAYERS,
                8,
                bucket_bytes=50 * MB,
                first_bucket_bytes=5 * MB // 2,
                optimizer_ns=MS // 2,
            ),
        ),
        (f"fsdp {PLAIN} --ranks 4", fsdp(LAYERS, 4)),
        (
            f"fsdp {PLAIN} --ranks 4 --units 3",
            fsdp([merged(unit) for unit in split_layers(LAYERS, 3)], 4),
        ),
        (f"fsdp {PLAIN} --ranks 4 --units 300", fsdp([merged([one]) for one in LAYERS], 4)),
        (
            f"fsdp {PLAIN} --ranks 2 --prefetch 2 --no-reshard",
            fsdp(LAYERS, 2, prefetch=2, reshard=False),
        ),
        (
            f"pipeline {PLAIN} --stages 4 --microbatches 8",
            pipeline(split_layers(LAYERS, 4), 8),
        ),
        (
            f"pipeline {PLAIN} --stages 2 --microbatches 4 --schedule interleaved --chunks 3 "
            "--data-parallel 2 --tensor-parallel 2 --no-overlap --optimizer-ms 3",
            pipeline(
                split_layers(LAYERS, 6),
                4,
                schedule="interleaved",
                devices=2,
                data_parallel=2,
                tensor_parallel=2,
                overlap=False,
                optimizer_ns=3 * MS,
            ),
        ),
        (
            f"moe {EXPERTS} --ranks 8 --expert-parallel 4",
            moe(EXPERT_LAYERS, 8, expert_parallel=4),
        ),
    ],
)
def test_a_command_writes_what_its_builder_returns(
    arguments: str,
    graph: Graph,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open(PLAIN) as standard_input:
        monkeypatch.setattr("sys.stdin", standard_input)
        done = headway(capsys, "graph", *arguments.split(), "-o", "g.json")
    assert (done.status, done.out, done.err) == (0, "", "Written: g.json\n")
    assert read_graph("g.json") == graph


def test_a_model_is_known_by_name_with_its_layers_and_its_optimizer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = MODELS["vgg16"]
    llama = profiles_from(["h200"])[0].by_model["llama-1b-bf16"][1]
    by_name = "llama-1b-bf16 --profiles h200 --batch-size 4"
    cases = {
        "ddp vgg16 --ranks 4": ddp(model.layers, 4),
        "fsdp vgg16 --ranks 2 --batch-size 8": fsdp(model.at_batch_size(8).layers, 2),
        f"ddp {by_name} --ranks 2": ddp(llama.layers, 2, optimizer_ns=llama.optimizer_ns),
        f"fsdp {by_name} --ranks 2": fsdp(
            llama.layers, 2, optimizer_ns=round(llama.optimizer_ns / 2)
        ),
        f"fsdp {by_name} --ranks 2 --optimizer-ms 3": fsdp(llama.layers, 2, optimizer_ns=3 * MS),
        f"pipeline {by_name} --stages 3 --microbatches 2": pipeline(
            split_layers(llama.layers, 3), 2, optimizer_ns=round(llama.optimizer_ns / 3)
        ),
        f"pipeline {by_name} --stages 3 --microbatches 2 --tensor-parallel 2": parse_parallel(
            "tp2-pp3x1f1b:2"
        ).graph(llama.layers, 6, llama.optimizer_ns),
        f"moe {by_name} --ranks 4 --experts 8 --top 2": parse_parallel("moe:8:top=2").graph(
            llama.layers, 4, llama.optimizer_ns
        ),
        f"moe {by_name} --ranks 4 --experts 8 --expert-parallel 2 --optimizer-ms 3": moe(
            with_experts(llama.layers, 8, 1, 2), 4, expert_parallel=2, optimizer_ns=3 * MS
        ),
    }
    for arguments, graph in cases.items():
        done = headway(capsys, "graph", *arguments.split(), "-o", "g.json")
        assert (done.status, done.err) == (0, "Written: g.json\n")
        assert read_graph("g.json") == graph


def test_a_name_that_is_a_file_too_is_ambiguous(capsys: pytest.CaptureFixture[str]) -> None:
    Path("vgg16").write_text(TABLE)
    done = headway(capsys, "graph", "ddp", "vgg16", "--ranks", "2")
    assert "vgg16: is a model and a file in this folder; write ./vgg16 for the file" in done.err
    assert headway(capsys, "graph", "ddp", "./vgg16", "--ranks", "2").status == 0


TABLE = "layer,forward_ms,backward_ms,parameter_mb\nfirst,1,2,3\nlast,4,5,\n"


def test_columns_with_a_default_and_their_cells_may_be_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("l.csv").write_text(TABLE)
    done = headway(capsys, "graph", "ddp", "l.csv", "--ranks", "2")
    assert done.err == ""
    Path("g.json").write_text(done.out)
    assert read_graph("g.json") == ddp([Layer(MS, 2 * MS, 3 * MB), Layer(4 * MS, 5 * MS)], 2)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", "the file is empty; it must begin with a header such as forward_ms,backward_ms,"),
        (TABLE.replace("forward", "foward"), ", line 1, column 2: unknown column 'foward_ms'. "),
        ("backward_ms\n1\n", ", line 1: missing column forward_ms.\n"),
        ("layer\na\n", ", line 1: missing columns forward_ms, backward_ms.\n"),
        ("forward_ms,backward_ms\n", ": has no layers; give a row for each.\n"),
        ("forward_ms;backward_ms;layer\n", ", line 1: columns must be separated by commas, "),
        (TABLE + "x,1\n", ", line 4, column 3: 2 fields, but the header has 4 columns.\n"),
        (TABLE + "x,,1,1\n", ", line 4, column 2 (forward_ms): must not be empty.\n"),
        (TABLE + "x,1,0,1\n", ", line 4, column 3 (backward_ms): must be at least 0.000001 mi"),
        (TABLE + "x,1,1,-1\n", ", line 4, column 4 (parameter_mb): must be 0 or more MB, not '-1"),
        (TABLE + "x,1,1,1 MB\n", ", line 4, column 4 (parameter_mb): must be a number of MB, no"),
        (TABLE + "x,1,nan,1\n", ", line 4, column 3 (backward_ms): must be a finite number of mi"),
        (TABLE + '"x,1\n', ", line 4: not CSV: a quotation mark is not closed.\n"),
        (TABLE + "\0", ", line 4: not a text file; layers are CSV.\n"),
    ],
)
def test_a_bad_table_is_one_line_and_writes_nothing(
    table: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("l.csv").write_text(table)
    done = headway(capsys, "graph", "ddp", "l.csv", "--ranks", "2", "-o", "g.json")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"headway: error: l.csv{expected}" if table else "headway: error: ")
    assert expected in done.err
    assert done.err.count("\n") == 1
    assert not Path("g.json").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (f"ddp {PLAIN} --ranks 0", "--ranks: must be at least 1, not 0."),
        (
            f"ddp {PLAIN} --ranks 2 --bucket-mb 0",
            "--bucket-mb: must be at least 0.000001 MB, not 0",
        ),
        (f"ddp {PLAIN} --ranks 2 --optimizer-ms -1", "--optimizer-ms: must be 0 or more mill"),
        (f"ddp {EXPERTS} --ranks 2", "line 1, column 5: unknown column 'expert_forward_ms'"),
        (f"moe {PLAIN} --ranks 2", "line 1, column 5: unknown column 'activation_mb'"),
        (f"fsdp {PLAIN} --ranks 2 --prefetch -1", "prefetch: must be at least 0, not -1."),
        (
            f"moe {EXPERTS} --ranks 6 --expert-parallel 4",
            "--expert-parallel: must divide the 6 ran",
        ),
        (f"moe {EXPERTS} --ranks 2 --experts 4", "--experts: applies to a model's name only"),
        ("moe vgg16 --ranks 2", "--experts: must be given with a model's name."),
        ("moe vgg16 --ranks 2 --experts 0", "--experts: must be at least 1, not 0."),
        ("moe vgg16 --ranks 0 --experts 4", "--ranks: must be at least 1, not 0."),
        ("moe vgg16 --ranks 4 --experts 2 --top 3", "--top: must be at most 2, not 3."),
        (
            "moe vgg16 --ranks 4 --experts 2 --expert-parallel 4",
            "--expert-parallel: must divide the 2 experts; 4 does not.",
        ),
        (
            "moe lstm-ptb --ranks 4 --experts 2",
            "lstm-ptb: the model has no two equal layers in a row",
        ),
        (f"fsdp {PLAIN} --ranks 2 --units 0", "--units: must be at least 1, not 0."),
        (
            f"pipeline {PLAIN} --stages 4 --microbatches 1000000 --data-parallel 100",
            "--microbatches: must be at most 262,144, not 1000000.",
        ),
        (
            f"pipeline {PLAIN} --stages 4 --microbatches 30000 --data-parallel 100",
            "error: the graph would have 24,001,800 tasks; at most 4,194,304 are allowed.",
        ),
        (
            f"pipeline {PLAIN} --stages 4 --microbatches 1 --data-parallel 200000",
            "error: the graph would have 5,200,000 tasks; at most",
        ),
        (f"ddp {PLAIN} --ranks 16777216", "error: the graph would have 251,658,240 tasks; at"),
        (f"fsdp {PLAIN} --ranks 110000", "would have 4,620,000 ranks in the groups of its messag"),
        (f"moe {EXPERTS} --ranks 16777216", "error: the graph would have 419,430,400 tasks; at"),
        (f"pipeline {PLAIN} --stages 15 --microbatches 1", "stages: must be at most 14, one for"),
        (f"pipeline {PLAIN} --stages 0 --microbatches 1", "stages: must be at least 1, not 0."),
        (f"pipeline {PLAIN} --stages 2 --microbatches 0", "microbatches: must be at least 1, "),
        (
            f"pipeline {PLAIN} --stages 2 --microbatches 2 --schedule 1f2b",
            "schedule: unknown schedule '1f2b'. Did you mean '1f1b'?",
        ),
        (
            f"pipeline {PLAIN} --stages 2 --microbatches 2 --chunks 2",
            "chunks: applies to the schedule interleaved only.",
        ),
        ("ddp none.csv --ranks 2", "none.csv: No such file or directory."),
        ("ddp vgg6 --ranks 2", "vgg6: no such file, and no model of that name. Did you mean 'vgg1"),
        (f"ddp {PLAIN} --ranks 2 --batch-size 4", "batch-size: applies to a model's name only, no"),
        (f"ddp {PLAIN} --ranks 2 --profiles h200", "profiles: applies to a model's name only, no"),
        ("ddp vgg16 --ranks 2 --batch-size 0", "batch-size: must be at least 1, not 0."),
        (f"ddp {PLAIN} --ranks 2 -o no/g.json", "no/g.json: there is no folder no."),
    ],
)
def test_a_bad_option_is_one_line_and_writes_nothing(
    arguments: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = headway(capsys, "graph", *arguments.split())
    assert (done.status, done.out) == (2, "")
    assert expected in done.err
    assert done.err.count("\n") == 1


def test_the_table_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l.csv").write_text(TABLE)
    done = headway(capsys, "graph", "ddp", "l.csv", "--ranks", "2", "-o", "l.csv")
    assert done.status == 2
    assert "l.csv: is an input too; give another file" in done.err
    assert Path("l.csv").read_text() == TABLE
