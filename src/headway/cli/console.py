"""What commands print on: results on standard output, everything else on standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from headway.engine.run import Progress

PATIENCE_S = 1.0
"""How long a run may last before it shows a progress bar."""


_WIDEST = 1000
"""Columns that an uncut table may take in a file or a pipe."""


def results(to_stderr: bool = False, uncut: bool = False) -> Console:
    """Return the console for tables; on standard error when data goes to standard output.

    With `uncut`, tables are as wide as they want to be wherever that is not a terminal.
    """
    console = Console(stderr=to_stderr, highlight=False)
    if uncut and not console.is_terminal:
        console.width = max(console.width, _WIDEST)
    return console


def messages() -> Console:
    """Return the console for progress and notices."""
    return Console(stderr=True, highlight=False)


def figures_table(*headers: str, title: str | None = None) -> Table:
    """Return a table whose first column is text and whose others are figures."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, header in enumerate(headers):
        table.add_column(header, justify="right" if place else "left", no_wrap=True)
    return table


def estimates_line(pairs: list[tuple[str, str]]) -> str:
    """Return a line that names the models whose times are estimated on each type, or nothing."""
    by_type: dict[str, list[str]] = {}
    for model, gpu in pairs:
        by_type.setdefault(gpu, []).append(model or "jobs without a model")
    text = "; ".join(f"{', '.join(models)} on {gpu}" for gpu, models in sorted(by_type.items()))
    return f"times estimated, not measured: {text}\n" if text else ""


class _Bar:
    """A bar that is shown at some time inside a `with`, and gone after it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Bar | None = None

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


class ProgressBar(_Bar):
    """Percent, simulated time and tasks a second, shown once a run has lasted a second."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._started = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Show where the run is."""
        elapsed_s = time.monotonic() - self._started
        if elapsed_s < PATIENCE_S or not self._console.is_terminal:
            return
        rate = progress.tasks / elapsed_s / 1e6
        description = f"simulated {progress.now_s:,.0f} s, {rate:.1f} M tasks/s"
        if self._bar is None:
            self._bar = _bar(self._console, description, 1.0)
        self._bar.update(
            self._bar.task_ids[0], completed=progress.fraction, description=description
        )


class ReadingBar(_Bar):
    """How much of a file has been read, shown once that has lasted a second."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._started = time.monotonic()

    def __call__(self, fraction: float, done_bytes: int) -> None:
        """Show where the reading is."""
        elapsed_s = time.monotonic() - self._started
        if elapsed_s < PATIENCE_S or not self._console.is_terminal:
            return
        description = f"read {done_bytes / 2**20:,.0f} MB"
        if self._bar is None:
            self._bar = _bar(self._console, description, 1.0)
        self._bar.update(self._bar.task_ids[0], completed=fraction, description=description)


class RunsBar(_Bar):
    """How many of many runs are done, and the time left; when interrupted, what is kept."""

    def __init__(self, console: Console, kept_in: str | None = None) -> None:
        super().__init__(console)
        self._kept_in = kept_in
        self._done = self._total = 0
        self.new = 0
        """Runs done since the start."""
        self._started = time.monotonic()

    def start(self, done: int, total: int) -> None:
        """Show the bar; `done` runs are there from an earlier start."""
        self._done, self._total = done, total
        self._started = time.monotonic()
        if done:
            self._tell(f"{done} of {total} runs are there already, in {self._kept_in}.")
        if done < total:
            self._bar = _bar(self._console, "", total - done)
            self.step(0)

    def step(self, runs: int = 1) -> None:
        """Count runs as done."""
        self._done += runs
        self.new += runs
        if self._bar is not None:
            text = f"{self._done} of {self._total} runs"
            if self.new:
                rate = self.new / max(time.monotonic() - self._started, 1e-9)
                text += f", {rate:,.1f} a second"
            self._bar.update(self._bar.task_ids[0], advance=runs, description=text)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        interrupted = kind is not None and not issubclass(kind, Exception)
        if interrupted and self._done and self._kept_in is not None:
            self._tell(f"Finished runs are kept in {self._kept_in}; the same command goes on.")

    def _tell(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def _bar(console: Console, description: str, total: float) -> Bar:
    """Start a bar with percent, a description and the time left; it goes when it stops."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TaskProgressColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    bar.add_task(description, total=total)
    bar.start()
    return bar
