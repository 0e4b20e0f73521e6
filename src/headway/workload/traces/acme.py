"""Acme's traces of Seren and Kalos: `trace_seren.csv`, `trace_kalos.csv` (Hu et al., NSDI'24)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.workload.traces.records import RowLog, TraceJob, converted
from headway.workload.traces.slurm import COLUMNS, logged_job
from headway.workload.traces.tables import headed_rows


def read(files: Sequence[str], log: RowLog) -> Iterator[TraceJob]:
    """Yield the jobs."""
    return converted(headed_rows(files, log, COLUMNS), logged_job, log)
