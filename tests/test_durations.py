"""Durations in words, and wrapped lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headway.cli.console import print_lines
from headway.durations import milliseconds_text


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0.000"),
        (1, "0.000001"),
        (499, "0.000499"),
        (500, "0.001"),
        (189_069_000, "189.069"),
        (1_234_567_890, "1,234.568"),
    ],
)
def test_no_time_is_shown_as_nothing(time_ns: int, text: str) -> None:
    assert milliseconds_text(time_ns) == text


def test_wrapped_lines_do_not_end_in_a_space() -> None:
    console = Console(file=io.StringIO(), width=30)
    print_lines(console, "Dropped: 12 operations that stand for nothing.", "", "x" * 40)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "Dropped: 12 operations that",
        "stand for nothing.",
        "",
        "x" * 30,
        "x" * 10,
    ]
