"""How an experiment's folder is written: raw results, tables, figures and the report."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

from headway.experiments.reproduction.evaluation import Evaluation
from headway.files import check_output, make_folder, open_output
from headway.reports.page import Picture, Section, html_page
from headway.reports.tables import Table
from headway.results.store import code_version

REPORT = "report.html"
RUNS = "runs"
"""The folder of finished runs, inside the experiment's folder."""

_PACKAGES = ("headway", "numba", "numpy", "polars", "matplotlib")


def prepare(folder: Path) -> None:
    """Make the folders, and refuse one that the report cannot be written to."""
    for name in ("", RUNS, "figures", "tables"):
        make_folder(folder / name)
    check_output(folder / REPORT)


def publish(
    folder: Path, evaluation: Evaluation, title: str, summary: str, sections: Sequence[Section]
) -> None:
    """Write the raw results, and the tables, figures and page of these sections.

    An older report is removed first and the new one written last, so that a report never lies
    beside files of other runs.
    """
    raw = evaluation.raw
    files: dict[str, bytes] = {}
    for name, frame in (("runs", raw.runs), ("jobs", raw.jobs), ("gpus", raw.gpus)):
        stream = BytesIO()
        frame.write_parquet(stream)
        files[f"{name}.parquet"] = stream.getvalue()
    for item in (item for section in sections for item in section.content):
        if isinstance(item, Picture):
            files[f"figures/{item.name}.svg"] = item.svg
            files[f"figures/{item.name}.pdf"] = item.pdf
        elif isinstance(item, Table):
            files[f"tables/{item.name}.md"] = item.to_markdown().encode()
    files[REPORT] = html_page(title, summary, sections).encode()
    (folder / REPORT).unlink(missing_ok=True)
    for path, content in files.items():
        with open_output(folder / path) as target:
            target.write(content)


def versions() -> Table:
    """Return the versions of what made the report."""
    found = [(name, version(name)) for name in _PACKAGES]
    rows = [("Python", platform.python_version()), *found, ("sources", code_version())]
    return Table("versions", "Versions", ("", ""), rows, texts=2)
