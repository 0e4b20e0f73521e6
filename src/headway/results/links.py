"""Link loads: how much each link of the cluster carried, and for how long it was in use."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.message_kinds import KINDS, message_size_bytes
from headway.domain.records import COMMUNICATION, TASK, Records
from headway.files import STANDARD, open_output
from headway.results.parquet import parquet_output
from headway.results.timeline.nodes import GraphNodes
from headway.results.usage import Integers

if TYPE_CHECKING:
    import polars

    from headway.domain.cluster import Cluster
    from headway.results.schema import Result


class SentMessages:
    """A timeline sink that keeps only messages."""

    def __init__(self) -> None:
        self._batches: list[Records] = [np.zeros(0, TASK).view(np.recarray)]

    def append(self, tasks: Records) -> None:
        """Keep a copy of a batch's messages."""
        self._batches.append(tasks[tasks.kind == COMMUNICATION])

    def tasks(self) -> Records:
        """Return all messages, ordered by their ends."""
        return np.concatenate(self._batches).view(np.recarray)


def link_table(result: Result, tasks: Records) -> polars.DataFrame:
    """Return the load of each link; `Result.links` says how. The tasks include all messages."""
    import polars

    fabric = result.settings.cluster.fabric
    sent = tasks[tasks.kind == COMMUNICATION]
    nodes = GraphNodes([job.graph for job in result.workload])
    first = np.cumsum([0, *(job.message_count for job in result.workload)])
    index = first[sent.job] + nodes.message(sent.job, sent.node)
    order = np.argsort(index, kind="stable")
    start_ns, end_ns = sent.start_ns[order], sent.end_ns[order]
    bounds = np.searchsorted(index[order], np.arange(first[-1] + 1))
    total = np.zeros(len(fabric.factor))
    users: dict[int, list[int]] = defaultdict(list)
    message = 0
    for job, gpus in zip(result.workload, result.gpus, strict=True):
        for ranks, size in _messages(job, gpus, result):
            for link, share in fabric.shares(ranks).items():
                total[link] += job.iterations * size * share
                users[link].append(message)
            message += 1
    counts, busy_ns = np.zeros(len(total), np.int64), np.zeros(len(total), np.int64)
    for link, messages in users.items():
        rows = np.concatenate([np.arange(bounds[m], bounds[m + 1]) for m in messages])
        counts[link] = len(rows)
        busy_ns[link] = _covered_ns(start_ns[rows], end_ns[rows])
    makespan_ns = int(result.finish_ns.max() - result.arrival_ns.min())
    return polars.DataFrame(
        {
            "tier": fabric.tiers,
            "link": fabric.names,
            "messages": counts,
            "bytes": np.rint(total).astype(np.int64),
            "busy_ns": busy_ns,
            "busy_share": busy_ns / makespan_ns,
        },
        schema_overrides={"tier": polars.String, "link": polars.String},
    )


def _messages(job: Job, gpus: tuple[int, ...], result: Result) -> Iterator[tuple[list[int], int]]:
    """Yield the GPUs and the size of each message of an iteration, in order."""
    if job.graph is None:
        yield list(gpus), job.gradient_bytes
        return
    cluster, ring = result.settings.cluster, result.settings.network.ring_size is not None
    for entry in job.graph.messages:
        for group in entry.groups:
            ranks = [gpus[rank] for rank in sorted(group)]
            most = _most_together(ranks, cluster)
            kind = KINDS.index(entry.kind)
            yield ranks, message_size_bytes(kind, entry.buffer_bytes, most, ring)


def _most_together(gpus: list[int], cluster: Cluster) -> int:
    """Return the most of these GPUs that are in one server."""
    return int(np.bincount(cluster.server_of_gpu[gpus]).max())


def _covered_ns(start_ns: Integers, end_ns: Integers) -> int:
    """Return the time that at least one of the spans covers."""
    if len(start_ns) == 0:
        return 0
    order = np.argsort(start_ns, kind="stable")
    start_ns = start_ns[order]
    until_ns = np.maximum.accumulate(end_ns[order])
    begins = np.concatenate([[True], start_ns[1:] > until_ns[:-1]])
    last = np.append(np.flatnonzero(begins)[1:] - 1, len(start_ns) - 1)
    return int((until_ns[last] - start_ns[begins]).sum())


def check_links_file(path: str) -> None:
    """Refuse a file name whose suffix is that of another format."""
    if path != STANDARD and Path(path).suffix not in (".csv", ".parquet"):
        raise InputError("must end in .csv or .parquet.", source=path)


def write_links(table: polars.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write link loads to a .csv or .parquet file, or as CSV to standard output for `-`."""
    if os.fspath(path).endswith(".parquet"):
        with parquet_output(path) as stream:
            table.write_parquet(stream)
    else:
        with open_output(path) as stream:
            stream.write(table.write_csv().encode())
