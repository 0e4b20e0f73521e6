"""Run a sweep: in threads of this process, or on a Ray cluster, with the same results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.domain.errors import InputError
from headway.experiments.parallel import Look, run_in_threads, thread_count
from headway.experiments.sweep.grid import (
    Inputs,
    Outcome,
    Point,
    Runner,
    coordinates,
    key_of,
    points,
)
from headway.experiments.sweep.specification import Coordinate, Sweep, read_sweep, sweep_of
from headway.experiments.sweep.store import LOG, Store, read_kept, table_of

if TYPE_CHECKING:
    import polars

THREADS, RAY = "threads", "ray"


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that ended with a problem: where in the grid, and what was wrong."""

    coordinates: Mapping[str, Coordinate]
    problem: str


@dataclass(frozen=True, slots=True)
class Swept:
    """The runs of a sweep, a row each, and those that failed."""

    runs: polars.DataFrame
    failures: list[Failure]


def run_sweep(
    sweep: Sweep | Mapping[str, Any] | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    on: str = THREADS,
    threads: int | None = None,
    jobs: bool = False,
    started: Callable[[int, int], None] | None = None,
    done: Callable[[], None] | None = None,
) -> Swept:
    """Run what the folder does not keep yet of a sweep, then write its tables there.

    Args:
        sweep: A sweep, what its file would hold as a mapping, or the path of its file.
        folder: Where results go and are found again; for one process at a time.
        on: `threads`, `ray` for Ray on this machine, or a Ray cluster's address.
        threads: Runs at a time; by default as many as there are cores.
        jobs: Keep a row per job too, in `jobs/*.parquet`.
        started: Told how many runs are kept already, and how many there are.
        done: Called after each run.

    Raises:
        InputError: The sweep is not what it must be, or the folder is in use.
    """
    if not isinstance(sweep, Sweep):
        sweep = sweep_of(sweep) if isinstance(sweep, Mapping) else read_sweep(sweep)
    jobs = jobs or sweep.jobs
    workers = None if threads is None else thread_count(threads)
    problems: dict[str, str] = {}
    with Store(Path(folder)) as store:
        runs = [(key_of(sweep, point), point) for point in points(sweep)]
        different = dict(reversed(runs))
        todo = {
            key: point
            for key, point in runs
            if different[key] == point and not store.has(key, jobs)
        }
        if started is not None:
            started(len(different) - len(todo), len(different))

        def keep(outcome: Outcome) -> None:
            if outcome.problem is None:
                store.add(outcome)
            else:
                problems[outcome.key] = outcome.problem
            if done is not None:
                done()

        try:
            if todo:
                _execute(todo, Inputs.of(sweep, jobs), on, workers, keep)
        finally:
            frame = store.write_tables(sweep, runs)
    failures = [
        Failure(coordinates(sweep, point), problems[key]) for key, point in runs if key in problems
    ]
    return Swept(frame, failures)


def _execute(
    todo: Mapping[str, Point],
    inputs: Inputs,
    on: str,
    workers: int | None,
    keep: Callable[[Outcome], None],
) -> None:
    if on != THREADS:
        from headway.experiments.sweep.on_ray import run_on_ray

        run_on_ray(todo, inputs, None if on == RAY else on, workers, keep)
        return
    runner = Runner(inputs)

    def work(task: tuple[str, Point], look: Look) -> Outcome:
        return runner.run(*task, look)

    run_in_threads(todo.items(), work, thread_count(workers), keep)


def kept_runs(sweep: Sweep, folder: Path) -> polars.DataFrame:
    """Return the runs of a sweep that a folder keeps, running none and writing nothing."""
    if not (folder / LOG).is_file():
        raise InputError("no sweep has been run there yet.", source=str(folder))
    runs = ((key_of(sweep, point), point) for point in points(sweep))
    return table_of(sweep, runs, read_kept(folder))
