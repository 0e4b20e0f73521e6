"""Tables on terminals of different widths."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from headway.cli.console import figures_table, print_table

ROWS = [("my_policies.py:packed+srsf:1", "1.248  [0.884, 1.612]"), ("headway", "0.343")]


def _printed(width: int) -> list[str]:
    table = figures_table("average JCT against the first's", "ratio")
    for row in ROWS:
        table.add_row(*row)
    stream = StringIO()
    print_table(Console(file=stream, width=width, highlight=False), table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 45, 20])
def test_nothing_is_cut_off(width: int) -> None:
    lines = _printed(width)
    assert "…" not in "".join(lines)
    assert sum(line.endswith("1.248  [0.884, 1.612]") for line in lines) == 1


def test_the_text_wraps_before_the_lines_do() -> None:
    assert len(_printed(80)) == 3
    assert max(map(len, _printed(45))) <= 45
    assert max(map(len, _printed(20))) == max(map(len, _printed(80)))
