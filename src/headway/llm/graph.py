"""The graph of a model's iteration under a plan.

Ranks are in the order of Megatron-LM: those of tensor parallelism next to each other, then the
replicas of data parallelism, then the devices of the pipeline. Messages within a server are part
of the tasks' times, because in a graph they take none; those between servers are messages:

- activations and their gradients between neighbours of the pipeline, of which each tensor rank
  sends its part; as in Megatron a device waits until they are sent, unless stages are interleaved;
- all-reduces of tensor parallelism and all-to-alls of expert parallelism, added up after each pass;
  all-to-alls that overlap are sent during the pass, whose place another microbatch takes while
  they wait: a pass takes as long as its computing or as its all-to-alls, whichever is longer;
- gradients, after a device's last backward pass, or as each stage ends with `overlap`; with ZeRO a
  reduce-scatter, and an all-gather of parameters after the optimizer's step; of ZeRO-3 also an
  all-gather of each stage's parameters during the pass before, and a reduce-scatter after each
  backward pass;
- gradients of tied embeddings between the first and the last device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task, check_nodes
from headway.graphs.pipeline import MOST_PASSES
from headway.graphs.rank_layout import RankLayout
from headway.graphs.schedules import SCHEDULES, Pass
from headway.llm.config import ModelConfig
from headway.llm.gpu import GpuModel
from headway.llm.layers import Rank, optimizer_ns
from headway.llm.plan import GPUS_PER_SERVER, Plan
from headway.llm.stages import Costs, PassCost, updated_parameters, work_out

_GRADIENTS = "gradients"
_PARAMETERS = "parameters"
_GATHER = "all-gather"


def iteration_graph(
    model: ModelConfig,
    plan: Plan,
    gpu: GpuModel,
    *,
    gpus_per_server: int = GPUS_PER_SERVER,
    fused_attention: bool = True,
    overlap: bool = False,
) -> Graph:
    """Return the graph of one iteration.

    Args:
        model: The model.
        plan: The plan.
        gpu: The type of GPU that it runs on.
        gpus_per_server: How many ranks, in their order, are on each server.
        fused_attention: Whether attention is one kernel, or keeps matrices of scores.
        overlap: Whether each stage's gradients are sent while other stages of the device go on.
    """
    rank = Rank(model, plan, gpu, fused_attention)
    return _Builder(rank, gpus_per_server, 1, overlap).graph()


def folded_graph(
    model: ModelConfig,
    plan: Plan,
    gpu: GpuModel,
    *,
    gpus_per_server: int = GPUS_PER_SERVER,
    fused_attention: bool = True,
    overlap: bool = False,
) -> tuple[Graph, int]:
    """Return a graph with one rank for each group of tensor parallelism, and the group's size.

    The ranks of a group on one server do the same at the same time, and so do their messages: k of
    them meet wherever one meets itself. If a message's cost is k times as high, the folded graph
    takes as long on servers with a k-th of the GPUs. Groups that do not divide a server
    cannot be folded; their size is then 1.
    """
    fold = plan.tensor if gpus_per_server % plan.tensor == 0 else 1
    rank = Rank(model, plan, gpu, fused_attention)
    return _Builder(rank, gpus_per_server, fold, overlap).graph(), fold


@dataclass(frozen=True, slots=True)
class _Layout(RankLayout):
    """Which ranks are where; `split` ranks of tensor parallelism are not folded."""

    experts: int
    gpus_per_server: int

    def expert_groups(self, device: int) -> list[range]:
        """Return the groups of ranks that share a layer's experts."""
        size = self.experts
        return [
            group[at : at + size]
            for group in self.replica_groups(device)
            for at in range(0, len(group), size)
        ]

    def expert_replica_groups(self, device: int) -> list[range]:
        """Return the groups of ranks that have the same experts."""
        return [
            group[part :: self.experts]
            for group in self.replica_groups(device)
            for part in range(self.experts)
        ]

    def inside(self, groups: Sequence[Sequence[int]]) -> bool:
        """Return whether each group, ascending or descending, is on one server."""
        size = self.gpus_per_server
        return all(group[0] // size == group[-1] // size for group in groups)


class _Builder:
    """The tasks and messages of an iteration, added device by device."""

    def __init__(self, rank: Rank, gpus_per_server: int, fold: int, overlap: bool) -> None:
        plan = rank.plan
        self._rank, self._plan, self._gpu = rank, plan, rank.gpu
        self._costs: Costs = work_out(rank, gpus_per_server)
        self._layout = _Layout(
            plan.pipeline, plan.data, plan.tensor // fold, plan.expert, gpus_per_server // fold
        )
        steps = 2 * plan.stages * plan.microbatches + plan.pipeline
        check_nodes(steps * self._layout.ranks // plan.pipeline, 0)
        if (passes := 2 * plan.stages * plan.microbatches) > MOST_PASSES:
            raise InputError(
                f"the graph would have {passes:,} passes (2 x {plan.stages:,} stages x "
                f"{plan.microbatches:,} microbatches); at most {MOST_PASSES:,} are allowed."
            )
        self._overlap = overlap
        self._tasks: list[Task] = []
        self._messages: list[Message] = []
        self._gradients: list[list[str]] = [[] for _ in range(plan.pipeline)]
        self._step_ns = [0.0] * plan.pipeline
        self._known_pairs: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}

    def graph(self) -> Graph:
        plan = self._plan
        stages, last = len(self._costs.stages), [""] * plan.pipeline
        for device in range(plan.pipeline):
            order = SCHEDULES[plan.schedule](device, plan.pipeline, stages, plan.microbatches)
            last[device] = self._add_device(device, list(order))
        self._tie_embeddings(last)
        for device in range(plan.pipeline):
            self._add_step(device)
        return Graph(self._layout.ranks, self._tasks, self._messages)

    def _add_device(self, device: int, order: Sequence[Pass]) -> str:
        """Add what a device does up to its gradients; return its last task."""
        before: list[str] = []
        names: list[str] = []
        for one in order:
            after = [*before, *self._received(one), *self._gathered(one, device, names)]
            cost = self._cost(one)
            time_ns = max(cost.time_ns, self._gathering_ns(one, device))
            time_ns += self._receiving_ns(one, device)
            self._tasks.append(Task(one.name, self._layout.of_device(device), time_ns, after))
            starts = [*after, *names[-1:]]
            names.append(one.name)
            ends = self._add_exchanges(one, cost, device, starts)
            ends = self._send(one, device, ends)
            before = [end for end in ends if end != one.name]
            last = one.microbatch == self._plan.microbatches - 1
            if not one.forward and ((last and self._overlap) or self._plan.zero > 1):
                self._reduce(device, [one.stage], one.name, f"{one.stage}.{one.microbatch}")
        if not self._overlap and self._plan.zero < 2:
            stages = range(device, len(self._costs.stages), self._plan.pipeline)
            self._reduce(device, stages, names[-1], str(device))
        return names[-1]

    def _cost(self, one: Pass) -> PassCost:
        stage = self._costs.stages[one.stage]
        return stage.forward if one.forward else stage.backward

    def _neighbour(self, one: Pass, step: int) -> int | None:
        """Return the stage after (1) or before (-1) a pass, if it is on another device."""
        stage = one.stage + (step if one.forward else -step)
        if not 0 <= stage < len(self._costs.stages) or self._plan.pipeline == 1:
            return None
        return stage

    def _received(self, one: Pass) -> list[str]:
        """Return the message that a pass waits for."""
        before = self._neighbour(one, -1)
        return [] if before is None else [f"send-{replace(one, stage=before).name}"]

    def _receiving_ns(self, one: Pass, device: int) -> int:
        """Return the time of receiving a pass's input from the same server."""
        before = self._neighbour(one, -1)
        if before is None:
            return 0
        pairs = self._pairs(before % self._plan.pipeline, device)
        if not self._layout.inside(pairs):
            return 0
        return round(self._gpu.send_ns(self._costs.activation_bytes))

    def _pairs(self, device: int, other: int) -> tuple[tuple[int, int], ...]:
        """Return each rank of a device with its counterpart on another."""
        if (device, other) not in self._known_pairs:
            self._known_pairs[device, other] = tuple(self._layout.pairs(device, other))
        return self._known_pairs[device, other]

    def _send(self, one: Pass, device: int, after: list[str]) -> list[str]:
        """Send what a pass made to the next device; return what the sender waits for."""
        following = self._neighbour(one, 1)
        if following is None:
            return after
        other = following % self._plan.pipeline
        channel = f"{'forward' if one.forward else 'backward'} {device}-{other}"
        pairs, size = self._pairs(device, other), self._costs.activation_bytes
        sent = self._message(f"send-{one.name}", pairs, size, after, channel, "send")
        return after if self._plan.schedule == "interleaved" else [sent]

    def _add_exchanges(
        self, one: Pass, cost: PassCost, device: int, starts: Sequence[str]
    ) -> list[str]:
        """Add what tensor and expert parallelism send between servers; return what ends a pass.

        `starts` is what the pass waits for, and so do all-to-alls that overlap it.
        """
        end = one.name
        if cost.tensor_bytes:
            groups = self._layout.tensor_groups(device)
            end = self._message(f"tensor-{one.name}", groups, cost.tensor_bytes, [end], "tensor")
        if not cost.exchange_bytes:
            return [end]
        groups, size = self._layout.expert_groups(device), cost.exchange_bytes
        overlaps = self._plan.overlaps_exchanges
        after = starts if overlaps else [end]
        sent = self._message(f"experts-{one.name}", groups, size, after, "tokens", "all-to-all")
        return [end, sent] if overlaps else [sent]

    def _message(
        self,
        name: str,
        groups: Sequence[Sequence[int]],
        size: int,
        after: Sequence[str],
        channel: str,
        kind: str = "all-reduce",
    ) -> str:
        self._messages.append(Message(name, kind, groups, size, channel, after))
        return name

    def _gathered(self, one: Pass, device: int, names: Sequence[str]) -> list[str]:
        """Return the messages with the parameters of a pass, of ZeRO-3."""
        if self._plan.zero < 3:
            return []
        return [
            self._message(f"{name}-{one.name}", groups, size, names[-2:-1], _PARAMETERS, _GATHER)
            for name, groups, size in self._shards("gather", [one.stage], device)
            if not self._layout.inside(groups)
        ]

    def _gathering_ns(self, one: Pass, device: int) -> int:
        """Return the time of gathering a pass's parameters within a server, of ZeRO-3."""
        if self._plan.zero < 3:
            return 0
        return round(
            sum(
                self._gpu.collective_ns + self._gpu.all_reduce_ns(len(groups[0]), size) / 2
                for _, groups, size in self._shards("gather", [one.stage], device)
                if self._layout.inside(groups)
            )
        )

    def _shards(
        self, name: str, stages: Sequence[int], device: int
    ) -> Iterator[tuple[str, list[range], int]]:
        """Yield what replicas of some stages exchange: a name, groups of ranks, and bytes.

        Experts have fewer replicas, and groups of their own.
        """
        found = [self._costs.stages[stage] for stage in stages]
        for label, groups, size in (
            (name, self._layout.replica_groups(device), sum(s.gradient_bytes for s in found)),
            (
                f"expert-{name}",
                self._layout.expert_replica_groups(device),
                sum(s.expert_gradient_bytes for s in found),
            ),
        ):
            if len(groups[0]) > 1 and size:
                yield label, groups, size

    def _reduce(self, device: int, stages: Sequence[int], after: str, label: str) -> None:
        """Send the gradients of some stages, or add their time within a server to the step."""
        kind = "reduce-scatter" if self._plan.zero else "all-reduce"
        for name, groups, size in self._shards(_GRADIENTS, stages, device):
            if self._layout.inside(groups):
                gpu = self._gpu
                share = 0.5 if self._plan.zero else 1.0
                self._step_ns[device] += gpu.collective_ns
                self._step_ns[device] += share * gpu.all_reduce_ns(len(groups[0]), size)
            else:
                full = f"{name}-{label}"
                self._gradients[device].append(
                    self._message(full, groups, size, [after], _GRADIENTS, kind)
                )

    def _tie_embeddings(self, last: Sequence[str]) -> None:
        """Add up the gradients of the embedding on the first and the last device."""
        size, devices = self._costs.embedding_bytes, (0, self._plan.pipeline - 1)
        if not size:
            return
        pairs = self._layout.pairs(*devices)
        if self._layout.inside(pairs):
            for device in devices:
                self._step_ns[device] += self._gpu.all_reduce_ns(2, size)
            return
        after = [last[device] for device in devices]
        name = f"embedding-{_GRADIENTS}"
        self._message(name, pairs, size, after, _GRADIENTS)
        for device in devices:
            self._gradients[device].append(name)

    def _add_step(self, device: int) -> None:
        """Add the optimizer's step, and of ZeRO the all-gather of its parameters."""
        plan, layout = self._plan, self._layout
        stages = range(device, plan.stages, plan.pipeline)
        held = [self._costs.stages[stage] for stage in stages]
        time_ns = self._step_ns[device] + optimizer_ns(self._rank, updated_parameters(plan, held))
        step = f"optimizer-{device}"
        gathers = plan.zero in (1, 2)
        for name, groups, size in self._shards("gather", stages, device) if gathers else ():
            if layout.inside(groups):
                time_ns += self._gpu.all_reduce_ns(len(groups[0]), size) / 2
            else:
                self._message(f"{name}-{device}", groups, size, [step], _PARAMETERS, _GATHER)
        after = self._gradients[device]
        self._tasks.append(Task(step, layout.of_device(device), max(1, round(time_ns)), after))
