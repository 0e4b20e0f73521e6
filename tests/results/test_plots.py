"""The figures of a result show its numbers."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest

from builders import make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.engine.run import simulate
from headway.figure_style import write_figure
from headway.results.schema import Result
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.sinks import Timeline
from results.recording import CROWD, TWO_BY_TWO


@pytest.fixture(scope="module")
def result() -> Result:
    options: dict[str, Any] = {"policy": "ls+srsf:2"}
    return simulate(CROWD, TWO_BY_TWO, timeline=Timeline(), **options)


@pytest.mark.parametrize("name", ["plot_jct", "plot_use", "plot_contention"])
def test_every_figure_can_be_saved_and_repeats(result: Result, name: str) -> None:
    contents = []
    for _ in range(2):
        stream = BytesIO()
        write_figure(getattr(result, name)(), stream, "png")
        contents.append(stream.getvalue())
    assert contents[0].startswith(b"\x89PNG")
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", ["plot_jct", "plot_use", "plot_contention"])
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
