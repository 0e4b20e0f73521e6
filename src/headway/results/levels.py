"""How many of something there are over time: GPUs held and busy, jobs queued, messages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.domain.errors import InputError
from headway.domain.limits import whole
from headway.domain.records import COMMUNICATION
from headway.results.usage import Integers

if TYPE_CHECKING:
    import polars

    from headway.results.schema import AnyResult
    from headway.results.timeline.recorded import RecordedRun

_MAX_BINS = 1_000_000

_log = logging.getLogger("headway")


def utilization(result: AnyResult, bins: int) -> polars.DataFrame:
    """Return the use of the GPUs in each of `bins` periods; `AnyResult.utilization` says how."""
    import polars

    whole(bins, "bins", 1, _MAX_BINS)
    gpus = result.settings.cluster.gpus
    edges_ns = np.linspace(int(result.arrival_ns.min()), int(result.finish_ns.max()), bins + 1)
    busy = None
    if result.timeline is not None:
        tasks = result.timeline.tasks()
        tasks = tasks[tasks.kind != COMMUNICATION]
        busy = mean_level(tasks.start_ns, tasks.end_ns, edges_ns) / gpus
    else:
        _log.warning(
            "`busy` is null: when GPUs compute is known only of a run that was recorded with "
            "simulate(..., timeline=headway.Timeline())."
        )
    return polars.DataFrame(
        {
            "from_s": edges_ns[:-1] / 1e9,
            "to_s": edges_ns[1:] / 1e9,
            "held": mean_level(*held_spans(result), edges_ns) / gpus,
            "busy": busy,
            "queued": mean_level(result.arrival_ns, result.start_ns, edges_ns),
        },
        schema_overrides={"busy": polars.Float64},
    )


def contention(run: RecordedRun, server: int) -> polars.DataFrame:
    """Return the number of messages on a server over time; `Result.contention` says how."""
    import polars

    if isinstance(server, bool) or not isinstance(server, int) or not 0 <= server < run.servers:
        raise InputError(f"must be from 0 to {run.servers - 1}, not {server}.", field="server")
    spans = run.messages.filter(polars.col("servers").list.contains(server))
    start_ns, end_ns = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    instants_ns, number = level(start_ns, end_ns, run.window.from_ns, run.window.to_ns)
    kept = np.flatnonzero(np.diff(number[:-1], prepend=-1))
    from_s = instants_ns[kept] / 1e9
    to_s = np.append(instants_ns[kept[1:]], instants_ns[-1]) / 1e9
    return polars.DataFrame({"from_s": from_s, "to_s": to_s, "messages": number[kept]})


def held_spans(result: AnyResult) -> tuple[Integers, Integers]:
    """Return the spans in which each GPU holds at least one job."""
    counts = [len(gpus) for gpus in result.gpus]
    gpu = np.concatenate([np.array(gpus, np.int64) for gpus in result.gpus])
    start_ns, finish_ns = np.repeat(result.start_ns, counts), np.repeat(result.finish_ns, counts)
    order = np.lexsort((start_ns, gpu))
    starts, ends = [], []
    current, begun_ns, until_ns = -1, 0, 0
    columns = (column[order].tolist() for column in (gpu, start_ns, finish_ns))
    for holder, from_ns, to_ns in zip(*columns, strict=True):
        if holder != current or from_ns > until_ns:
            if current >= 0:
                starts.append(begun_ns)
                ends.append(until_ns)
            current, begun_ns, until_ns = holder, from_ns, to_ns
        until_ns = max(until_ns, to_ns)
    return np.array([*starts, begun_ns], np.int64), np.array([*ends, until_ns], np.int64)


def level(
    start_ns: Integers, end_ns: Integers, first_ns: int, last_ns: int
) -> tuple[Integers, Integers]:
    """Return the instants at which the number of open spans changes, and that number."""
    instants = np.unique(np.concatenate([[first_ns], start_ns, end_ns, [last_ns]]))
    begun = np.searchsorted(np.sort(start_ns), instants, side="right")
    ended = np.searchsorted(np.sort(end_ns), instants, side="right")
    return instants.astype(np.int64), (begun - ended).astype(np.int64)


def mean_level(
    start_ns: Integers, end_ns: Integers, edges_ns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean number of open spans between each two edges."""
    area = _elapsed(start_ns, edges_ns) - _elapsed(end_ns, edges_ns)
    mean: NDArray[np.float64] = np.diff(area) / np.diff(edges_ns)
    return np.maximum(mean, 0.0)


def _elapsed(since_ns: Integers, edges_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the total time that has passed at each edge since those instants before it."""
    instants = np.sort(since_ns - edges_ns[0])
    edges = edges_ns - edges_ns[0]
    count = np.searchsorted(instants, edges, side="right")
    total: NDArray[np.float64] = count * edges - np.concatenate([[0.0], np.cumsum(instants)])[count]
    return total
