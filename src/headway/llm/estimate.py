"""The length of an iteration by formula: for searching plans, fitting, and sizing workloads.

The slowest device works through all microbatches, the others add one pass each to fill and drain
the pipeline, and messages between servers take as long as if all GPUs of a server sent at once and
nothing else did. The simulator has the exact length of the graph; this is usually within 2% for
dense models and within 10% for mixtures of experts and ZeRO stages 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.domain.message_kinds import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SEND,
    message_latency_ns,
    message_size_bytes,
)
from headway.llm.config import ModelConfig
from headway.llm.gpu import GpuModel
from headway.llm.layers import Rank, optimizer_ns
from headway.llm.plan import GPUS_PER_SERVER, Plan
from headway.llm.stages import Costs, PassCost, StageCost, updated_parameters, work_out
from headway.network.contention import NetworkModel

_HOPS_TO_FILL = 2.5
"""Messages on the critical path of filling and draining an interleaved pipeline, for each stage."""


def estimated_iteration_ns(
    model: ModelConfig,
    plan: Plan,
    gpu: GpuModel,
    network: NetworkModel,
    *,
    gpus_per_server: int = GPUS_PER_SERVER,
    fused_attention: bool = True,
) -> float:
    """Return about how long one iteration takes; arguments as for `iteration_graph`."""
    rank = Rank(model, plan, gpu, fused_attention)
    costs = work_out(rank, gpus_per_server)
    links = _Links(rank, network, gpus_per_server)
    if plan.zero > 1:
        return _unpiped_ns(plan, costs.stages[0], links)
    hop_ns = links.hop_ns(costs)
    devices = [
        sum(
            links.pass_ns(cost)
            for stage in costs.stages[device :: plan.pipeline]
            for cost in (stage.forward, stage.backward)
        )
        for device in range(plan.pipeline)
    ]
    if plan.interleave == 1:
        # A device waits for what it sends to its neighbours: one at either end, otherwise two.
        for device in range(plan.pipeline):
            devices[device] += hop_ns * ((device > 0) + (device < plan.pipeline - 1))
    slowest, filling = max(devices), sum(devices) - max(devices)
    if plan.interleave > 1:
        # More microbatches are in flight than there are devices, so that others compute meanwhile,
        # unless two messages, of which one is a gradient, take longer than a forward pass.
        shortest = min(links.pass_ns(stage.forward) for stage in costs.stages)
        slowest += plan.interleave * max(0.0, 2 * hop_ns - shortest)
        filling = filling / plan.interleave + _HOPS_TO_FILL * plan.stages * hop_ns
    if plan.overlaps_exchanges:
        # A pass overlaps its own all-to-alls, but messages of the pipeline share their links.
        slowest = max(slowest, links.network_ns(costs) + 2 * plan.interleave * hop_ns)
    return plan.microbatches * slowest + filling + _steps_ns(plan, costs, links, hop_ns)


def _steps_ns(plan: Plan, costs: Costs, links: _Links, hop_ns: float) -> float:
    """Return the time from the last backward pass to the end of the last optimizer's step.

    Later devices end their backward passes earlier.
    """
    longest = earlier = 0.0
    for device in range(plan.pipeline):
        tied = costs.embedding_bytes if device in (0, plan.pipeline - 1) else 0
        step_ns = links.step_ns(costs.stages[device :: plan.pipeline])
        longest = max(longest, step_ns - earlier)
        if tied:
            # It waits for the first device, which ends last.
            longest = max(longest, step_ns - earlier + links.pair_ns(tied))
        earlier += links.pass_ns(costs.stages[device].backward) + hop_ns
    return longest


def _unpiped_ns(plan: Plan, stage: StageCost, links: _Links) -> float:
    """Return the time of an iteration that exchanges gradients after each backward pass.

    With ZeRO-3 parameters are gathered during the pass before.
    """
    sharded = plan.zero == 3
    gathering = links.shards_ns([stage], ALL_GATHER) if sharded else _Split()
    reducing = links.shards_ns([stage], REDUCE_SCATTER)
    gather_ns, reduce_ns = gathering.between_ns, reducing.between_ns

    def during(cost: PassCost, *sent_ns: float) -> float:
        """Return the time of a pass, during which other messages are sent."""
        network_ns = links.exchange_ns(cost) + sum(sent_ns)
        return max(links.pass_ns(cost), gathering.inside_ns, network_ns)

    # Gradients of a microbatch are sent during the next one's forward pass.
    first = gather_ns + during(stage.forward, gather_ns)
    further = during(stage.backward, gather_ns) + during(stage.forward, gather_ns, reduce_ns)
    last = during(stage.backward) + reduce_ns + links.step_ns([stage], reduced=True)
    inside_ns = plan.microbatches * reducing.inside_ns
    return first + (plan.microbatches - 1) * further + last + inside_ns


@dataclass(frozen=True, slots=True)
class _Split:
    """The time of messages within a server, and between servers."""

    inside_ns: float = 0.0
    between_ns: float = 0.0

    @property
    def total_ns(self) -> float:
        return self.inside_ns + self.between_ns


class _Links:
    """The time of messages of one rank, within its server or between servers."""

    def __init__(self, rank: Rank, network: NetworkModel, gpus_per_server: int) -> None:
        self._rank, self._plan, self._gpu = rank, rank.plan, rank.gpu
        self._network = network
        self._size = gpus_per_server
        self._per_stage = rank.plan.tensor * rank.plan.data

    def _between_ns(self, kind: int, size: int, servers: int, together: int, inside: int) -> float:
        """Return the time of a message among servers while `together` are on each of them."""
        network, ring = self._network, self._network.ring_size is not None
        latency_ns = message_latency_ns(kind, network.latency_ns(servers))
        cost = network.cost_ns_per_byte(together) * network.byte_weight(servers)
        return latency_ns + cost * message_size_bytes(kind, size, inside, ring)

    def exchange_ns(self, cost: PassCost) -> float:
        """Return the time of the all-to-alls of a pass between servers."""
        if not cost.exchange_bytes:
            return 0.0
        plan = self._plan
        inside = max(1, self._size // plan.tensor)
        servers = -(-plan.expert // inside)
        together = min(self._size, plan.tensor)
        return self._between_ns(
            ALL_TO_ALL, cost.exchange_bytes, servers, together, min(inside, plan.expert)
        )

    def network_ns(self, costs: Costs) -> float:
        """Return how long the all-to-alls of a microbatch keep the network of a device busy."""
        return max(
            sum(
                self.exchange_ns(cost)
                for stage in costs.stages[device :: self._plan.pipeline]
                for cost in (stage.forward, stage.backward)
            )
            for device in range(self._plan.pipeline)
        )

    def pass_ns(self, cost: PassCost) -> float:
        """Return the time of a pass, with what its ranks exchange between servers."""
        plan, time_ns = self._plan, float(cost.time_ns)
        if cost.tensor_bytes:
            servers = -(-plan.tensor // self._size)
            time_ns += self._between_ns(ALL_REDUCE, cost.tensor_bytes, servers, 1, 1)
        exchange_ns = self.exchange_ns(cost)
        return max(time_ns, exchange_ns) if plan.overlaps_exchanges else time_ns + exchange_ns

    def hop_ns(self, costs: Costs) -> float:
        """Return the time of activations from one device of the pipeline to the next."""
        if self._plan.pipeline == 1:
            return 0.0
        if self._per_stage < self._size:
            return self._gpu.send_ns(costs.activation_bytes)
        return self._between_ns(SEND, costs.activation_bytes, 2, self._size, 1)

    def pair_ns(self, size: int) -> float:
        """Return the time of adding up gradients of the first and the last device."""
        if self._plan.gpus <= self._size:
            return self._gpu.all_reduce_ns(2, size)
        return self._between_ns(ALL_REDUCE, size, 2, self._size, 1)

    def step_ns(self, stages: Sequence[StageCost], *, reduced: bool = False) -> float:
        """Return the time of adding up gradients, unless they are, and of the optimizer's step."""
        plan = self._plan
        time_ns = optimizer_ns(self._rank, updated_parameters(plan, stages))
        if not reduced:
            kind = REDUCE_SCATTER if plan.zero else ALL_REDUCE
            time_ns += self.shards_ns(stages, kind).total_ns
        if plan.zero in (1, 2):
            time_ns += self.shards_ns(stages, ALL_GATHER).total_ns
        return time_ns

    def shards_ns(self, stages: Sequence[StageCost], kind: int) -> _Split:
        """Return the time of a collective of the replicas' parameters or gradients."""
        inside_ns = between_ns = 0.0
        for ranks, apart, size in self._replicas(stages):
            if ranks == 1 or not size:
                continue
            if ranks * apart <= self._size:
                share = 1.0 if kind == ALL_REDUCE else 0.5
                inside_ns += share * self._gpu.all_reduce_ns(ranks, size)
                inside_ns += 0.0 if kind == ALL_GATHER else self._gpu.collective_ns
            else:
                servers = -(-ranks * apart // max(self._size, apart))
                together = min(apart, self._size)
                between_ns += self._between_ns(kind, size, servers, together, 1)
        return _Split(inside_ns, between_ns)

    def _replicas(self, stages: Sequence[StageCost]) -> Iterator[tuple[int, int, int]]:
        """Yield how many ranks share parameters, how far apart they are, and the bytes of those."""
        plan = self._plan
        yield plan.data, plan.tensor, sum(stage.gradient_bytes for stage in stages)
        experts = sum(stage.expert_gradient_bytes for stage in stages)
        yield plan.data // plan.expert, plan.tensor * plan.expert, experts
