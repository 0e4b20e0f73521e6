"""Long commands show how far they are and, from the start, how long they will take."""

from __future__ import annotations

import re
import signal
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress as Bar

from cli.commands import headway
from cli.terminals import on_terminal
from headway.cli.console import (
    PATIENCE_S,
    AccuracyHint,
    PlansBar,
    ReadingBar,
    RunsBar,
    StagesLine,
    messages,
)
from headway.durations import left_text, time_left_text
from headway.engine.progress import Progress


class Clock:
    """A clock that tests move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


def test_the_time_left_is_in_whole_seconds_and_in_words() -> None:
    assert left_text(0) == "0 s left"
    assert left_text(0.2) == "1 s left"
    assert left_text(59.5) == "1 min left"
    assert left_text(3 * 86_400 + 7_200) == "3 d 2 h left"
    assert time_left_text(10, 0.25) == "30 s left"


def test_a_time_left_that_would_be_a_guess_is_not_shown() -> None:
    assert time_left_text(10, 0.0) == time_left_text(10, 0.01) == ""


def test_the_time_left_of_stages_is_known_from_the_start_and_follows_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    line = StagesLine(messages(), {"reading": 2.0, "counting": 2.0, "drawing": 4.0})

    def shown() -> str:
        return str(line._text())

    assert shown() == "  0% 8 s left, reading"
    clock.now_s += 1
    assert shown() == " 12% 7 s left, reading"
    # Reading takes twice as long as expected, so all the rest will.
    clock.now_s += 3
    assert shown() == " 24% 7 s left, reading"
    line.next_stage()
    assert shown() == " 25% 12 s left, counting"
    clock.now_s += 2
    assert shown() == " 38% 10 s left, counting"
    clock.now_s += 2
    line.next_stage()
    assert shown() == " 50% 8 s left, drawing"


def test_runs_kept_from_an_earlier_start_do_not_shorten_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    with RunsBar(messages(), "out") as bar:
        bar.start(80, 100)
        clock.now_s += 10
        bar.step(5)
        assert bar._bar is not None
        (task,) = bar._bar.tasks
        assert task.description == "30 s left, 85 of 100 runs, 0.5 runs/s"
        assert task.percentage == 25
        bar.step(15)
        assert task.description == "100 runs done, writing the results"


def test_no_bar_is_drawn_again_below_the_notice_of_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drawn(bar: Bar) -> str:
        console = Console(file=StringIO(), width=80)
        with console.capture() as capture:
            console.print(bar.get_renderable())
        return capture.get().strip()

    line = StagesLine(messages(), {"reading": 2.0})
    with RunsBar(messages(), "out") as bar:
        bar.start(0, 2)
        assert bar._bar is not None
        assert "0 of 2 runs" in drawn(bar._bar)
        assert "reading" in str(line._text())
        monkeypatch.setattr("headway.interrupts._received", [signal.SIGINT])
        assert (drawn(bar._bar), str(line._text())) == ("", "")


def test_what_came_before_the_first_report_of_a_run_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as compiling."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr("headway.cli.console._can_animate", lambda _: True)
    with PlansBar(messages()) as bar:
        clock.now_s += 100
        bar(20, 100)
        shown = [bar._bar]
        clock.now_s += 9.5
        bar(60, 100)
        shown.append(bar._bar)
        assert shown[0] is None
        assert shown[1] is not None
        (task,) = shown[1].tasks
        assert task.description == "10 s left, 60 of 100 plans simulated"


def test_the_time_left_begins_anew_with_the_next_file(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr("headway.cli.console._can_animate", lambda _: True)
    with ReadingBar(messages()) as bar:
        bar(0.25, 2**20)
        clock.now_s += PATIENCE_S / 2
        bar(1.0, 2**20)
        clock.now_s += PATIENCE_S
        bar(0.5, 2**20)
        shown = [bar._bar]
        clock.now_s += 10
        bar(0.75, 2**21)
        shown.append(bar._bar)
        assert shown[0] is None
        assert shown[1] is not None
        (task,) = shown[1].tasks
        assert task.description == "10 s left, read 2 MB"


def test_the_time_left_follows_the_pace_of_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run that becomes slower has more time left than its beginning promised."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr("headway.cli.console._can_animate", lambda _: True)
    with ReadingBar(messages()) as bar:
        done = 0.0
        for second in range(60):
            bar(done, 0)
            done += 0.02 if second < 20 else 0.005
            clock.now_s += 1
        assert bar._bar is not None
        (task,) = bar._bar.tasks
        assert done == pytest.approx(0.6)
        assert task.description.startswith("1 min 21 s left"), "0.405 at 0.005 a second"


def progress(fraction: float) -> Progress:
    return Progress(fraction, 0.0, 0.0, 1, 0, 0, 1)


def test_a_run_that_takes_long_says_once_that_it_could_be_estimated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headway")
    clock = Clock(monkeypatch)
    hint, late = AccuracyHint(), AccuracyHint()
    clock.now_s += 19
    hint(progress(0.1))
    assert caplog.text == ""
    clock.now_s += 2
    late(progress(0.95))
    assert caplog.text == ""
    for _ in range(3):
        hint(progress(0.2))
    assert caplog.text.count("With --accuracy 1% jobs that contend are estimated") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [("", True), ("-q", False), ("--accuracy 1%", False), ("--timeline t.parquet", False)],
)
def test_only_a_run_that_could_be_estimated_says_so(
    options: str,
    said: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headway.cli.console._LONG_S", 0.0)
    monkeypatch.setattr("headway.cli.console._NEARLY_DONE", 2.0)
    headway(capsys, "workload", "generate", "--jobs", "5", "-o", "w.csv")
    done = headway(capsys, "simulate", "w.csv", *options.split())
    assert "This takes long" not in done.err, "few tasks do not"
    monkeypatch.setattr("headway.engine.run._FEW_TASKS", 0)
    done = headway(capsys, "simulate", "w.csv", *options.split())
    assert done.status == 0
    assert done.err.count("This takes long. With --accuracy 1% ") == said
    if not options:
        done = headway(capsys, "compare", "w.csv")
        assert done.err.count("This takes long. With --accuracy 1% ") == 1


@pytest.mark.parametrize("width", [80, 60])
def test_a_report_shows_its_stages(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    on_terminal(monkeypatch, 80, "workload", "generate", "--jobs", "5", "-o", "w.csv")
    on_terminal(monkeypatch, 80, "simulate", "w.csv", "-q", "--timeline", "run.parquet")
    lines = on_terminal(monkeypatch, width, "report", "run.parquet")
    assert max(map(len, lines)) <= width
    assert re.fullmatch(r" +\d+% [1-4] s left, reading run.parquet", lines[0])
    assert any(re.fullmatch(r" +\d+% \d+ s left, drawing run.svg", line) for line in lines)
    assert lines[-2:] == ["Written: run.svg", ""]
