"""What commands print on: results on standard output, everything else on standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from headway.engine.run import Progress

PATIENCE_S = 1.0
"""How long a run may last before it shows a progress bar."""


def results(to_stderr: bool = False) -> Console:
    """Return the console for tables; on standard error when data goes to standard output."""
    return Console(stderr=to_stderr, highlight=False)


def messages() -> Console:
    """Return the console for progress and notices."""
    return Console(stderr=True, highlight=False)


def figures_table(*headers: str, title: str | None = None) -> Table:
    """Return a table whose first column is text and whose others are figures."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, header in enumerate(headers):
        table.add_column(header, justify="right" if place else "left", no_wrap=True)
    return table


class ProgressBar:
    """Percent, simulated time and tasks a second, shown once a run has lasted a second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._bar: Bar | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Show where the run is."""
        elapsed_s = time.monotonic() - self._started
        if elapsed_s < PATIENCE_S or not self._console.is_terminal:
            return
        rate = progress.tasks / elapsed_s / 1e6
        description = f"simulated {progress.now_s:,.0f} s, {rate:.1f} M tasks/s"
        if self._bar is None:
            self._bar = self._start(description)
        self._bar.update(
            self._bar.task_ids[0], completed=progress.fraction, description=description
        )

    def _start(self, description: str) -> Bar:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        bar = Bar(
            TaskProgressColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._console,
            transient=True,
        )
        bar.add_task(description, total=1.0)
        bar.start()
        return bar
