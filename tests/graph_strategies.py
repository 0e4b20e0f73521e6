"""Random graphs of iterations: any DAG within the rules, and what the builders make."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.domain.message_kinds import KINDS
from headway.domain.models import ModelProfile, ProfileSet
from headway.graphs import Layer, MoeLayer, ddp, fsdp, moe, pipeline
from headway.graphs.schedules import SCHEDULES
from headway.workload.parallel import ParallelJobs

MOST_RANKS = 8
"""Ranks of a graph: the oracle looks at all its nodes, all the time."""

FEW_RANKS = 6
"""Jobs of more ranks seldom have a graph."""

_RARELY = [False] * 7 + [True]


def durations() -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from([1, 2, 3, 10, 1_000, 1_000_000]), st.integers(1, 3_000_000))


def gradients() -> st.SearchStrategy[int]:
    return st.one_of(
        st.sampled_from([0, 1, 1_000, 10_000, 1_000_000, 3_000_000]),
        st.integers(0, 5_000_000),
        st.integers(0, 2**40),
    )


@st.composite
def groups(draw: st.DrawFn, ranks: int, size: int | None) -> list[list[int]]:
    """Draw one or more disjoint groups of ranks, all of one size if it is given."""
    left = draw(st.permutations(range(ranks)))
    found = []
    while len(left) >= 2:
        most = size or draw(st.integers(2, len(left)))
        found.append(left[:most])
        left = left[most:]
        if draw(st.booleans()):
            break
    return found


@st.composite
def iteration_graphs(draw: st.DrawFn, ranks: int) -> Graph:
    """Draw a graph of this many ranks: any DAG of a few entries, several channels, every kind.

    Entries wait for earlier ones, so that there is no cycle; where that keeps the graph valid, also
    for any other, so that two entries may wait for each other on different ranks.
    """
    everyone = st.just(list(range(ranks)))
    some = st.lists(st.integers(0, ranks - 1), min_size=1, unique=True)
    entries: list[Task | Message] = []
    for index in range(draw(st.integers(1, 8))):
        entry: Task | Message
        if ranks == 1 or draw(st.booleans()):
            entry = Task(f"e{index}", draw(st.one_of(everyone, some)), draw(durations()))
        else:
            kind = draw(st.sampled_from(KINDS))
            sets = draw(groups(ranks, 2 if kind == "send" else None))
            channel = draw(st.sampled_from(["default", "default", "a", "b"]))
            entry = Message(f"e{index}", kind, sets, draw(gradients()), channel)
        near = [other.name for other in entries if ranks_of(other) & ranks_of(entry)]
        after = tuple(name for name in near if draw(st.integers(0, 2)) == 0)
        entries.append(replace(entry, after=after))
    idle = set(range(ranks)).difference(*(ranks_of(e) for e in entries if isinstance(e, Task)))
    if idle:
        entries.append(Task("last", idle, draw(durations())))
    if draw(st.booleans()):
        try:
            return graph_of(ranks, draw(with_any_after(entries)))
        except InputError:
            pass
    return graph_of(ranks, entries)


@st.composite
def with_any_after(draw: st.DrawFn, entries: list[Task | Message]) -> list[Task | Message]:
    """Draw entries that may also wait for one of any other; there may be a cycle."""
    found = []
    for place, entry in enumerate(entries):
        others = [
            other.name
            for number, other in enumerate(entries)
            if other is not entry and ranks_of(other) & ranks_of(entry)
            if number < place or not (isinstance(entry, Task) and isinstance(other, Task))
        ]
        more = draw(st.lists(st.sampled_from(others), max_size=1)) if others else []
        found.append(replace(entry, after=(*entry.after, *more)))
    return found


def ranks_of(entry: Task | Message) -> set[int]:
    """Return the ranks that an entry has to do with."""
    if isinstance(entry, Task):
        return set(entry.ranks)
    return {rank for group in entry.groups for rank in group}


def graph_of(ranks: int, entries: list[Task | Message]) -> Graph:
    """Return a graph of tasks and messages in one list."""
    tasks = [entry for entry in entries if isinstance(entry, Task)]
    return Graph(ranks, tasks, [entry for entry in entries if isinstance(entry, Message)])


@st.composite
def graphs_of_jobs(draw: st.DrawFn, ranks: int) -> Graph | None:
    """Draw a graph for two of three jobs of a few ranks and for some larger ones, else none."""
    few = ranks <= FEW_RANKS
    if ranks > MOST_RANKS or not draw(st.sampled_from([True, True, False] if few else _RARELY)):
        return None
    return draw(job_graphs(ranks))


@st.composite
def job_graphs(draw: st.DrawFn, ranks: int) -> Graph:
    """Draw a graph of this many ranks: any DAG or, every third time, one that a builder makes."""
    if ranks > FEW_RANKS or draw(st.integers(0, 2)) == 2:
        return draw(built_graphs(ranks))
    return draw(iteration_graphs(ranks))


def built_graphs(ranks: int) -> st.SearchStrategy[Graph]:
    """Draw a small graph from one of the builders, or from a text of the column `parallel`."""
    return st.one_of(
        st.builds(
            ddp,
            layers(1, 4),
            st.just(ranks),
            bucket_bytes=st.integers(1, 2_000_000),
            first_bucket_bytes=st.integers(1, 1_000_000),
            optimizer_ns=optimizers(),
        ),
        st.builds(
            fsdp,
            layers(1, 3),
            st.just(ranks),
            prefetch=st.integers(0, 3),
            reshard=st.booleans(),
            optimizer_ns=optimizers(),
        ),
        pipeline_graphs(ranks),
        pipeline_graphs(ranks),
        moe_graphs(ranks),
        parallel_graphs(ranks),
    )


@st.composite
def layers(draw: st.DrawFn, least: int, most: int) -> list[Layer]:
    """Draw the layers of a model; some are equal, as those of most models are."""
    kinds = draw(
        st.lists(
            st.builds(Layer, durations(), durations(), gradients(), gradients(), gradients()),
            min_size=1,
            max_size=2,
        )
    )
    return draw(st.lists(st.sampled_from(kinds), min_size=least, max_size=most))


def optimizers() -> st.SearchStrategy[int]:
    return st.one_of(st.just(0), durations())


def divisors(number: int) -> st.SearchStrategy[int]:
    return st.sampled_from([part for part in range(1, number + 1) if number % part == 0])


@st.composite
def pipeline_graphs(draw: st.DrawFn, ranks: int) -> Graph:
    """Draw a pipeline of any schedule, with data and tensor parallelism."""
    devices = draw(divisors(ranks))
    split = draw(divisors(ranks // devices))
    schedule = draw(st.sampled_from(sorted(SCHEDULES)))
    stages = devices
    microbatches = draw(st.integers(1, 2 if devices > 2 else 3))
    if schedule == "interleaved":
        stages *= draw(st.integers(1, 2 if devices < 4 else 1))
        microbatches = devices
    return pipeline(
        [draw(layers(1, 2)) for _ in range(stages)],
        microbatches,
        schedule=schedule,
        devices=devices,
        data_parallel=ranks // devices // split,
        tensor_parallel=split,
        overlap=draw(st.booleans()),
        bucket_bytes=draw(st.integers(1, 2_000_000)),
        optimizer_ns=draw(optimizers()),
    )


@st.composite
def moe_graphs(draw: st.DrawFn, ranks: int) -> Graph:
    """Draw a mixture of experts that are spread over all ranks, or over some."""
    kind = st.builds(
        MoeLayer,
        *[durations()] * 4,
        gradients(),
        parameter_bytes=gradients(),
        expert_parameter_bytes=gradients(),
    )
    return moe(
        draw(st.lists(kind, min_size=1, max_size=2)),
        ranks,
        expert_parallel=draw(divisors(ranks)),
        optimizer_ns=draw(optimizers()),
    )


@st.composite
def parallel_graphs(draw: st.DrawFn, ranks: int) -> Graph:
    """Draw the graph of a row with `parallel`."""
    stages = draw(divisors(ranks))
    text = draw(
        st.sampled_from(
            [
                "ddp",
                "ddp:1:first=0.5",
                "fsdp",
                "fsdp:2:prefetch=0",
                "fsdp:1:reshard=no",
                f"pp{stages}xgpipe:2:overlap=no",
                f"pp{stages}x1f1b:2",
                f"pp{stages}xinterleaved:{stages}:chunks=1:bucket=1",
                f"tp{ranks // stages}-pp{stages}x1f1b:1",
                "moe:2",
                "moe:4:top=2",
            ]
        )
    )
    parts = draw(layers(max(2, stages), max(3, stages)))
    parts.append(parts[-1] if parts[-1].parameter_bytes else replace(parts[-1], parameter_bytes=1))
    parts[-2] = parts[-1]
    profile = ModelProfile(
        "drawn",
        gradient_bytes=sum(layer.parameter_bytes for layer in parts),
        memory_bytes=0,
        forward_ns=sum(layer.forward_ns for layer in parts),
        backward_ns=sum(layer.backward_ns for layer in parts),
        batch_size=1,
        layers=tuple(parts),
        optimizer_ns=draw(optimizers()),
    )
    profiles = (ProfileSet("drawn", (profile,)),)
    job = Job.of_model(
        "drawn", job_id="a", arrival_ns=0, gpus=ranks, iterations=1, profiles=profiles
    )
    graph = ParallelJobs(profiles).job(job, text).graph
    assert graph is not None
    return graph
