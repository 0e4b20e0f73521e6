"""The files of the page: as they are served, and bundled into one HTML file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from headway.files import open_output
from headway.web.run_data import RunData

PAGE = "index.html"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
MAX_EMBEDDED_BYTES = 24 << 20
"""Of a run whose parts are larger, an exported page has only the overview."""

_START = "main.js"
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_STYLE = '<link rel="stylesheet" href="static/page.css">'
_SCRIPT = '<script type="module" src="static/main.js"></script>'


@cache
def static_names() -> frozenset[str]:
    """Return the names of all files of the page."""
    return frozenset(entry.name for entry in files("headway.web").joinpath("static").iterdir())


@cache
def static_file(name: str) -> bytes:
    """Return the content of one of these files."""
    return files("headway.web").joinpath("static", name).read_bytes()


def write_page(runs: Sequence[RunData], path: str) -> None:
    """Write a page that shows these runs, and needs neither a server nor the network."""
    exact, blocks = [], []
    for number, run in enumerate(runs):
        blocks.append((f"run-{number}", run.overview))
        parts = run.all_parts(MAX_EMBEDDED_BYTES // len(runs))
        exact.append(parts is not None)
        blocks += [(f"run-{number}-part-{part}", block) for part, block in enumerate(parts or ())]
    listed = ", ".join(
        f'{{"number": {number}, "exact": {str(whole).lower()}}}'
        for number, whole in enumerate(exact)
    )
    data = [f'<script type="application/json" id="runs">[{listed}]</script>']
    data += [
        f'<script type="text/plain" id="{name}">{base64.b64encode(block).decode()}</script>'
        for name, block in blocks
    ]
    style, script = static_file("page.css").decode(), bundle()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    title = escape(", ".join(run.name for run in runs))
    page = static_file(PAGE).decode()
    for before, after in (
        ("<title>Headway</title>", f"<title>{title} – Headway</title>"),
        (
            _STYLE,
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f"<style>{style}</style>",
        ),
        (_SCRIPT, ""),
        ("</body>", "\n".join([*data, f'<script type="module">{script}</script>', "</body>"])),
    ):
        head, found, tail = page.partition(before)
        assert found, before
        page = head + after + tail
    with open_output(path) as stream:
        stream.write(page.encode())


@cache
def bundle() -> str:
    """Return the modules of the page as one script; each keeps its own scope."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        text = static_file(name).decode()
        for _, imported in _IMPORT.findall(text):
            add(imported)
        exported = ", ".join(_EXPORT.findall(text))
        text = _IMPORT.sub(lambda found: f"const {found[1]} = {_variable(found[2])};", text)
        text = _EXPORT.sub("", text)
        done[name] = (
            f"const {_variable(name)} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();"
        )

    add(_START)
    return "\n".join(done.values())


def _variable(name: str) -> str:
    return f"module_{name.removesuffix('.js')}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
