"""The picture of a timeline."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from builders import MB, make_graph_job, make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.graphs import Layer, pipeline
from headway.reports import gantt, gantt_layout
from headway.reports.gantt import draw_report, write_report
from headway.results.timeline.file import read_timeline
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.sinks import Timeline
from headway.results.timeline.window import Window
from results.recording import CROWD, TWO_BY_TWO, record


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """Return a short run with contention, shared GPUs and a queue."""
    path = tmp_path_factory.mktemp("crowd") / "crowd.parquet"
    record(path, CROWD, TWO_BY_TWO, policy="ls+srsf:2")
    return read_timeline(path)


def texts(path: Path) -> list[str]:
    """Return the texts of an SVG; they are drawn as outlines and kept as comments."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def test_an_svg_is_well_formed_and_names_everything(crowd: RecordedRun, tmp_path: Path) -> None:
    write_report(crowd, tmp_path / "r.svg")
    assert ElementTree.parse(tmp_path / "r.svg").getroot().tag.endswith("svg")
    found = texts(tmp_path / "r.svg")
    for label in ("GPU 0", "GPU 3", "server 0", "server 1", "forward", "backward", "all-reduce"):
        assert label in found
    assert found.count("network") == 2
    assert found.count("simulated time [s]") == 2
    assert {"job 0", "job 1", "messages", "jobs", "Queued jobs"} <= set(found)
    assert {"messages waiting", "messages running", "most on one server"} <= set(found)
    assert any(text.startswith("crowd.parquet: 0.") for text in found)
    assert {"0", "1"} <= set(found)


