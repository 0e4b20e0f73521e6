"""Nodes of this machine: the machine itself, or the hosts of a testbed on it."""

from __future__ import annotations

import os

import msgspec

from headway import testbed
from headway.domain.errors import InputError
from headway.domain.limits import MOST_GPUS, whole
from headway.live.executors import Node
from headway.live.executors.on_node import gpu_memories_bytes


class LocalNode(msgspec.Struct, frozen=True):
    """A node as whoever starts processes on it sees it.

    `prefix` stands before every command, such as one that enters a network namespace. With `cuda`
    slots are GPUs of these numbers.
    """

    name: str
    gpus: int
    memory_bytes: int
    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    cuda: bool = False

    def node(self) -> Node:
        """Return what the scheduler knows of it."""
        return Node(self.name, self.address, self.gpus, self.memory_bytes)


def this_machine(
    gpus: int | None = None, memory_bytes: int | None = None, name: str = "localhost"
) -> LocalNode:
    """Return this machine: its GPUs if it has any, else one slot for each core.

    `memory_bytes` is that of each; unless given, what a GPU has, or a slot's share of the machine.
    """
    found = gpu_memories_bytes()
    there = len(found) or len(os.sched_getaffinity(0))
    # Only slots can be more than there are cores: nobody can have a GPU that is not there.
    slots = there if gpus is None else whole(gpus, "gpus", 1, len(found) or MOST_GPUS)
    # Jobs of one machine meet on its loopback interface, whatever the machine's name stands for.
    environment = {"GLOO_SOCKET_IFNAME": "lo"}
    if found:
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # nvidia-smi's.
    return LocalNode(
        name,
        slots,
        memory_bytes or min(found, default=_machine_bytes() // slots),
        environment=environment,
        cuda=bool(found),
    )


def testbed_nodes(name: str, gpus: int | None, memory_bytes: int | None) -> list[LocalNode]:
    """Return the hosts of a testbed, with so many slots of this memory each.

    Where None is given, the hosts share the cores and the memory of the machine.
    """
    found = testbed.find(name)
    if found is None:
        raise InputError(
            f"there is no testbed '{name}'; `headway testbed up --name {name}` makes one.",
            field="testbed",
        )
    slots = gpus or max(1, len(os.sched_getaffinity(0)) // found.hosts)
    return [
        LocalNode(
            f"host{host}",
            slots,
            memory_bytes or _machine_bytes() // (found.hosts * slots),
            found.address(host),
            tuple(testbed.command(found, host, [])),
            found.environment(host),
        )
        for host in found.numbers
    ]


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
