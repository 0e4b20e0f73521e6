"""Imports Chakra execution traces, as ASTRA-sim reads them.

A trace has nodes with dependencies for each rank, and no order among what does not depend on each
other. Like ASTRA-sim, a rank runs of what is ready the node with the lowest id first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from headway.domain.errors import InputError
from headway.domain.graph import Graph
from headway.domain.limits import MAX_GPUS, whole
from headway.graphs.imports.assembly import assemble
from headway.graphs.imports.chakra_file import COLLECTIVE, RankTrace, read_rank
from headway.graphs.imports.chakra_folder import find_trace, read_groups
from headway.graphs.imports.chakra_operations import Counts, TraceOperations
from headway.graphs.imports.imported import Imported, Progress, counted
from headway.graphs.imports.operations import schedule
from headway.graphs.imports.roofline import Roofline

STG_SCHEMA = "symbolic_tensor_network"
"""The schema that STG, the symbolic tensor graph generator, writes: sizes count elements."""

STG_ELEMENT_BYTES = 4
MAX_ELEMENT_BYTES = 64

_READ, _MATCHED, _ORDERED = 0.6, 0.75, 0.85
"""About which share of the time is over when files are read, and so on."""


def import_chakra(
    folder: str,
    *,
    name: str | None = None,
    groups: str | None = None,
    ranks: int | None = None,
    element_bytes: int | None = None,
    cost: Roofline | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Read a Chakra execution trace, one file `NAME.RANK.et` a rank, as one iteration's graph.

    Args:
        folder: Where the files are.
        name: The trace, if the folder has several.
        groups: A JSON file of groups of ranks; by default `NAME.json`.
        ranks: Run a trace of one rank on this many.
        element_bytes: The bytes that sizes count; by default 4 in traces of STG, else 1.
        cost: What computations without a time take.
        progress: Gets the share of the work that is done, and the bytes read.

    Raises:
        InputError: A file is damaged, ranks do not match, or a cost is needed and not given.
    """
    if element_bytes is not None:
        whole(element_bytes, "element_bytes", 1, MAX_ELEMENT_BYTES)
    found = find_trace(folder, name, groups)
    traces, read_bytes = _read(found.files, progress)

    def report(share: float) -> None:
        if progress is not None:
            progress(share, read_bytes)

    if ranks is not None:
        whole(ranks, "ranks", 1, MAX_GPUS)
        if len(traces) > 1 and ranks != len(traces):
            raise InputError(
                f"the trace has {len(traces):,} ranks; only a trace of one rank runs on others.",
                field="ranks",
            )
        traces = traces * ranks if len(traces) == 1 else traces
    elif len(traces) == 1:
        _check_one_rank(traces[0])
    is_stg = traces[0].schema == STG_SCHEMA
    if element_bytes is None:
        element_bytes = STG_ELEMENT_BYTES if is_stg else 1
    by_name = read_groups(found.groups, len(traces)) if found.groups else None
    try:
        made = TraceOperations(traces, by_name, element_bytes, cost, multiply_adds=is_stg)
        report(_MATCHED)
        plan = schedule(made.operations, len(traces))
        report(_ORDERED)
        graph = assemble(made.operations, plan, len(traces))
    except InputError as error:
        raise error if error.source else error.at(folder) from None
    return Imported(graph, tuple(_notes(made.counts, graph, element_bytes, cost)))


def _check_one_rank(trace: RankTrace) -> None:
    """Refuse a collective among all ranks in the only file."""
    for node in trace.nodes:
        if node.kind == COLLECTIVE and not node.on_cpu and "pg_name" not in node.attributes:
            raise InputError(
                f"{node.label} is a collective, but the trace has one rank; give --ranks to run "
                "it on several.",
                source=trace.source,
            )


def _read(files: Sequence[str], progress: Progress | None) -> tuple[list[RankTrace], int]:
    """Read the files, and report how far it is; return how many bytes they have."""
    total = sum(os.path.getsize(path) if os.path.isfile(path) else 0 for path in files)
    done_bytes = 0

    def add(read_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += read_bytes
        if progress is not None:
            progress(_READ * min(done_bytes / max(total, 1), 1.0), done_bytes)

    return [read_rank(path, add) for path in files], done_bytes


def _notes(
    counts: Counts, graph: Graph, element_bytes: int, cost: Roofline | None
) -> Iterator[str]:
    """Yield a sentence for everything that is not as in the files."""
    tasks = sum(len(task.ranks) for task in graph.tasks)
    yield (
        f"{counted(counts.nodes, 'node')} of {counted(graph.ranks, 'rank')}: "
        f"{counted(counts.computations, 'computation')}, "
        f"{counted(counts.collectives, 'collective')}, {counted(counts.sends, 'send')}."
    )
    if tasks < counts.computations:
        yield (
            f"Merged: {counts.computations:,} computations became {counted(tasks, 'task')}; those "
            "with no message between them are one."
        )
    if counts.costed and cost is not None:
        yield (
            f"Guessed: {counted(counts.costed, 'computation')} without a time take that of a GPU "
            f"with {cost.tflops:,g} TFLOPS and {cost.memory_gb_s:,g} GB/s of memory bandwidth."
        )
    if counts.multiply_adds:
        yield (
            f"Guessed: {counted(counts.multiply_adds, 'matrix product')} of STG count "
            "multiply-adds, so each is two floating-point operations."
        )
    if element_bytes > 1:
        yield f"Guessed: sizes count elements of {element_bytes} bytes (--element-bytes)."
    if counts.without_cost:
        yield (
            f"Guessed: {counted(counts.without_cost, 'computation')} with neither a time nor "
            "num_ops take 1 ns."
        )
    if counts.guessed_order:
        yield (
            f"Guessed: on {counted(counts.guessed_order, 'rank')} nothing waits for the GPU. "
            "Kernels run in the order of ids; a collective waits for the kernels before it; the "
            "next kernel waits for a broadcast, gather or all-to-all, and the first kernel after "
            "the last collective for all of them."
        )
    for (name, kind), count in sorted(counts.other_kinds.items()):
        yield f"Guessed: {counted(count, name)} became {kind} messages."
    if counts.unprompted:
        yield (
            f"As in the files, nothing comes before {counted(counts.unprompted, 'message')}, so "
            f"{'it' if counts.unprompted == 1 else 'they'} may start with the iteration."
        )
    if counts.on_cpu:
        yield (
            f"Dropped: {counted(counts.on_cpu, 'node')} of the CPU, {counts.on_cpu_us / 1e3:,.1f} "
            "ms in all."
        )
    if counts.control:
        yield (
            f"Dropped: {counted(counts.control, 'control dependency', 'control dependencies')} of "
            "traces with CPU nodes, which are the call tree and no order."
        )
    if counts.alone:
        yield f"Dropped: {counted(counts.alone, 'collective')} of a single rank."
    if counts.idle_ranks:
        yield (
            f"Added: a task of 1 ns on {counted(counts.idle_ranks, 'rank')} that "
            f"{'computes' if counts.idle_ranks == 1 else 'compute'} nothing."
        )
