"""Flat arrays of the graphs of a workload's jobs: jobs that share a graph share its arrays."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from headway.domain.compute_times import ComputeTimes
from headway.domain.graph import Graph
from headway.domain.records import MESSAGE_GROUP, NOBODY, Integers, zeros
from headway.domain.workload import Workload
from headway.engine.state import ITERATION_GRAPH, NODE, Graphs


def lay_out_graphs(workload: Workload, times: ComputeTimes) -> Graphs:
    """Return the graphs of the jobs; a graph with times of its own on the cluster counts anew."""
    known: dict[tuple[int, int], int] = {}
    distinct: list[tuple[Graph, Integers]] = []
    of_job = np.full(len(workload), NOBODY, np.int64)
    for index, job in enumerate(workload):
        task_ns = times.graph_times_ns[index]
        if job.graph is not None and task_ns is not None:
            key = id(job.graph), id(task_ns)
            if key not in known:
                known[key] = len(distinct)
                distinct.append((job.graph, task_ns))
            of_job[index] = known[key]
    expanded = [graph.expanded for graph, _ in distinct]
    graphs = zeros(len(distinct), ITERATION_GRAPH)
    nodes = zeros(sum(one.nodes for one in expanded), NODE)
    groups = zeros(sum(one.nodes - one.tasks for one in expanded), MESSAGE_GROUP)
    starts = zip(
        accumulate((one.nodes for one in expanded), initial=0),
        accumulate((one.nodes - one.tasks for one in expanded), initial=0),
        accumulate((len(one.successors) for one in expanded), initial=0),
        accumulate((len(one.group_ranks) for one in expanded), initial=0),
        accumulate((task_ns.size for _, task_ns in distinct), initial=0),
        strict=True,
    )
    shortest_ns = [
        task_ns.min(axis=0)[one.task_entry].tolist()
        for (_, task_ns), one in zip(distinct, expanded, strict=True)
    ]
    for graph, (known_graph, _), one, shortest, start in zip(
        graphs, distinct, expanded, shortest_ns, starts, strict=False
    ):
        first_node, first_group, first_successor, first_rank, first_time = start
        graph.first_node, graph.first_group, graph.first_time = first_node, first_group, first_time
        graph.nodes, graph.tasks, graph.messages = one.nodes, one.tasks, one.nodes - one.tasks
        graph.entries = len(known_graph.tasks)
        own = nodes[first_node : first_node + one.nodes]
        own["first_successor"][:] = first_successor + one.successor_start[:-1]
        own["successors"][:] = np.diff(one.successor_start)
        own["predecessors"][:] = one.predecessors
        own["rank"][: one.tasks] = one.task_rank
        own["rank"][one.tasks :] = NOBODY
        own["entry"][: one.tasks] = one.task_entry
        own["entry"][one.tasks :] = one.message_entry
        own["in_order"][:] = one.topological_order
        group = groups[first_group : first_group + one.nodes - one.tasks]
        group["bytes"][:], group["kind"][:] = one.message_bytes, one.message_kind
        group["behind_ns"][:] = one.behind_ns(shortest)
        group["first_rank"][:] = first_rank + one.group_start[:-1]
        group["ranks"][:] = np.diff(one.group_start)

    def joined(arrays: list[Integers]) -> Integers:
        return np.concatenate([np.zeros(0, np.int64), *arrays])

    return Graphs(
        sources=[graph for graph, _ in distinct],
        shortest_ns=shortest_ns,
        of_job=of_job,
        graphs=graphs,
        nodes=nodes,
        successors=joined([one.successors for one in expanded]),
        task_ns=joined([task_ns.reshape(-1) for _, task_ns in distinct]),
        groups=groups,
        ranks=joined([one.group_ranks for one in expanded]),
    )
