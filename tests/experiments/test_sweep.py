"""Sweeps do every run once, with the same bits each time, and survive being killed."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

import headway
from experiments.sweeps import HEADER, ROWS, deterministic_bytes, finished, small_sweep
from headway.domain.errors import InputError
from headway.domain.graph import Graph, Task
from headway.experiments import statistics
from headway.experiments.sweep import Swept, run_sweep, sweep_of
from headway.experiments.sweep.grid import key_of, points
from headway.experiments.sweep.pivot import (
    MAIN,
    METRICS,
    layout_of,
    number_axis,
    pivot,
    tables,
)
from headway.experiments.sweep.report import _lines, write_sweep_report
from headway.experiments.sweep.specification import COORDINATES, read_sweep
from headway.experiments.sweep.store import LOG, RunStore
from headway.workload.graphs import write_graph
from waiting import eventually

MANY = """
seeds = 60
workloads = [{ recipe = "paper", jobs = 20, iterations = [100, 600] }]
clusters = ["16x4", "8x8"]
policies = ["lwf:1+srsf:1", "lwf:1+srsf:2"]
"""

SLOWED = """
import sys, time
from headway.__main__ import main
from headway.experiments.sweep.store import RunStore

def add_slowly(store, outcome, add=RunStore.add):
    if len(store.finished) >= {runs}:
        time.sleep(0.05)
    add(store, outcome)

RunStore.add = add_slowly
main()
"""
"""The command, but the sweep slows down after a number of runs: all are done in a second, and who
waits for some of them must be able to interrupt it before the last."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def swept(home: Path) -> Swept:
    return run_sweep(small_sweep(home), home / "out", threads=2, jobs=True)


def test_every_run_is_what_simulate_returns(swept: Swept, home: Path) -> None:
    assert swept.runs.height == 4 * 2 * 2
    assert swept.failures == []
    recipe = headway.Recipe(
        jobs=4,
        span_s=1200,
        mix={2: 1},
        iterations=(2, 9),
        models=("vgg16", "resnet50", "inception-v3", "lstm-ptb"),
    )
    for row in swept.runs.iter_rows(named=True):
        if row["workload"].endswith("a.csv"):
            workload = headway.read_workload(home / "a.csv")
        else:
            workload = headway.generate_workload(recipe, row["seed"])
        result = headway.simulate(
            workload, row["cluster"], network=row["network"], policy=row["policy"], seed=row["seed"]
        )
        for name in ("average_jct_s", "p95_jct_s", "makespan_s", "energy_j", "simulated_tasks"):
            assert row[name] == getattr(result.summary, name)
        jobs = polars.read_parquet(home / "out" / "jobs" / f"{row['run']}.parquet")
        assert jobs["finish_ns"].to_list() == result.finish_ns.tolist()
        assert jobs["gpus"].to_list() == [list(gpus) for gpus in result.gpus]
        assert set(jobs["run"]) == {row["run"]}


def test_runs_are_in_the_order_of_the_grid(swept: Swept) -> None:
    coordinates = swept.runs.select("workload", "seed", "cluster", "policy").rows()
    names = list(dict.fromkeys(row[0] for row in coordinates))
    assert names[1] == "paper jobs=4 iterations=2:9 mix=2:1"
    assert coordinates == [
        (name, seed, cluster, policy)
        for name, seeds in zip(names, ([0], [0, 1, 2]), strict=True)
        for seed in seeds
        for cluster in ("3x2", "2x4")
        for policy in ("paper", "rand+srsf:1")
    ]
    assert swept.runs.columns[: len(COORDINATES)] == list(COORDINATES)
    assert "wall_s" not in swept.runs.columns


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(swept: Swept, home: Path, tmp_path: Path, threads: int) -> None:
    run_sweep(small_sweep(home), tmp_path, threads=threads, jobs=True)
    assert deterministic_bytes(tmp_path) == deterministic_bytes(home / "out")


def test_finished_runs_are_not_repeated(swept: Swept, home: Path) -> None:
    log, tables = finished(home / "out"), deterministic_bytes(home / "out")
    counts: list[tuple[int, int]] = []
    run_sweep(small_sweep(home), home / "out", started=lambda *both: counts.append(both))
    assert counts == [(16, 16)]
    assert finished(home / "out") == log
    assert deterministic_bytes(home / "out") == tables


