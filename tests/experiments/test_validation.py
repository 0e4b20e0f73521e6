"""`headway validate`: predictions of measured iterations."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from cli.commands import headway
from headway.configuration import network_from
from headway.domain.errors import InputError
from headway.experiments.validation.outcome import by_file, errors_by, kendall_tau, predict, worst
from headway.experiments.validation.rows import Measured, read_measured, shipped_files
from headway.llm.clusters import VTRAIN_NETWORK
from headway.llm.estimate import estimated_iteration_ns
from headway.llm.gpu_file import gpu_from

A100 = gpu_from("a100")
HEADER = (
    "gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor,data,pipeline,iteration_ms"
)
ROW = "8,32,4,1024,16,24,1024,2,2,2,219.732754"


def shipped(name: str) -> list[Measured]:
    return read_measured(str(resources.files("headway.llm") / "measured" / name))


def test_formulas_fit_the_shipped_rows() -> None:
    network = network_from(str(VTRAIN_NETWORK))
    for path, rows, mean, p95 in zip(
        shipped_files(), (725, 51), (0.06, 0.06), (0.18, 0.15), strict=True
    ):
        measured = read_measured(str(path))
        errors = [
            abs(
                estimated_iteration_ns(row.model, row.plan, A100, network, fused_attention=False)
                / row.time_ns
                - 1
            )
            for row in measured
        ]
        assert len(errors) == rows
        assert sum(errors) / rows <= mean
        assert np.percentile(errors, 95) <= p95


def test_constants_fitted_to_operations_predict_iterations_on_an_h200() -> None:
    """Llama's rows have no odd vocabulary and do not wait for Python."""
    rows = shipped("huggingface_h200.csv")
    assert {row.case.gpu for row in rows} == {"h200"}
    found = predict(rows, A100)
    assert found == predict(rows, gpu_from("h200"))
    errors = [abs(one.error) for one in found]
    llama = [
        abs(one.error) for one in found if one.row.model.gated_ffn and not one.row.model.experts
    ]
    assert (len(errors), len(llama)) == (25, 12)
    assert sum(errors) / len(errors) < 0.09
    assert sum(llama) / len(llama) < 0.04


def test_the_simulator_agrees_with_the_formula_on_some_shipped_rows() -> None:
    network = network_from(str(VTRAIN_NETWORK))
    rows = [row for path in shipped_files() for row in read_measured(str(path))]
    rows = [row for row in rows[::37] if row.plan.microbatches * row.plan.pipeline < 200]
    assert len(rows) > 15
    for one in predict(rows, A100, network):
        estimate_ns = estimated_iteration_ns(
            one.row.model, one.row.plan, A100, network, fused_attention=False
        )
        assert one.predicted_ns == pytest.approx(estimate_ns, rel=0.01), one.row


def test_published_iterations_of_megatron_are_within_a_tenth() -> None:
    rows = shipped("megatron_a100.csv")[:4]
    assert [row.model.hidden for row in rows] == [6144, 6144, 12_288, 12_288]
    for one in predict(rows, A100, network_from(str(VTRAIN_NETWORK))):
        assert abs(one.error) < 0.1, one.row


def test_groups_have_their_errors_and_rank_correlation() -> None:
    rows = [row for row in shipped("vtrain_a100_single.csv") if row.plan.pipeline == 1][:15]
    found = predict(rows, A100, network_from(str(VTRAIN_NETWORK)))
    (group,) = errors_by(found, by_file)
    assert (group.name, group.rows) == ("vtrain_a100_single.csv", 15)
    assert group.median <= group.p95 <= group.worst == abs(worst(found, 1)[0].error)
    assert group.tau is not None
    assert group.tau > 0.8


