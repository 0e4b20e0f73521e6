"""The house style of figures: colours, sizes for print, and reproducible bytes.

The colours are Okabe and Ito's palette, distinct for all common kinds of colour blindness; lines
also differ in their dashes, so that figures survive a black-and-white printer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from headway.domain.errors import InputError
from headway.files import check_output, open_output
from headway.text_table import wrap

if TYPE_CHECKING:
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (7, 1)), (0, (2, 1)))
_LOG_TICKS = (
    *((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3_600, "1 h"), (18_000, "5 h")),
    *((86_400 * 10**power, f"{10**power:,} d") for power in range(6)),
)
ENDINGS = (".svg", ".pdf", ".png")
INK = "#222222"
FAINT = "#D8D8D8"

_SETTINGS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "headway",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


_LABEL_LINES = 6

_FOLDER = re.compile(r"[^+,\s]*/(?=[^/+,]*\.py:)")
"""The folder of a policy's file, where a label names one."""


def label_lines(names: Sequence[str], width: int = 38) -> list[str]:
    """Return labels in lines that fit beside a figure, and still differ from each other.

    Where names are too long, the folders of files are left out, then the middle.
    """
    texts = ["".join(one if one.isprintable() else "·" for one in name) for name in names]
    if max(map(len, texts)) > width:
        texts = _if_different([_FOLDER.sub("", text) for text in texts], texts)
    whole = [wrap(text, width) for text in texts]
    cut = [
        [*lines[:2], "…", *lines[3 - _LABEL_LINES :]] if len(lines) > _LABEL_LINES else lines
        for lines in whole
    ]
    return _if_different(["\n".join(lines) for lines in cut], ["\n".join(one) for one in whole])


def _if_different(shorter: list[str], longer: list[str]) -> list[str]:
    return shorter if len({*shorter}) == len({*longer}) else longer


def label_width(labels: Iterable[str]) -> int:
    """Return the length of the longest line of some labels."""
    return max(len(line) for label in labels for line in label.split("\n"))


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the house style; needed both to draw a figure and to save it."""
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):
        yield


def time_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit for times up to this one, and its seconds."""
    for name, size_s, from_s in (("days", 86_400, 4 * 86_400), ("h", 3_600, 10 * 3_600)):
        if longest_s >= from_s:
            return name, size_s
    return "s", 1


def set_time_axis(axis: XAxis | YAxis, label: str, length_s: float) -> None:
    """Label an axis whose values are seconds in seconds, hours or days."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter

    class WholeUnits(MaxNLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            return [size_s * tick for tick in super().tick_values(vmin / size_s, vmax / size_s)]

    unit, size_s = time_unit(length_s)
    axis.set_label_text(f"{label} [{unit}]")
    if size_s > 1 and axis.get_scale() == "log":
        axis.set_label_text(label)
        low, high = sorted(axis.get_view_interval())
        axis.set_ticks(
            [size for size, _ in _LOG_TICKS if low <= size <= high],
            [text for size, text in _LOG_TICKS if low <= size <= high],
        )
        axis.set_ticks([], minor=True)
    elif size_s > 1:
        axis.set_major_locator(WholeUnits("auto", steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / size_s:,.10g}"))
    elif axis.get_scale() == "linear":
        plain = ScalarFormatter(useOffset=False)
        plain.set_scientific(False)
        axis.set_major_formatter(plain)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file; its suffix (`.svg`, `.pdf`, `.png`) chooses the format."""
    kind = os.path.splitext(path)[1].removeprefix(".").lower()
    # Not into the file: on a full disk the error would be that of a compressor.
    content = BytesIO()
    write_figure(figure, content, kind)
    with open_output(path) as stream:
        stream.write(content.getvalue())


def check_picture(path: str | os.PathLike[str]) -> None:
    """Raise InputError for a path that no figure can be written to."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise InputError(f"must end in {', '.join(ENDINGS)}.", source=os.fspath(path))
    check_output(path)


def write_figure(figure: Figure, stream: BinaryIO, kind: str) -> None:
    """Write a figure as svg, pdf or png.

    The file contains no date and nothing of the machine, so the same data gives the same bytes.
    """
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with house_style():
        figure.savefig(stream, format=kind, dpi=160, metadata=undated)
