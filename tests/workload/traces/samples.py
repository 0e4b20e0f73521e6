"""The sample of each trace format, and ways to read it."""

from __future__ import annotations

from pathlib import Path

from builders import DATA
from headway.workload.traces.importing import Choice, TraceImport, import_trace
from headway.workload.traces.records import RowLog, TraceJob
from headway.workload.traces.registry import reader_of

TRACES = DATA / "traces"


def sample(form: str) -> list[str]:
    """Return the files of a format's sample."""
    return [str(path) for path in sorted((TRACES / form).iterdir())]


def read_sample(form: str) -> tuple[list[TraceJob], RowLog]:
    """Return what a format's reader makes of its sample."""
    log = RowLog()
    return list(reader_of(form)(sample(form), log)), log


def import_text(folder: Path, form: str, *texts: str, choice: Choice | None = None) -> TraceImport:
    """Import a trace of one or more files with this text."""
    paths = [folder / f"{place}.csv" for place in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return import_trace(form, [str(path) for path in paths], choice)