def test_kendalls_tau_counts_pairs_in_the_same_order() -> None:
    assert kendall_tau([1, 2, 3], [10, 20, 30]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert kendall_tau([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / 6**0.5)
    assert kendall_tau([1], [1]) is None


def test_recomputation_is_taken_from_its_column_or_from_the_number_of_servers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER},recompute\n{ROW},\n{ROW},full\n")
    assert [row.plan.recompute for row in read_measured(path)] == ["none", "full"]
    assert {row.plan.recompute for row in shipped("vtrain_a100_multi.csv")} == {"full"}


def test_a_row_on_one_server_recomputes_all_if_it_does_not_fit_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER}\n{ROW}\n")
    assert read_measured(path, gpu_bytes=2**32)[0].plan.recompute == "full"
    rows = shipped("vtrain_a100_single.csv")
    assert {row.plan.recompute for row in rows} == {"none"}


def test_headers_and_numbers_may_be_written_in_other_ways(tmp_path: Path) -> None:
    path, other = tmp_path / "mine.csv", tmp_path / "other.csv"
    path.write_text(f"{HEADER}\n{ROW}\n")
    header = HEADER.replace("global_batch", " Global Batch ").replace("gpus", "GPUs")
    other.write_text(f"{header}\n{ROW.replace('8,32,4', '8.0,32.,4.00')}\n")
    assert read_measured(path)[0].case == read_measured(other)[0].case


def test_other_columns_are_ignored_with_a_remark(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER},cluster,note\n{ROW},x,\n")
    found = headway(capsys, "validate", str(path))
    assert found.status == 0
    assert "ignored columns 'cluster', 'note'" in " ".join(found.err.split())
    assert found.out.startswith("1 iteration on a100\n")


def test_rows_without_a_time_are_predicted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, out, picture = tmp_path / "mine.csv", tmp_path / "out.json", tmp_path / "out.svg"
    untimed = ROW.rpartition(",")[0]
    path.write_text(f"{HEADER.removesuffix(',iteration_ms')}\n{untimed}\n")
    found = headway(capsys, "validate", str(path), "--json", str(out), "-o", str(picture))
    assert found.status == 0, found.err
    (row,) = json.loads(out.read_text())["rows"]
    assert row["measured_ms"] is None
    assert row["predicted_ms"] > 0
    assert "prediction" in found.out
    assert not picture.exists()
    assert f"{picture}: not drawn, since no row has a measured time\n" in found.err
    path.write_text(f"{HEADER}\n{untimed},\n{ROW}\n")
    found = headway(capsys, "validate", str(path), "--json", str(out))
    assert "1 without a measured time" in found.out
    assert len(json.loads(out.read_text())["rows"]) == 2


