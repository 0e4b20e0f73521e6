"""Sharded data parallelism: each rank keeps a share of the parameters and gathers the rest.

Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.domain.graph import Graph, Message, Task, check_nodes
from headway.domain.layers import Layer
from headway.domain.limits import MAX_GPUS, whole
from headway.graphs.layers import some

MOST_UNITS = 2**20


def fsdp(
    units: Iterable[Layer],
    ranks: int,
    *,
    prefetch: int = 1,
    reshard: bool = True,
    optimizer_ns: int = 0,
) -> Graph:
    """Return the graph of fully sharded data parallelism (FSDP, ZeRO).

    Each unit's parameters are gathered before its forward pass and, if they were freed, again
    before its backward pass; its gradients are reduced and scattered after its backward pass. All
    messages are on one channel, in the order in which PyTorch issues them.

    Args:
        units: What is gathered at a time, in the order of the forward pass: often one block of
            layers each.
        ranks: The number of GPUs.
        prefetch: How many units ahead parameters are gathered: with 0 computing waits for each
            all-gather, with 1 the next unit's overlaps with this unit's computing.
        reshard: Whether parameters are freed after the forward pass.
        optimizer_ns: The time of the optimizer's step, after all gradients; 0 for none.
    """
    model = some(units, "units")
    everyone = range(whole(ranks, "ranks", 1, MAX_GPUS))
    whole(prefetch, "prefetch", 0, MOST_UNITS)
    check_nodes((2 * len(model) + 1) * ranks, (3 if reshard else 2) * len(model) * ranks)
    last = len(model) - 1
    # What computes, in order: the unit of each forward and backward pass.
    forward = [(f"forward-{unit + 1}", unit) for unit in range(len(model))]
    backward = [(f"backward-{unit + 1}", unit) for unit in reversed(range(len(model)))]
    gathered: dict[str, str] = {}
    messages: list[Message] = []

    def gather(consumer: str, after: list[str]) -> None:
        unit = int(consumer.partition("-")[2]) - 1
        size = model[unit].parameter_bytes
        if ranks > 1 and size:
            gathered[consumer] = f"gather-{consumer}"
            messages.append(
                Message(gathered[consumer], "all-gather", [everyone], size, after=after)
            )

    for place, (name, _) in enumerate(forward):
        gather(name, [forward[place - 1 - prefetch][0]] if place > prefetch else [])
    # The backward pass begins with what it prefetches, then each pass is followed by its
    # gradients and by the all-gather that it makes room for.
    if reshard:
        for name, _ in backward[: prefetch + 1]:
            gather(name, [forward[last][0]])
    for place, (name, unit) in enumerate(backward):
        size = model[unit].parameter_bytes
        if ranks > 1 and size:
            scatter = f"scatter-{unit + 1}"
            messages.append(Message(scatter, "reduce-scatter", [everyone], size, after=[name]))
        if reshard and place + 1 + prefetch <= last:
            gather(backward[place + 1 + prefetch][0], [name])

    tasks = []
    for name, unit in (*forward, *backward):
        is_forward = name.startswith("forward")
        time_ns = model[unit].forward_ns if is_forward else model[unit].backward_ns
        tasks.append(Task(name, everyone, time_ns, [gathered[name]] if name in gathered else []))
    if optimizer_ns:
        after = [message.name for message in messages if message.kind == "reduce-scatter"]
        tasks.append(Task("optimizer", everyone, optimizer_ns, after))
    return Graph(ranks, tasks, messages)
