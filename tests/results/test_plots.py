"""The figures of a result show its numbers."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest

from builders import GRAPHS, make_graph_job, make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.engine.run import simulate
from headway.figure_style import write_figure
from headway.results.schema import Result
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.sinks import Timeline
from results.recording import CROWD, MIX, TWO_BY_TWO


@pytest.fixture(scope="module", params=[CROWD, MIX], ids=["plain", "graphs"])
def result(request: pytest.FixtureRequest) -> Result:
    options: dict[str, Any] = {"policy": "ls+srsf:2"}
    return simulate(request.param, TWO_BY_TWO, timeline=Timeline(), **options)


FIGURES = ["plot", "plot_jct", "plot_use", "plot_contention"]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_saved_and_repeats(result: Result, name: str) -> None:
    contents = []
    for _ in range(2):
        stream = BytesIO()
        write_figure(getattr(result, name)(), stream, "png")
        contents.append(stream.getvalue())
    assert contents[0].startswith(b"\x89PNG")
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", FIGURES)
def test_one_job_on_one_gpu_can_be_drawn(name: str) -> None:
    alone = simulate(make_workload(make_job()), Cluster(1, 1), timeline=Timeline())
    getattr(alone, name)().draw_without_rendering()


def test_the_distribution_ends_with_all_jobs(result: Result) -> None:
    (axes,) = result.plot_jct().axes
    line = axes.get_lines()[0]
    assert np.asarray(line.get_xdata())[1:].tolist() == sorted(result.jct_s.tolist())
    assert np.asarray(line.get_ydata())[-1] == 100
    legend = axes.get_legend()
    assert legend is not None
    assert any("average" in text.get_text() for text in legend.get_texts())


@pytest.mark.parametrize(
    ("hours", "unit", "most"), [(2, "s", 10_000), (30, "h", 40), (200, "days", 10)]
)
def test_long_times_are_drawn_in_hours_or_days(hours: int, unit: str, most: int) -> None:
    """Jobs of 3 ms an iteration: the long one takes that many hours."""
    jobs = [make_job(iterations=count) for count in (100, hours * 1_200_000)]
    result = simulate(make_workload(*jobs), Cluster(1, 2))
    use, jct = result.plot_use(), result.plot_jct()
    for figure in (use, jct):
        figure.draw_without_rendering()
    (_, lower), (distribution,) = use.axes, jct.axes
    assert lower.get_xlabel() == f"simulated time [{unit}]"
    shown = [text.get_text() for text in lower.get_xticklabels()]
    assert max(float(text.replace(",", "")) for text in shown) <= most
    texts = [text.get_text() for text in distribution.get_xticklabels()]
    assert ("1 h" in texts) == (unit != "s")
    assert distribution.get_xlabel() == "job completion time" + (" [s]" if unit == "s" else "")


def test_gpus_in_use_and_queue_are_those_of_the_jobs(result: Result) -> None:
    upper, lower = result.plot_use().axes
    for axes, count in ((upper, _gpus_in_use), (lower, _queued)):
        line = axes.get_lines()[0]
        times_s, values = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        for time_s, value in zip(times_s, values, strict=True):
            assert value == count(result, round(time_s * 1e9))
    assert np.asarray(upper.get_lines()[0].get_ydata()).max() == 4
    assert np.asarray(lower.get_lines()[0].get_ydata()).max() > 0


def _gpus_in_use(result: Result, now_ns: int) -> int:
    running = (result.start_ns <= now_ns) & (now_ns < result.finish_ns)
    return len({gpu for job in np.flatnonzero(running) for gpu in result.gpus[job]})


def _queued(result: Result, now_ns: int) -> int:
    return int(((result.arrival_ns <= now_ns) & (now_ns < result.start_ns)).sum())


def test_contention_adds_up_to_the_time_of_all_messages(result: Result) -> None:
    run = RecordedRun.of(result)
    left, right, _ = result.plot_contention().axes
    mean = np.asarray(left.get_images()[0].get_array())
    assert mean.shape[0] == 2
    spans = run.messages.explode("servers")
    total_ns = (spans["end_ns"] - spans["start_ns"]).sum()
    length_ns = run.window.to_ns - run.window.from_ns
    assert mean.mean() * length_ns * 2 == pytest.approx(total_ns)
    one, several = ([bar.get_width() for bar in bars] for bars in right.containers)
    assert 0 < min(several) <= max(np.add(one, several)) <= 100


def test_contention_needs_a_timeline() -> None:
    with pytest.raises(InputError, match="has no timeline in memory; record one with"):
        simulate(CROWD, TWO_BY_TWO).plot_contention()


def test_the_parts_of_the_time_add_up_and_a_job_alone_has_no_contention(result: Result) -> None:
    parts = result.time_parts.drop("job_id")
    assert parts.sum_horizontal().to_numpy() == pytest.approx(result.jct_s)
    assert (parts.to_numpy() >= 0).all()
    assert float(parts["contention_s"].sum()) > 0
    for policy in ("ff+srsf:1", "ff+srsf:1@3"):
        alone = simulate(make_workload(make_job(gpus=4, iterations=3)), TWO_BY_TWO, policy=policy)
        (row,) = alone.time_parts.rows(named=True)
        assert row["waiting_s"] == row["contention_s"] == 0
        assert row["computing_s"] == 0.009
        assert row["sending_s"] == pytest.approx(alone.jct_s[0] - 0.009)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_alone_computes_for_its_longest_path_and_sends_for_the_rest(name: str) -> None:
    job = make_graph_job(name, iterations=3)
    assert job.graph is not None
    alone = simulate(make_workload(job), TWO_BY_TWO, policy="ff+srsf:9")
    (row,) = alone.time_parts.rows(named=True)
    assert row["waiting_s"] == row["contention_s"] == 0
    assert row["computing_s"] == 3 * job.graph.unit_ns() / 1e9
    messages_s = row["sending_s"] + row["own_messages_s"]
    assert messages_s == pytest.approx(alone.jct_s[0] - row["computing_s"])
    assert row["sending_s"] > 0
    assert (row["own_messages_s"] > 0) == (name in ("replicas", "moe"))


def test_the_time_of_a_job_alone_across_racks_is_all_its_own() -> None:
    cluster = Cluster(4, 1, servers_per_rack=2, oversubscription=8)
    workload = make_workload(make_job(gpus=4, iterations=3))
    alone = simulate(workload, cluster, policy="ff+srsf:1")
    (row,) = alone.time_parts.rows(named=True)
    assert row["contention_s"] == 0
    assert row["sending_s"] > 0


def test_the_use_of_the_gpus_in_bins_averages_to_that_of_the_summary(result: Result) -> None:
    use = result.utilization(7)
    assert use["busy"].mean() == pytest.approx(result.summary.average_gpu_utilization)
    assert (use["held"] >= use["busy"] - 1e-12).all()
    assert use["queued"].mean() == pytest.approx(
        float((result.start_ns - result.arrival_ns).sum()) / 1e9 / result.summary.makespan_s
    )
    assert simulate(CROWD, TWO_BY_TWO).utilization(2)["busy"].to_list() == [None, None]
    with pytest.raises(InputError, match="bins: must be at least 1, not 0"):
        result.utilization(0)


def test_the_contention_of_a_server_is_that_of_its_messages(result: Result) -> None:
    run = RecordedRun.of(result)
    for server in range(run.servers):
        periods = result.contention(server)
        assert periods["from_s"][1:].to_list() == periods["to_s"][:-1].to_list()
        total_s = float(((periods["to_s"] - periods["from_s"]) * periods["messages"]).sum())
        spans = run.messages.explode("servers").filter(servers=server)
        assert total_s == pytest.approx(float((spans["end_ns"] - spans["start_ns"]).sum()) / 1e9)
    with pytest.raises(InputError, match="server: must be from 0 to 1, not 2"):
        result.contention(2)
    with pytest.raises(InputError, match="no timeline in memory"):
        simulate(CROWD, TWO_BY_TWO).contention(0)
