"""Tables of text as HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `name` is also its file name, and the first `texts` columns hold words."""

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1

    def to_html(self) -> str:
        """Return a `<table>`; words are also in an attribute, so that a page can colour them."""
        head = "".join(
            f'<th scope="col"{self._side(column)}>{escape(title)}</th>'
            for column, title in enumerate(self.header)
        )
        body = "\n".join(
            "<tr>" + "".join(self._cell(column, text) for column, text in enumerate(row)) + "</tr>"
            for row in self.rows
        )
        return (
            f"<table>\n<caption>{escape(self.caption)}</caption>\n"
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        )

    def to_markdown(self) -> str:
        """Return a pipe table under its caption."""
        sides = ["---" if column < self.texts else "--:" for column in range(len(self.header))]
        lines = [self.header, sides, *self.rows]
        return f"**{self.caption}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def _cell(self, column: int, text: str) -> str:
        kind = f' data-text="{escape(text)}"' if column < self.texts else ""
        return f"<td{kind}{self._side(column)}>{escape(text)}</td>"

    def _side(self, column: int) -> str:
        return "" if column < self.texts else ' class="figure"'
