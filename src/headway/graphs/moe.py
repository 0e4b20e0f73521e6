"""Expert parallelism: tokens go to the ranks that have their experts, and come back.

S. Rajbhandari et al., "DeepSpeed-MoE", ICML 2022.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task, check_nodes
from headway.domain.layers import Layer
from headway.domain.limits import MAX_GPUS, whole
from headway.graphs.layers import MoeLayer, some


def moe(
    layers: Iterable[MoeLayer | Layer],
    ranks: int,
    *,
    expert_parallel: int | None = None,
    optimizer_ns: int = 0,
) -> Graph:
    """Return the graph of a mixture of experts: an all-to-all before and after the experts.

    Gradients overlap with the backward pass: those of the dense part, which every rank has, among
    all ranks; those of experts among the ranks that have the same ones.

    Args:
        layers: The model's layers, in the order of the forward pass; a `Layer` has no experts.
        ranks: The number of GPUs.
        expert_parallel: Over how many ranks the experts of a layer are spread, next to each other;
            it divides `ranks`. By default over all.
        optimizer_ns: The time of the optimizer's step, after all gradients; 0 for none.
    """
    model = some(layers, "layers")
    everyone = range(whole(ranks, "ranks", 1, MAX_GPUS))
    spread = (
        ranks if expert_parallel is None else whole(expert_parallel, "expert_parallel", 1, ranks)
    )
    if ranks % spread:
        raise InputError(
            f"must divide the {ranks:,} ranks; {spread:,} does not.", field="expert_parallel"
        )
    check_nodes((4 * len(model) + 1) * ranks, 6 * len(model) * ranks)
    exchanging = [everyone[at : at + spread] for at in range(0, ranks, spread)]
    replicas = [everyone[part::spread] for part in range(spread)]
    tasks: list[Task] = []
    messages: list[Message] = []
    gradients: list[str] = []
    after: list[str] = []

    def compute(name: str, time_ns: int) -> None:
        tasks.append(Task(name, everyone, time_ns, after))
        after.clear()

    def exchange(name: str, size: int) -> None:
        if spread > 1:
            before = [tasks[-1].name]
            messages.append(Message(name, "all-to-all", exchanging, size, "tokens", before))
            after.append(name)

    def reduce(name: str, groups: list[range], size: int) -> None:
        if size and len(groups[0]) > 1:
            messages.append(
                Message(name, "all-reduce", groups, size, "gradients", [tasks[-1].name])
            )
            gradients.append(name)

    for number, layer in enumerate(model, start=1):
        compute(f"forward-{number}", layer.forward_ns)
        if isinstance(layer, Layer):
            continue
        exchange(f"dispatch-{number}", layer.token_bytes)
        compute(f"experts-forward-{number}", layer.expert_forward_ns)
        exchange(f"combine-{number}", layer.token_bytes)
    for number, layer in reversed(list(enumerate(model, start=1))):
        if isinstance(layer, MoeLayer):
            exchange(f"combine-backward-{number}", layer.token_bytes)
            compute(f"experts-backward-{number}", layer.expert_backward_ns)
            reduce(f"expert-gradients-{number}", replicas, layer.expert_parameter_bytes)
            exchange(f"dispatch-backward-{number}", layer.token_bytes)
        compute(f"backward-{number}", layer.backward_ns)
        reduce(f"gradients-{number}", [everyone], layer.parameter_bytes)
    if optimizer_ns:
        tasks.append(Task("optimizer", everyone, optimizer_ns, gradients))
    return Graph(ranks, tasks, messages)
