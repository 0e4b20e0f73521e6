"""What both ways to write a timeline have in common: Headway's own file, and Perfetto's."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from headway.domain.errors import InputError
from headway.engine.run import simulate
from headway.reports.perfetto import perfetto_timeline
from headway.results.timeline.file import record_timeline
from headway.results.timeline.window import Window
from results.recording import CROWD, TWO_BY_TWO

pytestmark = pytest.mark.parametrize("writer", [record_timeline, perfetto_timeline])


def test_a_run_that_fails_leaves_the_file_as_it_was(tmp_path: Path, writer: Any) -> None:
    path = tmp_path / "t"
    path.write_text("old")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), writer(path, CROWD, TWO_BY_TWO) as sink:
        simulate(CROWD, TWO_BY_TWO, timeline=sink, progress=interrupt)
    assert (os.listdir(tmp_path), path.read_text()) == (["t"], "old")


def test_a_timeline_without_its_result_is_refused(tmp_path: Path, writer: Any) -> None:
    with (
        pytest.raises(InputError, match="not finished"),
        writer(tmp_path / "t", CROWD, TWO_BY_TWO) as sink,
    ):
        simulate(CROWD, TWO_BY_TWO, timeline=sink)
    assert os.listdir(tmp_path) == []


def test_a_window_after_the_run_is_refused(tmp_path: Path, writer: Any) -> None:
    with (
        pytest.raises(InputError, match=re.escape("the run ends at 0.")),
        writer(tmp_path / "t", CROWD, TWO_BY_TWO, Window(10**15)) as sink,
    ):
        sink.finish(simulate(CROWD, TWO_BY_TWO, timeline=sink))
    assert os.listdir(tmp_path) == []