def test_a_longer_sweep_runs_only_what_is_new(home: Path, tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    run_sweep(small_sweep(home), tmp_path)
    longer = small_sweep(home, seeds="0:4", policies=["paper", "rand+srsf:1", "headway"])
    run_sweep(longer, tmp_path, started=lambda *both: counts.append(both))
    assert counts == [(16, 36)]


def test_rows_of_jobs_can_be_added_later(swept: Swept, home: Path, tmp_path: Path) -> None:
    run_sweep(small_sweep(home), tmp_path)
    assert not (tmp_path / "jobs").exists()
    run_sweep(small_sweep(home, jobs=True), tmp_path)
    assert deterministic_bytes(tmp_path) == deterministic_bytes(home / "out")


def test_the_same_simulation_under_two_names_is_run_once(home: Path, tmp_path: Path) -> None:
    policies = ["paper", "lwf:1+ada-srsf", "lwf:1+srsf+ada-dual@0"]
    found = run_sweep(small_sweep(home, policies=policies), tmp_path)
    assert found.runs.height == 24
    assert len(finished(tmp_path)) == 8
    assert found.runs["run"].n_unique() == 8


def test_overrides_change_parts_of_every_policy(home: Path, tmp_path: Path) -> None:
    changes = {"policies": ["paper", "ff+fifo+srsf:1"], "clusters": "3x2", "seeds": 1}
    sweep = small_sweep(
        home, bucket_mb=[0, 62.5], placement=["ls"], gpu_memory_gb=[16, 32], gpu="a100", **changes
    )
    found = run_sweep(sweep, tmp_path).runs
    assert found.height == 2 * 2 * 2 * 2
    row = found.filter(policy="ff+fifo+srsf:1", bucket_mb=62.5, gpu_memory_gb=32).row(1, named=True)
    result = headway.simulate(
        headway.generate_workload(sweep_of(sweep).workloads[1].value.source, 0),  # type: ignore[arg-type]
        headway.Cluster.parse("3x2", 32),
        policy="ls+fifo+srsf:1@62.5",
    )
    assert row["average_jct_s"] == result.summary.average_jct_s
    assert (row["placement"], row["scheduler"], row["gpu"]) == ("ls", None, "a100")


def keys(document: dict[str, Any]) -> list[str]:
    sweep = sweep_of(document)
    return [key_of(sweep, point) for point in points(sweep)]


def test_changed_inputs_change_the_keys(home: Path, tmp_path: Path) -> None:
    own, cluster = tmp_path / "own.py", tmp_path / "site.toml"
    own.write_text("def first(cluster, job, candidates, parameter): return True\n")
    cluster.write_text("[cluster]\nservers = 2\ngpus_per_server = 4\n")
    sweep = small_sweep(
        tmp_path, policies=["paper", f"{own}:first+srsf:1"], clusters=["3x2", str(cluster)]
    )
    before = keys(sweep)
    assert keys(sweep) == before
    assert len(set(before)) == len(before) == 16
    (tmp_path / "a.csv").write_text(HEADER + ROWS.replace("0.1", "0.2"))
    assert [a == b for a, b in zip(keys(sweep), before, strict=True)] == [False] * 4 + [True] * 12
    (tmp_path / "a.csv").write_text(HEADER + ROWS)
    own.write_text(own.read_text() + "# another\n")
    assert [a == b for a, b in zip(keys(sweep), before, strict=True)] == [True, False] * 8
    cluster.write_text("[cluster]\nservers = 2\ngpus_per_server = 4\ngpu_memory_gb = 32\n")
    changed = [a == b for a, b in zip(keys(sweep), before, strict=True)]
    assert changed == [True, False, False, False] * 4


def test_a_changed_graph_changes_the_keys_and_an_equal_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("job_id,arrival_s,gpus,iterations,graph\na,0,4,2,g.json\n")
    sweep = {"workloads": [str(tmp_path / "w.csv")], "policies": ["paper"]}

    def key(ns: int) -> str:
        write_graph(Graph(4, [Task("task", range(4), ns)]), tmp_path / "g.json")
        found = sweep_of(sweep)
        return key_of(found, next(iter(points(found))))

    assert key(1_000_000) == key(1_000_000) != key(1_000_001)
    assert run_sweep(sweep, tmp_path / "out").runs.height == 1


def test_a_change_of_the_code_repeats_every_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(small_sweep(tmp_path))
    monkeypatch.setattr("headway.experiments.sweep.grid.code_version", lambda: "of another day")
    assert not set(keys(small_sweep(tmp_path))) & set(before)


@pytest.mark.parametrize("damage", ["torn", "no newline", "noise in the middle", "empty"])
def test_a_damaged_log_loses_only_the_damaged_lines(
    swept: Swept, home: Path, tmp_path: Path, damage: str
) -> None:
    run_sweep(small_sweep(home), tmp_path)
    lines = (tmp_path / LOG).read_bytes().splitlines(keepends=True)
    contents = {
        "torn": [*lines[:-1], lines[-1][:40]],
        "no newline": [*lines[:-1], lines[-1][:-1]],
        "noise in the middle": [*lines[:4], lines[4].replace(b"makespan", b"makespam"), *lines[5:]],
        "empty": [],
    }
    (tmp_path / LOG).write_bytes(b"".join(contents[damage]))
    counts: list[tuple[int, int]] = []
    found = run_sweep(small_sweep(home), tmp_path, started=lambda *both: counts.append(both))
    assert counts == [(0 if damage == "empty" else 15, 16)]
    assert found.runs.equals(swept.runs)
    assert (tmp_path / LOG).read_bytes().count(b"\n") == (17 if "middle" in damage else 16)


def test_only_one_process_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    with RunStore(tmp_path):
        message = rf"is in use by process {os.getpid()}; wait for it, or give"
        with pytest.raises(InputError, match=message):
            RunStore(tmp_path)
    with RunStore(tmp_path):
        pass


def start(
    folder: Path, *options: str, slow_after: int, **environment: str
) -> subprocess.Popen[str]:
    """Start a sweep of 240 runs that slows down after some of them."""
    (folder / "many.toml").write_text(MANY)
    code = SLOWED.format(runs=slow_after)
    return subprocess.Popen(
        [sys.executable, "-c", code, "sweep", "many.toml", *options],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_runs(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    def enough() -> bool:
        assert process.poll() is None, process.communicate()
        return (folder / LOG).exists() and len(finished(folder)) >= count

    eventually(enough)


@pytest.mark.slow
def test_kill_9_loses_no_run_and_repeats_none(tmp_path: Path) -> None:
    for count in (10, 60, 110):
        process = start(tmp_path, "-j", "2", slow_after=count)
        wait_for_runs(tmp_path / "many", count, process)
        process.kill()
        process.communicate()
        log = finished(tmp_path / "many")
        assert count <= len(log) < 240
    process = start(tmp_path, "-j", "2", slow_after=240)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert f"{len(log)} of 240 runs are already done, in many." in err
    again = finished(tmp_path / "many")
    assert again[: len(log)] == log
    assert len(again) == len(set(again)) == 240
    assert out.startswith("240 runs; means over 60 seeds")
    run_sweep(tmp_path / "many.toml", tmp_path / "at once", threads=1)
    assert deterministic_bytes(tmp_path / "many") == deterministic_bytes(tmp_path / "at once")


def test_an_interrupt_keeps_finished_runs_and_says_so(tmp_path: Path) -> None:
    process = start(tmp_path, "--jobs", slow_after=5)
    wait_for_runs(tmp_path / "many", 5, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "Finished runs are kept in many; repeat the command to continue." in err
    count = len(finished(tmp_path / "many"))
    assert polars.read_parquet(tmp_path / "many" / "runs.parquet").height == count
    with RunStore(tmp_path / "many") as store:
        assert len(store.finished) == count
        kept = {store.rows_file(key, "jobs") for key in store.finished}
    # A run's rows are written before the run is recorded, so there may be those of one more.
    written = set((tmp_path / "many" / "jobs").glob("*.parquet"))
    assert kept <= written
    assert len(written - kept) <= 1


def test_a_killed_process_releases_the_folder(tmp_path: Path) -> None:
    process = start(tmp_path, slow_after=1)
    wait_for_runs(tmp_path / "many", 1, process)
    with pytest.raises(InputError, match=rf"is in use by process {process.pid}"):
        run_sweep(tmp_path / "many.toml", tmp_path / "many")
    process.kill()
    process.communicate()
    with RunStore(tmp_path / "many") as store:
        assert store.finished


def test_failed_runs_are_reported_and_the_others_continue(home: Path, tmp_path: Path) -> None:
    found = run_sweep(small_sweep(home, clusters=["3x2", "1x2"]), tmp_path)
    assert found.runs.height == 2 + 12
    assert [failure.coordinates["cluster"] for failure in found.failures] == ["1x2", "1x2"]
    assert found.failures[0].problem.endswith(
        "a.csv, line 2, column 3 (gpus): 4 GPUs, but the cluster has 2 in all."
    )


def test_figures_are_means_and_ratios_are_paired(swept: Swept) -> None:
    frame = swept.runs
    recipe = frame["workload"][-1]
    layout = layout_of(frame)
    assert (layout.rows, layout.columns) == (("workload", "policy"), ("cluster",))

    def sample(policy: str) -> statistics.Sample:
        return frame.filter(workload=recipe, policy=policy, cluster="2x4")["p95_jct_s"].to_numpy()

    cell = (recipe, "rand+srsf:1"), ("2x4",)
    assert pivot(frame, layout, "p95_jct_s").cells[cell] == statistics.mean(sample("rand+srsf:1"))
    ratio = pivot(frame, layout, "p95_jct_s", "paper").cells[cell]
    assert ratio == statistics.paired_ratio(sample("rand+srsf:1"), sample("paper"))
    alone = pivot(frame, layout, "p95_jct_s", "paper").cells[
        (frame["workload"][0], "rand+srsf:1"), ("2x4",)
    ]
    assert math.isnan(alone.low)


def test_a_single_sampled_run_has_the_interval_of_sampling(swept: Swept) -> None:
    share = polars.when(polars.col("policy") == "paper").then(0.03).otherwise(0.04)
    frame = swept.runs.with_columns(average_jct_margin_s=share * polars.col("average_jct_s"))
    layout = layout_of(frame)
    cells = pivot(frame, layout, "average_jct_s").cells
    ratios = pivot(frame, layout, "average_jct_s", "paper").cells
    file, recipe = frame["workload"][0], frame["workload"][-1]
    paper, other = (((file, name), ("2x4",)) for name in ("paper", "rand+srsf:1"))
    assert cells[paper].margin == pytest.approx(0.03 * cells[paper].value)
    assert ratios[other].margin == pytest.approx(0.05 * ratios[other].value)
    assert not ratios[paper].has_interval, "a policy equals itself"
    assert not pivot(frame, layout, "median_jct_s").cells[paper].has_interval
    several = (recipe, "paper"), ("2x4",)
    assert cells[several] == pivot(swept.runs, layout, "average_jct_s").cells[several]


def test_axes_in_neither_rows_nor_columns_are_averaged(swept: Swept) -> None:
    layout = layout_of(swept.runs, rows=["policy"], columns=[])
    found = pivot(swept.runs, layout, "makespan_s").cells[("paper",), ()]
    sample = swept.runs.filter(policy="paper")["makespan_s"].to_numpy()
    assert found == statistics.mean(np.array(sample))


def test_without_columns_there_is_one_table(swept: Swept) -> None:
    (table,) = tables(swept.runs, layout_of(swept.runs, rows=["cluster", "policy"]), "paper")
    assert table.header[:3] == ("cluster", "policy", "average JCT [s]")
    assert table.header[-1] == "average JCT, ratio to paper"
    assert [row[:2] for row in table.rows] == [
        ["3x2", "paper"],
        ["3x2", "rand+srsf:1"],
        ["2x4", "paper"],
        ["2x4", "rand+srsf:1"],
    ]


NETWORKS = {"10gbe": 9.0, "25gbe": 5.0, "100gbe": 2.0}


def runs_by(**axes: list[str]) -> polars.DataFrame:
    """Return runs of all combinations of these axes, on three networks."""
    rows = [
        dict(zip([*axes, "network"], labels, strict=True))
        for labels in product(*axes.values(), NETWORKS)
    ]
    empty: dict[str, Any] = dict.fromkeys(COORDINATES)
    return polars.DataFrame(
        [{**empty, **row, **dict.fromkeys(METRICS, NETWORKS[row["network"]])} for row in rows]
    )


def test_an_axis_of_numbers_is_drawn_as_lines() -> None:
    frame = runs_by(cluster=["4x4", "8x4"], policy=["paper", "headway"])
    layout = layout_of(frame)
    means, ratios = pivot(frame, layout, MAIN), pivot(frame, layout, MAIN, "paper")
    axis = number_axis(means, layout)
    assert axis is not None
    assert (axis.title, axis.numbers) == ("network: *gbe", (10.0, 25.0, 100.0))
    left, right = _lines(means, ratios, axis).axes
    assert left.get_xlabel() == "network: *gbe"
    assert [text.get_text() for text in left.get_xticklabels()] == ["10", "25", "100"]
    labels = left.get_legend_handles_labels()[1]
    assert sorted(labels) == ["headway, 4x4", "headway, 8x4", "paper, 4x4", "paper, 8x4"]
    for panel, values in ((left, [9, 5, 2]), (right, [1, 1, 1])):
        drawn = [np.asarray(line.get_xydata()).tolist() for line in panel.get_lines()]
        assert drawn.count([[x, y] for x, y in zip([10, 25, 100], values, strict=True)]) == 4


@pytest.mark.parametrize(
    ("axes", "why"),
    [
        ({"policy": ["srsf:1", "srsf:2", "srsf:3"]}, "policies are names"),
        ({"cluster": ["4x4", "8x8", "16x2"]}, "they differ in two numbers"),
        ({"cluster": ["v1.toml", "v2.toml", "w3.toml"]}, "they differ in words too"),
        ({"cluster": ["4x4", "8x4"]}, "two points are no line"),
        ({"bucket_mb": ["–", "25", "50"]}, "one has no number"),
    ],
)
def test_other_axes_are_drawn_as_bars(axes: dict[str, list[str]], why: str) -> None:
    frame = runs_by(**axes).filter(network="10gbe")
    layout = layout_of(frame)
    assert number_axis(pivot(frame, layout, MAIN), layout) is None, why


def test_ratios_have_a_table_of_their_own_where_both_would_be_too_wide(swept: Swept) -> None:
    layout = layout_of(swept.runs, rows=["cluster", "policy"], values=tuple(METRICS))
    means, ratios = tables(swept.runs, layout, "paper", narrow=True)
    assert means.header[2:] == tuple(METRICS.values())
    assert ratios.caption == "Ratios to paper"
    (wide,) = tables(swept.runs, layout, "paper")
    for narrow, other, row in zip(means.rows, ratios.rows, wide.rows, strict=True):
        assert [*narrow, *other[2:]] == row


def test_missing_runs_leave_cells_empty(swept: Swept) -> None:
    frame = swept.runs.filter(~((polars.col("policy") == "paper") & (polars.col("seed") > 0)))
    layout = layout_of(frame, rows=["policy", "workload"])
    ratio = pivot(frame, layout, "average_jct_s", "paper")
    assert len(ratio.cells) == 4
    gone = frame.filter(~((polars.col("policy") == "paper") & (polars.col("cluster") == "2x4")))
    text = tables(gone, layout_of(gone), "paper")[-1].rows
    assert [row[-1] for row in text] == ["–"] * 4


def test_the_report_is_one_self_contained_page(swept: Swept, home: Path) -> None:
    page = write_sweep_report(home / "out").read_text()
    assert page.count("<svg") == 3
    assert "Average JCT, ratio to paper" in page
    assert "16 runs by Headway" in page
    for outside in ('src="', "<link", "http://www.example", "@import"):
        assert outside not in page
    again = write_sweep_report(home / "out", home / "again.html")
    assert again.read_text() == page


def test_a_sweep_may_be_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With margins in its tables; a run of another accuracy is another run."""
    monkeypatch.setattr("headway.engine.run._FEW_TASKS", 0)
    table = {"recipe": "paper", "jobs": 24, "span_s": 60, "iterations": [3000, 9000]}
    table["mix"] = {"1": 4, "2": 6, "4": 8, "8": 6}
    sweep = {"workloads": table, "policies": "paper", "clusters": "4x4", "seeds": 1}
    exact = run_sweep(sweep, tmp_path).runs
    found = run_sweep({**sweep, "accuracy": "1%"}, tmp_path).runs
    assert exact["sampled_share"].to_list() == exact["average_jct_margin_s"].to_list() == [0.0]
    assert found["sampled_share"][0] > 0 < found["average_jct_margin_s"][0]
    assert exact["run"][0] != found["run"][0]


def test_a_finished_sweep_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"recipe": "paper", "jobs": 4, "iterations": [10, 20]}
    sweep = {"workloads": table, "policies": "paper", "seeds": 1}
    found = run_sweep(sweep, tmp_path).runs
    monkeypatch.setattr("headway.experiments.sweep.run.compile_ahead", pytest.fail)
    assert run_sweep(sweep, tmp_path).runs.equals(found)


def test_a_bad_accuracy_of_a_sweep_is_located(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text('workloads = "paper"\npolicies = "paper"\naccuracy = "much"\n')
    with pytest.raises(InputError, match=r"line 3, column 1 \(accuracy\): must be"):
        read_sweep(path)
