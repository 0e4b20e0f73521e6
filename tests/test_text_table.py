"""Tables of plain text at different widths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.text_table import TextTable, cells_wide, small_number, wrap

POLICY = "my_policies.py:packed+srsf:1"


def _lines(width: int) -> list[str]:
    table = TextTable(["policy"], ["average JCT (s)", "ratio"], ["remark"])
    table.add_row(POLICY, "14,999.123", "1.248  [0.884, 1.612]", "waits for four free slots")
    table.add_row("headway", "5,144.9", "0.343", "")
    return [line.text for line in table.lines(width)]


def test_a_table_that_fits_has_one_line_per_row() -> None:
    assert len(_lines(120)) == 3


def test_text_wraps_first() -> None:
    lines = _lines(90)
    assert lines[0].startswith("policy")
    assert f"{POLICY}       14,999.123  1.248  [0.884, 1.612]  waits for four free" in lines[1]
    assert lines[2].split() == ["slots"]


def test_then_headers_wrap() -> None:
    lines = _lines(81)
    assert lines[0].split() == ["policy", "average", "ratio", "remark"]
    assert lines[1].split() == ["JCT", "(s)"]
    assert any(line.startswith(POLICY) for line in lines)


def test_then_keys_wrap_at_their_punctuation() -> None:
    lines = _lines(75)
    assert [line.split()[0] for line in lines[2:4]] == ["my_policies.py:packed+", "srsf:1"]


def test_then_figures_continue_in_bands_that_repeat_the_keys() -> None:
    lines = _lines(45)
    assert lines.count("") == 2
    assert sum(line.startswith("headway") for line in lines) == 3
    assert sum(line.endswith("1.248  [0.884, 1.612]") for line in lines) == 1


CELLS = st.text(st.characters(codec="utf-8"), max_size=30)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), max_size=4),
    header=CELLS,
    width=st.integers(8, 90),
)
def test_no_line_is_too_wide_and_no_character_is_lost(
    rows: list[tuple[str, str, str, str]], header: str, width: int
) -> None:
    table = TextTable([header], ["one", "two"], ["text"])
    for row in rows:
        table.add_row(*row)
    lines = [line.text for line in table.lines(width)]
    assert all(cells_wide(line) <= width for line in lines)
    whole = "".join(line.text for line in table.lines())
    assert {*whole} - {" "} <= {*"".join(lines)}


@given(text=CELLS, width=st.integers(2, 40))
def test_wrapping_keeps_every_letter_in_order(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cells_wide(line) <= width for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00"), (1234.5, "1,234.50"), (0.1, "0.10"), (0.0164, "0.016"), (2.4e-5, "2.4e-05")],
)
def test_a_small_number_keeps_two_digits(value: float, text: str) -> None:
    assert small_number(value) == text
