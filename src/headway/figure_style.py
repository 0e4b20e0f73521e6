"""How figures look: colours that everyone can tell apart, sizes for print, the same bits each time.

Colours are those of Okabe and Ito's palette, chosen to stay distinct for all common kinds of colour
blindness; lines also differ in their dashes, so that a figure survives a black-and-white printer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Draw and save what is inside in the house style; needed around both."""
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):
        yield


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure; the ending (`.svg`, `.pdf`, `.png`) chooses the format."""
    kind = os.path.splitext(path)[1].removeprefix(".").lower()
    with open_output(path) as stream:
        write_figure(figure, stream, kind)


def check_picture(path: str | os.PathLike[str]) -> None:
    """Refuse a path that a figure cannot be written to."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise InputError(f"must end in {', '.join(ENDINGS)}.", source=os.fspath(path))
    check_output(path)


def write_figure(figure: Figure, stream: BinaryIO, kind: str) -> None:
    """Write a figure as svg, pdf or png.

    Nothing of the day or the machine goes into the file, so that the same data gives the same bits.
    """
    nothing = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with house_style():
        figure.savefig(stream, format=kind, dpi=160, metadata=nothing)
