"""The house style of figures: colours, sizes for print, and reproducible bytes.

The colours are Okabe and Ito's palette, distinct for all common kinds of colour blindness; lines
also differ in their dashes, so that figures survive a black-and-white printer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from headway.domain.errors import InputError
from headway.files import check_output, open_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (7, 1)), (0, (2, 1)))
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


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the house style; needed both to draw a figure and to save it."""
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):
        yield


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
