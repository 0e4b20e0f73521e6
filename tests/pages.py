"""Runs the blocks of a page of the documentation, in order, in one folder.

A `bash` or `python` block is run as it stands, and a `text` block right after it must be what it
prints, where a line `…` stands for any lines. Before a block a comment may say what to do with it
instead: `<!-- file: NAME -->` writes it to a file, `<!-- append: NAME -->` adds it to one,
`<!-- background: WHY -->` runs it beside the blocks that follow, which wait until it says `ready`,
and ends it after the last, and `<!-- skip: WHY -->` does nothing. Schedulers listen on any free
port and keep their state in the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from waiting import eventually

_BLOCK = re.compile(
    r"(?:<!-- (?P<order>file|append|background|skip): (?P<what>[^>]*?) -->\n+)?"
    r"^```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```$",
    re.M | re.S,
)
_VARYING = re.compile(
    r"^(?:Compiling .*|engine time .*|waiting for a scheduler .*|\d+ runs in .*)\n"
    r"|  [\d,]+ skipped exactly",
    re.M,
)
_TIMEOUT_S = 300


class _Block(NamedTuple):
    order: str | None
    what: str | None
    language: str
    text: str
    follows: bool
    """Whether only blank lines are between it and the block before."""


def check_page(page: Path, folder: Path, setup: str = "") -> int:
    """Run the blocks of a page in a folder; return how many outputs were compared."""
    if setup:
        _run("bash", setup, folder)
    with contextlib.ExitStack() as background:
        return _check_blocks(page, folder, background)


def _check_blocks(page: Path, folder: Path, background: contextlib.ExitStack) -> int:
    printed: str | None = None
    compared = 0
    for block in _blocks(page.read_text()):
        if block.order == "skip":
            printed = None
        elif block.order == "background":
            background.enter_context(_running(block.text, folder))
            printed = None
        elif block.order is not None and block.what is not None:
            with open(folder / block.what, "w" if block.order == "file" else "a") as file:
                file.write(block.text)
            printed = None
        elif block.language in ("bash", "python"):
            printed = _run(block.language, block.text, folder)
        elif block.language == "text" and printed is not None and block.follows:
            _compare(block.text, printed)
            compared += 1
            printed = None
    return compared


@contextlib.contextmanager
def _running(text: str, folder: Path) -> Iterator[None]:
    """Run a block until the end; it must then end well when asked to."""
    said = folder / ".background"
    with said.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-ec", f"exec {text}"],
            cwd=folder,
            env=_environment(folder),
            stdout=output,
            stderr=output,
        )
    try:
        eventually(lambda: b"ready" in said.read_bytes() or process.poll() is not None)
        assert process.poll() is None, f"{text}\n{said.read_text()}"
        yield
        process.terminate()
        assert process.wait(_TIMEOUT_S) == 0, f"{text}\n{said.read_text()}"
    finally:
        process.kill()
        process.wait()


def _blocks(text: str) -> Iterator[_Block]:
    end = 0
    for match in _BLOCK.finditer(text):
        follows = not text[end : match.start()].strip()
        yield _Block(match["order"], match["what"], match["language"], match["text"], follows)
        end = match.end()


def _environment(folder: Path) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    return os.environ | {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "HEADWAY_PORT": "0",
        "XDG_STATE_HOME": str(folder / "state"),
    }


def _run(language: str, text: str, folder: Path) -> str:
    words = ["bash", "-ec", text] if language == "bash" else [sys.executable, "-c", text]
    done = subprocess.run(
        words,
        check=False,
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}"
    return done.stdout


def _compare(expected: str, printed: str) -> None:
    lines = _VARYING.sub("", expected).splitlines()
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else re.escape(line.rstrip()) + r" *\n" for line in lines
    )
    actual = _VARYING.sub("", printed)
    assert re.fullmatch(pattern, actual), f"expected:\n{expected}\nprinted:\n{actual}"