def test_rows_may_be_of_llamas_and_mixtures_of_experts(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    columns = {
        "ffn": "3584",
        "gated": "yes",
        "kv_heads": "8",
        "vocabulary": "32000",
        "tied": "0",
        "precision": "bf16",
        "experts": "8",
        "experts_per_token": "2",
        "expert": "2",
        "zero": "1",
        "recompute": "selective",
        "attention": "fused",
        "gpus_per_server": "4",
        "overlap": "0",
    }
    path.write_text(f"{HEADER},{','.join(columns)}\n{ROW},{','.join(columns.values())}\n")
    case = read_measured(path)[0].case
    model, plan = case.model, case.plan
    assert (model.ffn, model.gated_ffn, model.kv_heads, model.vocabulary) == (3584, True, 8, 32_000)
    assert (model.tied_embeddings, model.precision) == (False, "bf16")
    assert (model.experts, model.experts_per_token, plan.expert, plan.zero) == (8, 2, 2, 1)
    assert (plan.recompute, plan.overlap) == ("selective", False)
    assert (case.fused_attention, case.gpus_per_server) == (True, 4)
    (one,) = predict(read_measured(path), A100, network_from(str(VTRAIN_NETWORK)))
    assert one.predicted_ns > 0


def test_megatron_pads_the_vocabulary_on_several_servers(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER},vocabulary\n{ROW},\n{ROW},999\n")
    assert [row.model.vocabulary for row in read_measured(path)] == [50_257, 999]
    assert {row.model.vocabulary for row in shipped("vtrain_a100_multi.csv")} == {50_304}


def test_predictions_are_written_in_the_order_of_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # The legend has the name as it is: not as mathematics, and though it begins with an underscore.
    path, out, picture = tmp_path / "_$_{$\x1b.csv", tmp_path / "out.json", tmp_path / "out.svg"
    other = "8,8,1,1024,16,24,1024,4,2,1,345.8"
    path.write_text(f"{HEADER}\n{ROW}\n{other}\n{ROW}\n")
    found = headway(capsys, "validate", str(path), "--json", str(out), "-o", str(picture))
    assert found.status == 0, found.err
    rows = json.loads(out.read_text())["rows"]
    assert [row["line"] for row in rows] == [2, 3, 4]
    assert rows[0]["predicted_ms"] == rows[2]["predicted_ms"] != rows[1]["predicted_ms"]
    assert "24 x 1,024 tp4-dp2-pp1 mb1" in found.out
    assert max(map(len, found.out.splitlines())) <= 80
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty; it must begin with a header such as gpus,global_batch"),
        (HEADER, "has no rows"),
        (HEADER.replace("tensor", "tensr"), "line 1: missing column tensor. Unknown: 'tensr'."),
        (HEADER.replace("tensor", "data"), "line 1, column 9: duplicate column 'data'."),
        (f"{HEADER},gated\n{ROW},maybe", r"column 12 \(gated\): must be 0 or 1, not 'maybe'"),
        (f"{HEADER},attention\n{ROW},flash", r"\(attention\): unknown attention 'flash'. Known"),
        (f"{HEADER},gpu\n{ROW},h2000", r"column 12 \(gpu\): unknown GPU 'h2000'. Did you mean"),
        (f"{HEADER},experts\n{ROW},4", "experts_per_token: must be at least 1, not 0"),
        (f"{HEADER}\n{ROW.replace('1024,16', '1024,16.5')}", r"\(heads\): must be a whole number"),
        (
            f"{HEADER}\n9{ROW[1:]}",
            r"line 2, column 1 \(gpus\): must be tensor x data x pipeline, 8",
        ),
        (f"{HEADER}\n{ROW.replace('32', '33')}", r"column 2 \(global_batch\): must be a multiple"),
        (f"{HEADER}\n{ROW.replace('16,24', '16,1')}", r"column 10 \(pipeline\): every stage needs"),
        (f"{HEADER}\n{ROW.replace('219', 'x')}", r"\(iteration_ms\): must be a number of millisec"),
        (f"{HEADER}\n{ROW.replace('1024,16', '1024,0')}", r"\(heads\): must be at least 1, not 0"),
        (f"{HEADER}\n{ROW.replace('1024,16', '1024,x')}", r"\(heads\): must be a whole number"),
        (f"{HEADER}\n{ROW},1", "12 fields, but the header has 11 columns"),
        (f"{HEADER},recompute\n{ROW},some", r"column 12 \(recompute\): unknown recompute 'some'"),
    ],
)
def test_bad_rows_are_refused_with_file_line_and_column(
    text: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=problem) as caught:
        read_measured(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (f"{ROW},fp8", "mine.csv, line 3, gpu: a100 has no fp8"),
        (f"1,16777216,1{ROW[6:].replace('2,2,2', '1,1,1')},", "line 3: the graph would have"),
    ],
)
def test_a_row_that_cannot_be_predicted_is_refused_with_file_and_line(
    row: str, problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER},precision\n{ROW},\n{row}\n")
    found = headway(capsys, "validate", str(path))
    assert found.status == 2
    assert problem in found.err
    assert found.err.count("\n") == 1


def test_bad_options_are_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    found = headway(capsys, "validate", "--gpu", "b9000", "--json", str(out))
    assert found.status == 2
    assert "--gpu: unknown GPU 'b9000'" in found.err
    assert found.err.count("\n") == 1
    assert not out.exists()
    assert headway(capsys, "validate", "-o", "x.txt").status == 2
