"""The cases of the evaluation as a sweep, and what its runs yield as three tables.

A sweep runs every combination of its lists; the paper's cases are some of them, so that only those
points of the grid are run. Finished runs are stored as those of any sweep are: an interrupted
reproduction continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.domain.errors import InputError
from headway.domain.workload import Workload
from headway.experiments.reproduction.paper import SHAPE, Case, cases
from headway.experiments.sweep.grid import FIGURES, Point, Rows
from headway.experiments.sweep.run import keyed, run_missing
from headway.experiments.sweep.specification import (
    Entry,
    Sweep,
    WorkloadSource,
    sweep_of,
    workload_digest,
)
from headway.experiments.sweep.store import RunStore

if TYPE_CHECKING:
    import polars

RECIPE: str | Mapping[str, Any] = "paper"
"""The jobs, as a sweep describes them."""

Change = Callable[[Workload], Workload]
"""Returns the jobs of a workload with iterations of another kind."""

_ROWS: tuple[Rows, ...] = ("jobs", "gpus")
_JOB_COLUMNS = (
    "job_id",
    "model",
    "iterations",
    "arrival_ns",
    "start_ns",
    "finish_ns",
    "gpus",
    "energy_j",
)


@dataclass(frozen=True, slots=True)
class RawResults:
    """A row per run, per job and per GPU, in the order of the runs; each begins with the case."""

    runs: polars.DataFrame
    jobs: polars.DataFrame
    gpus: polars.DataFrame


def run_cases(
    folder: Path,
    seeds: Sequence[int],
    threads: int,
    started: Callable[[int, int], None] | None = None,
    done: Callable[[], None] | None = None,
    only: Sequence[Case] | None = None,
    changes: Mapping[str, Change] | None = None,
) -> RawResults:
    """Run the cases that the folder does not have yet, and return the results of all.

    `only` chooses cases. `changes` makes the workloads of cases that have another than the paper's
    from the paper's jobs on the same seed, by name. `started` is called with the number of runs
    that are finished already, and of all runs; `done` after each new one.
    """
    chosen = cases() if only is None else list(only)
    sweep = _sweep(chosen, seeds)
    sweep, workloads = _with_changes(sweep, chosen, seeds, changes or {})
    runs = [(case, seed) for seed in seeds for case in chosen]
    with RunStore(folder) as store:
        points = keyed(
            sweep,
            (_point(sweep, workloads[case.workload, seed], case, seed) for case, seed in runs),
        )
        problems = run_missing(
            store, sweep, points, _ROWS, threads=threads, started=started, done=done
        )
        for problem in problems.values():
            raise InputError(problem)
        return _collect(store, [(key, *run) for (key, _), run in zip(points, runs, strict=True)])


def _sweep(chosen: Sequence[Case], seeds: Sequence[int]) -> Sweep:
    """Return the smallest sweep whose grid has these cases."""
    return sweep_of(
        {
            "workloads": RECIPE,
            "seeds": list(seeds),
            "clusters": SHAPE,
            "gpu_memory_gb": list(dict.fromkeys(case.gpu_memory_gb for case in chosen)),
            "networks": list(dict.fromkeys(case.network for case in chosen)),
            "policies": list(dict.fromkeys(case.policy for case in chosen)),
        }
    )


def _with_changes(
    sweep: Sweep, chosen: Sequence[Case], seeds: Sequence[int], changes: Mapping[str, Change]
) -> tuple[Sweep, dict[tuple[str, int], int]]:
    """Add changed workloads to a sweep; return also the index of each workload and seed."""
    (recipe,) = sweep.workloads
    entries, indexes = [recipe], {(str(recipe.coordinates["workload"]), seed): 0 for seed in seeds}
    for name in dict.fromkeys(case.workload for case in chosen if case.workload in changes):
        for seed in seeds:
            workload = changes[name](recipe.value.draw(seed))
            indexes[name, seed] = len(entries)
            source = WorkloadSource(workload, (seed,))
            entries.append(Entry({"workload": name}, source, workload_digest(workload)))
    return replace(sweep, workloads=tuple(entries)), indexes


def _point(sweep: Sweep, workload: int, case: Case, seed: int) -> Point:
    memories = [entry.coordinates["gpu_memory_gb"] for entry in sweep.clusters]
    networks = [entry.coordinates["network"] for entry in sweep.networks]
    policies = [entry.coordinates["policy"] for entry in sweep.policies]
    return Point(
        workload=workload,
        seed=seed,
        cluster=memories.index(case.gpu_memory_gb),
        network=networks.index(case.network),
        policy=policies.index(case.policy),
    )


def _collect(store: RunStore, runs: Sequence[tuple[str, Case, int]]) -> RawResults:
    import polars

    summaries, jobs, gpus = [], [], []
    for key, case, seed in runs:
        settings = {**asdict(case), "seed": seed}
        columns = [
            polars.lit(value, polars.Int64 if isinstance(value, int) else None).alias(name)
            for name, value in settings.items()
        ]
        figures = {name: store.finished[key][name] for name in FIGURES}
        summaries.append({**settings, **figures})
        jobs.append(_read(store, key, "jobs").select(*columns, *_JOB_COLUMNS))
        busy = _read(store, key, "gpus").select("gpu", "busy_ns")
        # Divided by numpy: polars multiplies by the reciprocal, which differs in the last bit.
        utilization = busy["busy_ns"].to_numpy() / round(figures["makespan_s"] * 1e9)
        with_utilization = busy.with_columns(polars.Series("utilization", utilization))
        gpus.append(with_utilization.select(*columns, polars.all()))
    return RawResults(polars.DataFrame(summaries), polars.concat(jobs), polars.concat(gpus))


def _read(store: RunStore, key: str, rows: Rows) -> polars.DataFrame:
    import polars

    path = store.rows_file(key, rows)
    try:
        with open(path, "rb") as stream:
            return polars.read_parquet(stream)
    except (OSError, polars.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"is damaged ({reason}); delete it and repeat the command.", source=str(path)
        ) from None
