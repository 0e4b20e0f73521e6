"""Consoles, tables and progress bars; results go to standard output, the rest to standard error."""

from __future__ import annotations

import codecs
import io
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.text import Text

from headway.durations import duration_text, left_text, time_left_text
from headway.files import STANDARD
from headway.interrupts import before_forced_exit, is_leaving
from headway.text_table import UNLIMITED, TextTable, escapes_allowed, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.progress import Progress as Bar

    from headway.engine.progress import Progress

_USUAL_WIDTH = 80

_log = logging.getLogger("headway")

_LONG_S, _NEARLY_DONE = 20.0, 0.9

PATIENCE_S = 1.0
"""A progress bar is shown for work that lasts longer than this."""


def results(to_stderr: bool = False) -> Console:
    """Return the console for results; on standard error if data goes to standard output.

    Nothing wraps unless it goes to a terminal.
    """
    console = _console(to_stderr)
    if not console.is_terminal:
        console.width = UNLIMITED
    return console


def messages() -> Console:
    """Return the console for progress and notices."""
    return _console(to_stderr=True)


def _console(to_stderr: bool) -> Console:
    console = Console(
        stderr=to_stderr,
        highlight=False,
        markup=False,
        emoji=False,
        color_system="auto" if escapes_allowed() else None,
    )
    if console.width < 1:  # COLUMNS=0
        console.width = _USUAL_WIDTH
    return console


def print_lines(console: Console, *lines: str, style: str = "", soft_wrap: bool = False) -> None:
    """Print each text as a line; characters that a terminal would obey are shown as escapes."""
    for line in lines:
        text = Text(printable(line), style)
        for part in [text] if soft_wrap else text.wrap(console, console.width):
            part.rstrip()
            console.print(part, soft_wrap=True)


_SPELLED = {"±": "+-", "×": "x", "…": "...", "█": "#", "–": "-", "—": "-", "’": "'", "→": "->"}


def tolerate_encodings() -> None:
    """Let standard output and error replace characters that their encoding lacks."""
    codecs.register_error("headway", _spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="headway")


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    spelled = [
        _SPELLED.get(letter) or letter.encode("ascii", "backslashreplace").decode()
        for letter in lacking
    ]
    return "".join(spelled), error.end


def report_written(*paths: str | os.PathLike[str] | None) -> None:
    """Name every file that was written, one a line, on standard error."""
    for path in paths:
        if path is not None and os.fspath(path) != STANDARD:
            print_lines(messages(), f"Written: {os.fspath(path)}", soft_wrap=True)


def working(text: str) -> AbstractContextManager[object]:
    """Return a context that shows what is being done, on a terminal, until it is done."""
    if not escapes_allowed():
        return nullcontext()
    return messages().status(Text(printable(f"{text} …")))


def print_table(console: Console, table: TextTable) -> None:
    """Print a table, wrapped to the width of the terminal."""
    for line in table_lines(table, console.width):
        console.print(line, soft_wrap=True)


def table_lines(table: TextTable, width: int) -> list[Text]:
    """Return the lines of a table, with the header in bold."""
    return [Text(line.text, "bold" if line.is_header else "") for line in table.lines(width)]


class _Bar:
    """A context manager that removes its bar on exit, if one was shown."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Bar | None = None
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._cleanup.close()


class _PatientBar(_Bar):
    """A bar that appears on a terminal once its work has taken a while.

    The time left follows from the pace in the second half of the time since the first report:
    compiling may have come before it, and work may become slower. It is estimated anew when the
    share falls, because the next file is read.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._first: tuple[float, float] | None = None  # the time of the first report, how far
        self._recent: deque[tuple[float, float]] = deque()  # the same of later ones
        self._last = 0.0

    def _show(self, fraction: float, description: str) -> None:
        now_s = time.monotonic()
        if self._first is None or fraction < self._last:
            self._first = now_s, fraction
            self._recent = deque([self._first])
        self._last = fraction
        elapsed_s = now_s - self._first[0]
        if now_s - self._recent[-1][0] >= PATIENCE_S:
            self._recent.append((now_s, fraction))
        while len(self._recent) > 1 and self._recent[1][0] <= now_s - elapsed_s / 2:
            self._recent.popleft()
        if elapsed_s < PATIENCE_S or not _can_animate(self._console):
            return
        if self._bar is None:
            self._bar = _bar(self._console, 1.0)
            # Show the cursor again.
            self._cleanup.enter_context(before_forced_exit(self._bar.stop))
        self._bar.update(
            self._bar.task_ids[0],
            completed=fraction,
            description=_joined(self._left(now_s, fraction), description),
        )
        self._bar.start()

    def _left(self, now_s: float, fraction: float) -> str:
        """Return the time left, unless it would be a guess."""
        first_s, first = self._first or (now_s, fraction)
        since_s, since = self._recent[0]
        if fraction <= since or not time_left_text(
            now_s - first_s, (fraction - first) / (1 - first)
        ):
            return ""
        return left_text((now_s - since_s) * (1 - fraction) / (fraction - since))