@pytest.mark.parametrize(
    ("ending", "magic"),
    [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG"), ("PNG", b"\x89PNG")],
)
def test_the_ending_chooses_the_format_and_the_bytes_repeat(
    crowd: RecordedRun, tmp_path: Path, ending: str, magic: bytes
) -> None:
    write_report(crowd, tmp_path / f"a.{ending}")
    write_report(crowd, tmp_path / f"b.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes().startswith(magic)
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_by_default_it_shows_two_seconds_from_the_highest_contention(tmp_path: Path) -> None:
    busy_ns = 2_000_000_000
    slow: dict[str, Any] = {"gpus": 2, "gradient_bytes": 4 * 10**8}
    jobs = [make_job(iterations=12, **slow), *[make_job(arrival_ns=busy_ns, **slow)] * 3]
    record(tmp_path / "t", make_workload(*jobs), Cluster(2, 1), policy="lwf:1+srsf:9")
    run = read_timeline(tmp_path / "t")
    peak = run.steps.peak
    peak_ns = int(run.steps.time_ns[np.argmax(peak)])
    assert (peak.max(), peak_ns > busy_ns) == (4, True)
    low, high = draw_report(run).axes[0].get_xlim()
    assert low == pytest.approx(peak_ns / 1e9)
    assert high - low == pytest.approx(2)


def test_a_short_run_is_shown_whole(crowd: RecordedRun) -> None:
    axes = draw_report(crowd).axes
    whole = (crowd.window.from_ns / 1e9, crowd.window.to_ns / 1e9)
    assert [axis.get_xlim() for axis in axes] == [pytest.approx(whole)] * 3


def test_a_window_can_be_chosen(crowd: RecordedRun) -> None:
    axes = draw_report(crowd, Window(10_000_000, 20_000_000)).axes
    assert axes[0].get_xlim() == pytest.approx((0.01, 0.02))


def test_a_window_outside_the_timeline_is_refused(crowd: RecordedRun) -> None:
    message = (
        r"crowd\.parquet: covers 0\.0+ s to 0\.\d+ s, which does not overlap the window from 7 s"
    )
    with pytest.raises(InputError, match=message):
        draw_report(crowd, Window(7 * 10**9, 1_007 * 10**9))


def test_a_window_with_more_than_can_be_seen_is_refused_or_made_shorter(
    crowd: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gantt_layout, "MAX_BOXES", 30)
    with pytest.raises(
        InputError, match=r"tasks, and a picture shows at most 30; choose a shorter"
    ):
        draw_report(crowd, crowd.window)
    low, high = draw_report(crowd).axes[0].get_xlim()
    assert high - low < (crowd.window.to_ns - crowd.window.from_ns) / 1e9


def test_of_many_servers_it_shows_those_with_the_most_traffic(tmp_path: Path) -> None:
    jobs = [make_job(gpus=400, gradient_bytes=1), make_job(gpus=8, iterations=9)]
    record(tmp_path / "t", make_workload(*jobs), Cluster(50, 8), policy="ff+ada-srsf")
    write_report(read_timeline(tmp_path / "t"), tmp_path / "r.svg")
    found = texts(tmp_path / "r.svg")
    assert any("the 17 of 50 servers with the most traffic" in text for text in found)
    assert sum(text.startswith("GPU ") for text in found) == 17 * 8


@pytest.mark.parametrize("job_id", ["_a$x$", "$\\frac", "<&-->", "汉字 🚂", "a\tb", "x" * 300, "#"])
def test_any_id_can_be_drawn(job_id: str, tmp_path: Path) -> None:
    workload = Workload([Job(job_id, 0, 2, 2, 10**9, 10**9, 10**9, 1)])
    record(tmp_path / "t", workload, Cluster(2, 1))
    write_report(read_timeline(tmp_path / "t"), tmp_path / "r.svg")
    ElementTree.parse(tmp_path / "r.svg")


def test_a_run_without_messages_can_be_drawn(tmp_path: Path) -> None:
    record(tmp_path / "t", make_workload(make_job()), Cluster(1, 1))
    write_report(read_timeline(tmp_path / "t"), tmp_path / "r.svg")
    assert "GPU 0" in texts(tmp_path / "r.svg")


def test_a_pipeline_can_be_drawn(tmp_path: Path) -> None:
    layer = Layer(1_000_000, 2_000_000, activation_bytes=MB)
    workload = make_workload(make_graph_job(pipeline([[layer]] * 4, 1), iterations=2))
    run = RecordedRun.of(simulate(workload, Cluster(4, 1), timeline=Timeline()))
    write_report(run, tmp_path / "r.svg")
    found = texts(tmp_path / "r.svg")
    assert {"first task of a graph", "last task", "message", "job 0"} <= set(found)
    assert not {"forward", "backward", "all-reduce"} & set(found)
    boxes, rows = gantt_layout.lay_out(run, run.window, *gantt_layout.select(run, run.window))
    # Eight tasks, and six sends on two servers each, in each iteration.
    assert len(boxes) == 2 * (8 + 6 * 2)
    on_gpu = [box for box in boxes if box.top == rows[0].top]
    assert len({box.entry for box in on_gpu}) == len(on_gpu) // 2 == 2
    assert on_gpu[0].strength < on_gpu[1].strength


def test_several_messages_of_a_job_on_a_server_have_lanes_of_their_own(tmp_path: Path) -> None:
    graph = Graph(
        2,
        [Task("task", [0, 1], 1_000_000)],
        [Message(name, "all-reduce", [[0, 1]], MB, name, ["task"]) for name in "abc"],
    )
    workload = make_workload(make_graph_job(graph), make_job(gpus=2))
    result = simulate(workload, Cluster(2, 1), policy="ff+srsf:9", timeline=Timeline())
    run = RecordedRun.of(result)
    boxes, _ = gantt_layout.lay_out(run, run.window, *gantt_layout.select(run, run.window))
    tops = {box.entry: box.top for box in boxes if box.entry in {"a", "b", "c"}}
    assert len(set(tops.values())) == 3
    write_report(run, tmp_path / "r.svg")
    labels = {"forward, first task of a graph", "backward, last task", "message"}
    assert labels <= set(texts(tmp_path / "r.svg"))


def test_jobs_that_share_a_row_differ_in_colour() -> None:
    boxes = [
        gantt_layout.Box(0, 1, row, 1, 0, str(job)) for job in range(7) for row in (job, job + 1, 9)
    ]
    looks = gantt.job_looks(boxes).values()
    assert len({look.colour for look in looks}) == 7
    assert {look.pattern for look in looks} == {""}


def test_more_jobs_than_colours_differ_in_pattern() -> None:
    boxes = [gantt_layout.Box(0, 1, job // 14, 1, 0, str(job)) for job in range(28)]
    looks = gantt.job_looks(boxes)
    assert len(set(looks.values())) == 28
    for row in (0, 1):
        colours = Counter(looks[str(job)].colour for job in range(14 * row, 14 * row + 14))
        assert set(colours.values()) == {2}


def test_bins_hold_the_mean_and_the_most() -> None:
    time_ns = np.array([0, 10, 20, 900 * 10**9], np.int64)
    values = np.array([4, 0, 1, 0], np.int64)
    middle_s, mean, most = gantt.binned(time_ns, values)
    assert len(mean) == len(most) == len(middle_s) == 900
    assert middle_s[0] == pytest.approx(0.5)
    assert (most[0], most[1]) == (4, 1)
    assert mean[1:] == pytest.approx(1)
    assert mean[0] == pytest.approx(1, abs=1e-6)
