"""The whole experiment in one call: run it, judge the claims, write the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headway.experiments.overlap.cases import MEMORIES, cases
from headway.experiments.overlap.report import write_report
from headway.experiments.overlap.workloads import changes
from headway.experiments.reproduction.evaluation import Evaluation
from headway.experiments.reproduction.output import REPORT, RUNS, prepare
from headway.experiments.reproduction.reproduce import Reproduction
from headway.experiments.reproduction.runs import run_cases


def measure_overlap(
    folder: Path,
    seeds: Sequence[int],
    threads: int,
    started: Callable[[int, int], None] | None = None,
    done: Callable[[], None] | None = None,
) -> Reproduction:
    """Do the runs that the folder does not have yet, then write tables, figures and report there.

    `started` is called with the number of runs that are finished already, and of all runs; `done`
    after each new one.
    """
    prepare(folder)
    raw = run_cases(folder / RUNS, seeds, threads, started, done, cases(), changes())
    found, name = write_report(folder, Evaluation(raw, seeds)), next(iter(MEMORIES))
    return Reproduction(
        {f"{name}, {kind}": list(part) for kind, part in found[name].items()}, folder / REPORT
    )
