"""Recording a run as a user of the library does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars

from builders import make_graph_job, make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.results.schema import Result
from headway.results.timeline.file import record_timeline
from headway.results.timeline.window import Window
from strategies import Case

CROWD = make_workload(
    make_job(gpus=4, iterations=6),
    make_job(gpus=3, iterations=8, arrival_ns=5, gradient_bytes=40_000_000),
    make_job(gpus=2, iterations=7, arrival_ns=3_000_000),
    make_job(gpus=4, iterations=5, arrival_ns=9_000_000, forward_ns=3),
    make_job(gpus=1, iterations=50),
    make_job(gpus=4, iterations=2, memory_bytes=15 * 2**30, arrival_ns=1_000_000),
)
"""Jobs that wait for GPUs, for each other and for the network on two servers of two GPUs."""

MIX = make_workload(
    make_graph_job("ddp", iterations=4),
    make_job(gpus=3, iterations=5, arrival_ns=5),
    make_graph_job("pipeline", iterations=3, arrival_ns=3_000_000),
    make_graph_job("fsdp", iterations=3),
    make_graph_job("moe", iterations=2, memory_bytes=9 * 2**30),
    make_graph_job("replicas", iterations=2, memory_bytes=9 * 2**30),
)
"""A crowd of jobs with graphs of all shapes, and one without."""

TWO_BY_TWO = Cluster(2, 2)


def record(
    path: Path,
    workload: Workload,
    cluster: Cluster,
    window: Window | None = None,
    **options: Any,
) -> Result:
    """Simulate and write the timeline."""
    with record_timeline(path, workload, cluster, window) as sink:
        return sink.finish(simulate(workload, cluster, timeline=sink, **options))


def options_of(case: Case) -> dict[str, Any]:
    """Return the options that simulate a case."""
    return {"network": case.network, "policy": case.policies, "seed": case.seed}


def window_of(result: Result, cut: tuple[float, float]) -> Window:
    """Return a window that begins and ends at fractions of a run."""
    last_ns = int(result.finish_ns.max())
    from_ns = min(int(min(cut) * last_ns), last_ns - 1)
    return Window(from_ns, max(from_ns + 1, int(max(cut) * last_ns)))


def drop_checksum(path: Path) -> None:
    """Write a timeline anew as Headway did before files had checksums."""
    known = polars.read_parquet_metadata(path)
    own = {key: value for key, value in known.items() if key.startswith("headway.")}
    polars.read_parquet(path).write_parquet(path, metadata=own)
