"""The nodes of the local executor: this machine, or the hosts of a testbed on it."""

from __future__ import annotations

import os

from headway import testbed
from headway.domain.errors import InputError
from headway.domain.limits import MAX_GPUS, whole
from headway.live.executors.node_tools import gpu_memories_bytes
from headway.live.executors.rank_plans import LaunchNode


def this_machine(
    gpus: int | None = None, memory_bytes: int | None = None, name: str = "localhost"
) -> LaunchNode:
    """Return this machine: its GPUs if it has any, else one slot per core.

    `memory_bytes` is the memory of each; by default a GPU's own, or a slot's share of the machine.
    """
    found = gpu_memories_bytes()
    available = len(found) or len(os.sched_getaffinity(0))
    # There can be more slots than cores, but not more than GPUs.
    slots = available if gpus is None else whole(gpus, "gpus", 1, len(found) or MAX_GPUS)
    # Ranks on one machine meet on loopback, whatever the machine's host name resolves to.
    environment = {"GLOO_SOCKET_IFNAME": "lo"}
    if found:
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the order of nvidia-smi
    return LaunchNode(
        name,
        slots,
        memory_bytes or min(found, default=_machine_bytes() // slots),
        environment=environment,
        cuda=bool(found),
    )


def testbed_nodes(name: str, gpus: int | None, memory_bytes: int | None) -> list[LaunchNode]:
    """Return the hosts of a testbed, each with this number of slots and memory per slot.

    By default the hosts share the cores and the memory of the machine.
    """
    found = testbed.find(name)
    if found is None:
        raise InputError(
            f"there is no testbed '{name}'; create it with `headway testbed up --name {name}`.",
            field="testbed",
        )
    slots = gpus or max(1, len(os.sched_getaffinity(0)) // found.hosts)
    return [
        LaunchNode(
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
