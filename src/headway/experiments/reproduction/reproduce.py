"""The whole evaluation in one call: run it, judge the claims, write the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.experiments.reproduction.claims import Finding
from headway.experiments.reproduction.evaluation import Evaluation
from headway.experiments.reproduction.output import REPORT, RUNS, prepare
from headway.experiments.reproduction.report import write_report
from headway.experiments.reproduction.runs import run_cases

QUICK_SEEDS = tuple(range(3))
FULL_SEEDS = tuple(range(20))


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The findings by setting, and the report's path."""

    findings: dict[str, list[Finding]]
    report: Path


def reproduce(
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
    raw = run_cases(folder / RUNS, seeds, threads, started, done)
    return Reproduction(write_report(folder, Evaluation(raw, seeds)), folder / REPORT)
