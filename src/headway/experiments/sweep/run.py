"""Run a sweep, in threads of this process or on a Ray cluster, with the same results."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.domain.errors import InputError
from headway.engine.compilation import compile_ahead
from headway.engine.parallel import Checkpoint, run_in_threads, thread_count
from headway.experiments.sweep.grid import (
    Inputs,
    Outcome,
    Point,
    Rows,
    Runner,
    coordinates,
    key_of,
    points,
)
from headway.experiments.sweep.specification import Coordinate, Sweep, read_sweep, sweep_of
from headway.experiments.sweep.store import LOG, RunStore, read_finished, table_of

if TYPE_CHECKING:
    import polars

THREADS, RAY = "threads", "ray"


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed: its coordinates in the grid, and the problem."""

    coordinates: Mapping[str, Coordinate]
    problem: str


@dataclass(frozen=True, slots=True)
class Swept:
    """The outcome of a sweep: a row per finished run, and the failures."""

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
    """Do the runs of a sweep that the folder does not have yet, then write its tables there.

    Args:
        sweep: A sweep, its contents as a mapping, or the path of its file.
        folder: The folder of results, for one process at a time.
        on: `threads`, `ray` for Ray on this machine, or a Ray cluster's address.
        threads: Threads in all; by default the number of cores. Each does one run at a time; if
            there are fewer runs than threads, each sampled run gets several.
        jobs: Store a row per job too, in `jobs/*.parquet`.
        started: Called with the number of runs that are finished already, and of all runs.
        done: Called after each run.

    Raises:
        InputError: The sweep is invalid, or the folder is in use.
    """
    if not isinstance(sweep, Sweep):
        sweep = sweep_of(sweep) if isinstance(sweep, Mapping) else read_sweep(sweep)
    rows: list[Rows] = ["jobs"] if jobs or sweep.jobs else []
    with RunStore(Path(folder)) as store:
        runs = keyed(sweep, points(sweep))
        try:
            problems = run_missing(
                store, sweep, runs, rows, on=on, threads=threads, started=started, done=done
            )
        finally:
            frame = store.write_tables(sweep, runs)
    failures = [
        Failure(coordinates(sweep, point), problems[key]) for key, point in runs if key in problems
    ]
    return Swept(frame, failures)


def keyed(sweep: Sweep, runs: Iterable[Point]) -> list[tuple[str, Point]]:
    """Return runs of a sweep with their keys."""
    return [(key_of(sweep, point), point) for point in runs]


def run_missing(
    store: RunStore,
    sweep: Sweep,
    runs: Sequence[tuple[str, Point]],
    rows: Collection[Rows] = (),
    *,
    on: str = THREADS,
    threads: int | None = None,
    started: Callable[[int, int], None] | None = None,
    done: Callable[[], None] | None = None,
) -> dict[str, str]:
    """Do the runs that the store does not have yet, and return the problems of failed ones by key.

    Each finished run is in the store before `done` is called, also if this is interrupted later.
    """
    workers = None if threads is None else thread_count(threads)
    problems: dict[str, str] = {}
    first = dict(reversed(runs))  # Points with equal inputs have one key, and are run once.
    todo = {key: point for key, point in runs if first[key] == point and not store.has(key, rows)}
    inputs = Inputs.of(sweep, rows)
    if todo and on in (THREADS, RAY):  # on this machine
        used = sorted({point.policy for point in todo.values()})
        compile_ahead((inputs.policies[policy].choices for policy in used), inputs.have_graphs)
    if started is not None:
        started(len(first) - len(todo), len(first))

    def keep(outcome: Outcome) -> None:
        if outcome.problem is None:
            store.add(outcome)
        else:
            problems[outcome.key] = outcome.problem
        if done is not None:
            done()

    if todo:
        _execute(todo, inputs, on, workers, keep)
    return problems


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
    threads = thread_count(workers)
    runner = Runner(inputs, max(1, threads // len(todo)))

    def work(task: tuple[str, Point], checkpoint: Checkpoint) -> Outcome:
        return runner.run(*task, checkpoint)

    run_in_threads(todo.items(), work, threads, keep)


def finished_runs(sweep: Sweep, folder: Path) -> polars.DataFrame:
    """Return a sweep's finished runs in a folder, without running or writing anything."""
    if not (folder / LOG).is_file():
        raise InputError("has no finished runs; run the sweep first.", source=str(folder))
    return table_of(sweep, keyed(sweep, points(sweep)), read_finished(folder))
