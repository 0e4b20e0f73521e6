"""Reports as one self-contained HTML file."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from headway.domain.errors import InputError
from headway.figure_style import ENDINGS, write_figure
from headway.files import check_output
from headway.reports.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_PAGES = (".html", ".htm")


def is_page(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is an HTML page by its name."""
    return Path(path).suffix.lower() in _PAGES


def check_page_or_picture(path: str | os.PathLike[str]) -> None:
    """Refuse a path that neither a page nor a figure can be written to."""
    if not is_page(path) and Path(path).suffix.lower() not in ENDINGS:
        raise InputError(f"must end in .html, {', '.join(ENDINGS)}.", source=os.fspath(path))
    check_output(path)


@dataclass(frozen=True)
class Picture:
    """A figure with a caption; `name` is also its file name."""

    name: str
    figure: Figure
    caption: str

    @cached_property
    def svg(self) -> bytes:
        """The picture as SVG."""
        return self._drawn("svg")

    @cached_property
    def pdf(self) -> bytes:
        """The picture as PDF."""
        return self._drawn("pdf")

    def _drawn(self, kind: str) -> bytes:
        stream = io.BytesIO()
        write_figure(self.figure, stream, kind)
        return stream.getvalue()

    def to_html(self) -> str:
        """Return a `<figure>` with the picture inside as SVG."""
        svg = self.svg.decode()
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, count=1, flags=re.DOTALL)
        # Ids must be unique among the pictures of a page.
        svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{self.name}-", svg)
        label = escape(self.caption)
        svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
        return (
            f'<figure id="figure-{self.name}">\n{svg}\n<figcaption>{label}</figcaption>\n</figure>'
        )


@dataclass(frozen=True, slots=True)
class Section:
    """A headline, followed by paragraphs, tables and pictures."""

    anchor: str
    title: str
    content: Sequence[str | Table | Picture] = field(default_factory=list)

    def to_html(self) -> str:
        """Return the section; text is HTML and goes into a `<p>` unless it starts with a tag."""
        parts = [f'<h2 id="{self.anchor}">{escape(self.title)}</h2>']
        for item in self.content:
            if isinstance(item, Table):
                parts.append(f'<div class="scroll">{item.to_html()}</div>')
            elif isinstance(item, Picture):
                parts.append(item.to_html())
            else:
                parts.append(item if item.startswith("<") else f"<p>{item}</p>")
        return "\n".join(parts)


def html_page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Return the whole page, with links to its sections at the top."""
    links = "".join(f'<a href="#{part.anchor}">{escape(part.title)}</a>\n' for part in sections)
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            f"<p>{summary}</p>",
            f"<nav>{links}</nav>",
            *(part.to_html() for part in sections),
        ]
    )
    skeleton = Template(files("headway.reports").joinpath("page.html").read_text(encoding="utf-8"))
    return skeleton.substitute(title=escape(title), body=body)
