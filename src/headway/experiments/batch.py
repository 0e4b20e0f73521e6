"""Many runs of the paper's workload: on all cores, with progress, and never done twice.

Each finished run is a small Parquet file of its own in a folder. Whoever starts the same batch
again finds it there, so an interrupted batch goes on where it was. A file made by other code than
this, or damaged, counts as not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.configuration import cluster_from
from headway.domain.errors import InputError
from headway.engine.run import simulate
from headway.experiments.parallel import Look, run_in_threads
from headway.files import make_folder
from headway.results.store import code_version, write_parquet
from headway.workload.generate import generate_workload

if TYPE_CHECKING:
    import polars

SHAPE = "16x4"


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """What is compared: policies, the memory of a GPU, and the network, all by name."""

    placement: str
    scheduler: str
    gpu_memory_gb: int = 16
    network: str = "10gbe"


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """A case on the paper's workload of one seed."""

    case: Case
    seed: int

    @property
    def file_name(self) -> str:
        """The name of the file that keeps the run."""
        case = self.case
        parts = (case.placement, case.scheduler, f"{case.gpu_memory_gb}gb", case.network)
        return f"{SHAPE}_{'_'.join(parts).replace(':', '-')}_seed-{self.seed}.parquet"


@dataclass(frozen=True, slots=True)
class Raw:
    """What the runs gave: a row per run, per job and per GPU, in the order of the runs."""

    runs: polars.DataFrame
    jobs: polars.DataFrame
    gpus: polars.DataFrame


def missing(runs: Iterable[Run], folder: Path) -> list[Run]:
    """Return the runs that the folder does not keep yet."""
    return [run for run in runs if _metadata(run, folder) is None]


def execute(runs: Sequence[Run], folder: Path, threads: int, done: Callable[[Run], None]) -> None:
    """Simulate runs and keep each in the folder; `done` is told in the calling thread.

    Whatever ends this early, the runs that are finished stay kept, and no thread goes on.
    """
    make_folder(folder)

    def work(run: Run, look: Look) -> Run:
        result = simulate(
            generate_workload("paper", run.seed),
            cluster_from(SHAPE, float(run.case.gpu_memory_gb)),
            network=run.case.network,
            policy=f"{run.case.placement}+{run.case.scheduler}",
            seed=run.seed,
            progress=look,
        )
        write_parquet(result, folder / run.file_name)
        return run

    run_in_threads(runs, work, threads, done)


def collect(runs: Sequence[Run], folder: Path) -> Raw:
    """Return what the folder keeps of these runs, all of which must be there."""
    import polars

    summaries, jobs, gpus = [], [], []
    for run in runs:
        piece = _load(run, folder)
        if piece is None:
            raise InputError("is damaged; start again.", source=str(folder / run.file_name))
        rows, summary, busy_ns = piece
        columns = {**asdict(run.case), "seed": run.seed}
        settings = [
            polars.lit(value, polars.Int64 if isinstance(value, int) else None).alias(name)
            for name, value in columns.items()
        ]
        summaries.append({**columns, **summary})
        jobs.append(rows.select(*settings, polars.all()))
        utilization = np.array(busy_ns) / round(summary["makespan_s"] * 1e9)
        columns_of_gpus = {
            "gpu": range(len(busy_ns)),
            "busy_ns": busy_ns,
            "utilization": utilization,
        }
        gpus.append(polars.DataFrame(columns_of_gpus).select(*settings, polars.all()))
    return Raw(polars.DataFrame(summaries), polars.concat(jobs), polars.concat(gpus))


def _metadata(run: Run, folder: Path) -> dict[str, str] | None:
    """Return what a kept run says of itself, or None if it is not there or of other code."""
    import polars

    path = folder / run.file_name
    if not path.is_file():
        return None
    try:
        with open(path, "rb") as stream:
            metadata = polars.read_parquet_metadata(stream)
    except (polars.exceptions.PolarsError, OSError):
        return None
    return metadata if metadata.get("headway.code") == code_version() else None


def _load(run: Run, folder: Path) -> tuple[polars.DataFrame, dict[str, float], list[int]] | None:
    """Return a kept run: its jobs, its summary without what varies, how long each GPU computed."""
    import polars

    metadata = _metadata(run, folder)
    if metadata is None:
        return None
    summary = json.loads(metadata["headway.summary"])
    del summary["wall_s"]
    with open(folder / run.file_name, "rb") as stream:
        jobs = polars.read_parquet(stream)
    return jobs, summary, json.loads(metadata["headway.gpu_busy_ns"])
