"""What each rank of an attempt is started with: its command, torchrun's variables, its GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headway.live.core.events import JobSpec, Slot
from headway.live.executors import Attempt, ExecutorNode
from headway.live.executors.attempt_folders import folder_name


class LaunchNode(msgspec.Struct, frozen=True):
    """A node and how to start processes on it.

    `prefix` comes before every command, such as one that enters a network namespace. With `cuda`,
    slots are GPUs, numbered as nvidia-smi does.
    """

    name: str
    gpus: int
    memory_bytes: int
    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    cuda: bool = False

    def executor_node(self) -> ExecutorNode:
        """Return what the scheduler needs to know about it."""
        return ExecutorNode(self.name, self.address, self.gpus, self.memory_bytes)


def rank_plans(
    attempt: Attempt,
    spec: JobSpec,
    slots: Sequence[Slot],
    nodes: Mapping[str, LaunchNode],
    environment: Mapping[str, str],
    port: int,
) -> list[dict[str, Any]]:
    """Return what to start on each slot, in the order of ranks; they meet at rank 0's node.

    A rank sees all GPUs of its job on the node, in the order of local ranks: as under torchrun, it
    uses GPU number LOCAL_RANK.
    """
    names = list(dict.fromkeys(slot.node for slot in slots))
    indices = {name: [slot.index for slot in slots if slot.node == name] for name in names}
    plans = []
    for rank, slot in enumerate(slots):
        node, local = nodes[slot.node], indices[slot.node]
        variables = {
            **node.environment,
            **spec.environment,
            **environment,
            "RANK": rank,
            "WORLD_SIZE": len(slots),
            "LOCAL_RANK": local.index(slot.index),
            "LOCAL_WORLD_SIZE": len(local),
            "GROUP_RANK": names.index(slot.node),
            "GROUP_WORLD_SIZE": len(names),
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": len(slots),
            "MASTER_ADDR": nodes[names[0]].address,
            "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": folder_name(attempt),
        }
        if node.cuda:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, local))
        plans.append(
            {
                "rank": rank,
                "command": [*node.prefix, *spec.command],
                "folder": spec.folder,
                "environment": {name: str(value) for name, value in variables.items()},
            }
        )
    return plans
