"""The time of an iteration of a large model under a plan, alone on its servers."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.cluster import Cluster
from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.llm.config import ModelConfig
from headway.llm.gpu import GpuModel
from headway.llm.graph import folded_graph, iteration_graph
from headway.llm.plan import GPUS_PER_SERVER, Plan
from headway.network.contention import NetworkModel

_FOLDABLE_LAWS = ("busiest", "no-contention")


def predicted_iteration_ns(
    model: ModelConfig,
    plan: Plan,
    gpu: GpuModel,
    network: NetworkModel,
    *,
    gpus_per_server: int = GPUS_PER_SERVER,
    fused_attention: bool = True,
    overlap: bool = False,
) -> int:
    """Return the length of one iteration, as the simulator has it.

    Tensor-parallel ranks of one server are simulated as one, which changes nothing but roundings.

    Args:
        model: The model.
        plan: The plan.
        gpu: The type of GPU.
        network: The network between servers.
        gpus_per_server: GPUs of a server.
        fused_attention: Whether attention is one kernel, or keeps matrices of scores.
        overlap: Whether gradients are sent while other stages of a device go on.
    """
    fold = 1
    if plan.gpus <= gpus_per_server or network.law in _FOLDABLE_LAWS:
        graph, fold = folded_graph(
            model,
            plan,
            gpu,
            gpus_per_server=gpus_per_server,
            fused_attention=fused_attention,
            overlap=overlap,
        )
    else:
        graph = iteration_graph(
            model,
            plan,
            gpu,
            gpus_per_server=gpus_per_server,
            fused_attention=fused_attention,
            overlap=overlap,
        )
    if plan.gpus <= gpus_per_server:
        return graph.unit_ns()
    return alone_ns(graph, _folded_network(network, fold), gpus_per_server // fold)


def _folded_network(network: NetworkModel, fold: int) -> NetworkModel:
    """Return the network on which one message costs what `fold` at a time cost on this one."""
    if not network.messages_meet:
        return network
    return replace(network, b_ns_per_byte=network.cost_ns_per_byte(fold))


def alone_ns(graph: Graph, network: NetworkModel, gpus_per_server: int) -> int:
    """Return the length of one iteration of a graph alone, its messages sent when ready."""
    servers = -(-graph.ranks // gpus_per_server)
    result = simulate(
        Workload([Job("alone", 0, graph.ranks, 1, graph=graph)]),
        Cluster(servers, min(gpus_per_server, graph.ranks)),
        network=network,
        policy=f"ff+srsf:{max(1, graph.message_count)}",
    )
    return int(result.jobs["finish_ns"][0])