class AccuracyHint:
    """Says once, when a run has taken long, that it could be estimated."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._unsaid = threading.Lock()

    def __call__(self, progress: Progress) -> None:
        """Say so if it is time, and much is left."""
        if (
            time.monotonic() - self._started >= _LONG_S
            and progress.fraction < _NEARLY_DONE
            and self._unsaid.acquire(blocking=False)
        ):
            _log.info(
                "This takes long. With --accuracy 1% jobs that contend are estimated from samples, "
                "with 95% intervals: it may be much faster."
            )


class ProgressBar(_PatientBar):
    """The progress of one run: percent, simulated time and tasks; and a hint, if there is one."""

    def __init__(self, console: Console, hint: AccuracyHint | None = None) -> None:
        super().__init__(console)
        self._hint = hint

    def __call__(self, progress: Progress) -> None:
        """Show the progress of the run."""
        if self._hint is not None:
            self._hint(progress)
        skipped = progress.skipped_tasks / max(progress.tasks, 1)
        tasks = f"{skipped:.0%} of {progress.tasks / 1e6:,.1f} M tasks skipped"
        self._show(progress.fraction, f"at {duration_text(progress.now_s)}, {tasks}")


class PlansBar(_PatientBar):
    """The progress of simulating the plans of a model."""

    def __call__(self, done: int, total: int) -> None:
        """Show how many plans have been simulated."""
        self._show(done / total, f"{done} of {total} plans simulated")


class ReadingBar(_PatientBar):
    """The progress of reading a file."""

    def __call__(self, fraction: float, done_bytes: int) -> None:
        """Show how much has been read."""
        self._show(fraction, f"read {done_bytes / 2**20:,.0f} MB")


def reading_s(path: str) -> float:
    """Return about how many seconds it takes to read a timeline; 0.5 if its size is unknown."""
    return 0.5 + (3e-8 * os.path.getsize(path) if os.path.isfile(path) else 0.0)


class StagesLine(_Bar):
    """The progress of work in stages, whose durations in seconds are roughly known.

    The time that the first stages took tells how fast this machine is, so that the rest is known
    better.
    """

    def __init__(self, console: Console, stages: Mapping[str, float]) -> None:
        super().__init__(console)
        self._stages = stages
        self._total_s = sum(stages.values())
        self._stage = next(iter(stages))
        self._done_s = 0.0
        self._pace = 1.0
        self._started = self._stage_started = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if _can_animate(self._console):
            from rich.live import Live

            self._live = Live(get_renderable=self._text, console=self._console, transient=True)
            self._cleanup.enter_context(before_forced_exit(self._live.stop))
            self._cleanup.enter_context(self._live).refresh()
        return self

    def next_stage(self) -> None:
        """Begin the next stage."""
        names = list(self._stages)
        self._done_s += self._stages[self._stage]
        self._stage = names[names.index(self._stage) + 1]
        self._stage_started = time.monotonic()
        self._pace = (self._stage_started - self._started) / self._done_s
        if self._live is not None:
            self._live.refresh()

    def _text(self) -> Text:
        if is_leaving():
            return Text()  # As `_bar` does.
        stage_s = (time.monotonic() - self._stage_started) / self._pace
        done_s = self._done_s + min(stage_s, 0.95 * self._stages[self._stage])
        left = left_text(self._pace * (self._total_s - done_s))
        share = done_s / self._total_s
        return Text(f"{share:4.0%} {left}, {printable(self._stage)}", no_wrap=True)


class RunsBar(_Bar):
    """The number of runs done, and the time left; on an interrupt, where finished runs are kept."""

    def __init__(self, console: Console, kept_in: str | None = None) -> None:
        super().__init__(console)
        self._kept_in = kept_in
        self._done = self._total = 0
        self.new = 0
        """Runs done since this start."""
        self._started = time.monotonic()

    def start(self, done: int, total: int) -> None:
        """Show the bar; `done` runs are kept from an earlier start."""
        self._done, self._total = done, total
        self._started = time.monotonic()
        if done:
            self._print(f"{done} of {total} runs are already done, in {self._kept_in}.")
        if done < total:
            self._bar = _bar(self._console, total - done)
            self.step(0)

    def step(self, runs: int = 1) -> None:
        """Count runs as done."""
        self._done += runs
        self.new += runs
        if self._bar is not None:
            text = f"{self._done} of {self._total} runs"
            if self._done == self._total:
                text = f"{self._total} runs done, writing the results"
            elif self.new:
                elapsed_s = max(time.monotonic() - self._started, 1e-9)
                text += f", {self.new / elapsed_s:,.1f} runs/s"
                share = self.new / (self.new + self._total - self._done)
                text = _joined(time_left_text(elapsed_s, share), text)
            self._bar.update(self._bar.task_ids[0], advance=runs, description=text)
            self._bar.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        interrupted = kind is not None and not issubclass(kind, Exception)
        if interrupted and self._done and self._kept_in is not None:
            self._print(
                f"Finished runs are kept in {self._kept_in}; repeat the command to continue."
            )

    def _print(self, text: str) -> None:
        print_lines(self._console, text, soft_wrap=True)


def _can_animate(console: Console) -> bool:
    return console.is_terminal and escapes_allowed()


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _bar(console: Console, total: float) -> Bar:
    """Return a bar with percent and a description; it vanishes when stopped."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    class VanishingBar(Bar):
        """A bar that is not drawn again below the notice of an interrupt."""

        def get_renderables(self) -> Iterable[RenderableType]:
            return [Text()] if is_leaving() else super().get_renderables()

    bar = VanishingBar(
        TaskProgressColumn(),
        *([BarColumn(12)] if console.width >= _USUAL_WIDTH else []),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not _can_animate(console),
    )
    bar.add_task("", total=total)
    return bar
