"""Random simulations in which sets of jobs repeat what they do, or nearly so, for long."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from graph_strategies import FEW_RANKS, job_graphs
from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.network.contention import NetworkModel
from strategies import (
    OPTIONS,
    Case,
    mixed_clusters,
    uniform_clusters,
    varied,
    with_graph,
)

STEADY_ADMISSIONS = ("ada-dual", "ada-dual", "srsf:1", "srsf:2", "srsf:3")
ORDERS = ("srsf", "srsf", "srtf", "fifo", "smallest", "las", "2d-las:0.00001", "gpu-intensity")
NETWORKS = (
    NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.0),
    NetworkModel(a_ns=13),
    NetworkModel(a_ns=1, b_ns_per_byte=0.5, eta_ns_per_byte=1.0),
    NetworkModel(a_ns=3, law="no-contention"),
)


def in_units(graph: Graph, unit: int) -> Graph:
    """Return a graph of the same shape whose times and sizes are small multiples of a unit."""
    return Graph(
        graph.ranks,
        [replace(task, duration_ns=(1 + task.duration_ns % 30) * unit) for task in graph.tasks],
        [replace(one, buffer_bytes=one.buffer_bytes % 50 * unit) for one in graph.messages],
    )


@st.composite
def repetitive(draw: st.DrawFn, iterations: tuple[int, ...], graphs: bool = False) -> Case:
    """Draw a case in which few kinds of job do the same for long, and some break in on them.

    Times are small whole multiples of a unit, so that jobs fall into step, and arrivals spread
    over the lives of others.
    """
    crowded = draw(st.booleans())
    cluster = draw(mixed_clusters(crowded) if draw(st.booleans()) else uniform_clusters(crowded))
    memories = [cluster.gpu_types[kind].memory_bytes for kind in cluster.type_of_gpu]
    unit = draw(st.sampled_from([1, 7, 1000]))
    kinds = draw(
        st.lists(
            st.tuples(
                st.integers(1, 30),
                st.integers(1, 30),
                st.sampled_from([0, 3, 20, 50]),
                st.integers(0, min(10, max(memories))),
            ),
            min_size=1,
            max_size=4,
        )
    )
    span = draw(st.sampled_from([0, 100, 2_000, 20_000]))
    jobs = []
    for index in range(draw(st.integers(1, 9))):
        forward, backward, gradient, memory = draw(st.sampled_from(kinds))
        room = sum(own >= memory for own in memories)
        jobs.append(
            Job(
                str(index),
                arrival_ns=draw(st.integers(0, span)) * unit,
                gpus=min(draw(st.sampled_from([1, 1, 2, 3, 4, 8])), room),
                iterations=draw(st.sampled_from(iterations)),
                forward_ns=forward * unit,
                backward_ns=backward * unit,
                gradient_bytes=gradient * unit,
                memory_bytes=memory,
            )
        )
    if graphs:
        shapes = {
            gpus: in_units(draw(job_graphs(gpus)), unit)
            for gpus in {job.gpus for job in jobs if job.gpus <= FEW_RANKS}
        }
        jobs = [
            with_graph(job, shapes[job.gpus])
            if job.gpus in shapes and draw(st.sampled_from([True, True, False]))
            else job
            for job in jobs
        ]
    return Case(
        workload=Workload(jobs),
        cluster=cluster,
        network=draw(varied(NETWORKS)),
        placement=draw(st.sampled_from(["lwf:1", "lwf:1", "ls", "ff", "rand", "least-delay"])),
        priority=draw(st.sampled_from(ORDERS)),
        admission=draw(st.sampled_from(STEADY_ADMISSIONS))
        + draw(st.sampled_from(OPTIONS if graphs else OPTIONS[:1])),
        seed=draw(st.integers(0, 3)),
        bucket_bytes=draw(st.sampled_from([None, None, 10 * unit, 3 * unit])),
        buckets_if_shared=draw(st.booleans()),
    )
