"""The cluster: servers with GPUs, in one rack or several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from headway.domain.errors import InputError, shown
from headway.domain.gpus import V100, GpuType, watts
from headway.domain.limits import MAX_BYTES, MAX_GPUS, scaled, whole
from headway.domain.profiles import Profile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_OVERSUBSCRIPTION = 1e6


def gigabytes(value: float, field: str) -> int:
    """Convert GPU memory in GB (1 GB = 1024 MB = 2**30 bytes) to bytes."""
    return scaled(value, 2**30, field, 2**20, MAX_BYTES, "GB")


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """Identical servers: how many, their GPUs and the type of those, and their rack if named."""

    servers: int
    gpus_per_server: int
    gpu: GpuType = V100
    rack: str = ""

    def __post_init__(self) -> None:
        whole(self.servers, "servers", 1, MAX_GPUS)
        whole(self.gpus_per_server, "gpus_per_server", 1, MAX_GPUS)
        if not isinstance(self.gpu, GpuType):
            raise InputError(f"must be a GpuType, not {shown(self.gpu)}.", field="gpu")
        if not isinstance(self.rack, str):
            raise InputError(f"must be a string, not {shown(self.rack)}.", field="rack")

    def __str__(self) -> str:
        return f"{self.servers}x{self.gpus_per_server} {self.gpu}"


@dataclass(frozen=True)
class Cluster:
    """Servers with GPUs; both are numbered from 0, GPUs server by server.

    The constructor makes a uniform cluster: N_s identical servers of N_g GPUs, with GPU g on server
    g // N_g. A GPU draws `gpu_busy_w` watts while it computes and `gpu_idle_w` otherwise, and jobs
    run at their own times. The defaults are those of a Tesla V100 (SXM2). `Cluster.of` makes a
    cluster of different groups of servers; `servers` is then their total, and each of the next four
    fields is 0 unless all groups agree on it.

    A rack holds `servers_per_rack` consecutive servers, or the groups that name it. With
    `oversubscription` r, the uplink of a rack of S servers has the capacity of S / r server links.
    """

    servers: int = 16
    gpus_per_server: int = 4
    gpu_memory_bytes: int = V100.memory_bytes
    gpu_idle_w: float = V100.idle_w
    gpu_busy_w: float = V100.busy_w
    servers_per_rack: int | None = None
    oversubscription: float = 1.0
    groups: tuple[ServerGroup, ...] = ()
    profiles: tuple[Profile, ...] = ()

    def __post_init__(self) -> None:
        if self.groups:
            self._check_groups()
        else:
            self._check_uniform()
        self._check_racks()

    def _check_uniform(self) -> None:
        whole(self.servers, "servers", 1, MAX_GPUS)
        whole(self.gpus_per_server, "gpus_per_server", 1, MAX_GPUS)
        whole(self.gpu_memory_bytes, "gpu_memory_bytes", 1, MAX_BYTES)
        whole(self.gpus, "servers x gpus_per_server", 1, MAX_GPUS)
        for name in ("gpu_idle_w", "gpu_busy_w"):
            object.__setattr__(self, name, watts(getattr(self, name), name))
        if self.gpu_idle_w > self.gpu_busy_w:
            raise InputError(
                f"must be at least gpu_idle_w, {self.gpu_idle_w:g}, not {self.gpu_busy_w:g}.",
                field="gpu_busy_w",
            )
        if self.profiles:
            raise InputError("need groups of servers that name their GPUs.", field="profiles")

    def _check_groups(self) -> None:
        for name, value in _shared(self.groups).items():
            if getattr(self, name) != value:
                raise InputError("follows from the groups.", field=name)
        whole(self.gpus, "GPUs of all groups", 1, MAX_GPUS)
        kinds: dict[str, float] = {}
        for group in self.groups:
            if kinds.setdefault(group.gpu.name, group.gpu.performance) != group.gpu.performance:
                raise InputError(
                    f"'{group.gpu.name}' has two performances; rename one of them.", field="gpu"
                )
        measured = set()
        for profile in self.profiles:
            if profile.key in measured:
                raise InputError(
                    f"'{profile.model}' on '{profile.gpu}' is duplicated at one batch size.",
                    field="profile",
                )
            measured.add(profile.key)

    def _check_racks(self) -> None:
        if len({bool(group.rack) for group in self.groups}) > 1:
            raise InputError("either every group names its rack, or none does.", field="rack")
        if self.servers_per_rack is not None:
            whole(self.servers_per_rack, "servers_per_rack", 1, MAX_GPUS)
            if any(group.rack for group in self.groups):
                raise InputError(
                    "the groups name their racks already; give only one of the two.",
                    field="servers_per_rack",
                )
        value = self.oversubscription
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"must be a number, not {shown(value)}.", field="oversubscription")
        if not 1 <= value <= MAX_OVERSUBSCRIPTION:
            raise InputError(
                f"must be from 1 (an uplink carries all that the servers of its rack can send) to "
                f"{MAX_OVERSUBSCRIPTION:,.0f}, not {shown(value)}.",
                field="oversubscription",
            )
        object.__setattr__(self, "oversubscription", float(value))

    @classmethod
    def of(
        cls,
        groups: Iterable[ServerGroup],
        *,
        servers_per_rack: int | None = None,
        oversubscription: float = 1.0,
        profiles: Iterable[Profile] = (),
    ) -> Cluster:
        """Make a cluster from groups of servers, numbered in this order.

        Args:
            groups: The groups. Racks that they name are numbered by their first group.
            servers_per_rack: Fills racks with this many consecutive servers instead; the last rack
                has the rest.
            oversubscription: Total capacity of a rack's server links over that of its uplink.
            profiles: Times of models measured on these types of GPU.
        """
        parts = tuple(groups)
        if not parts:
            raise InputError("there are no servers; a cluster needs at least one.", field="groups")
        shared = _shared(parts)
        return cls(
            servers=shared["servers"],
            gpus_per_server=shared["gpus_per_server"],
            gpu_memory_bytes=shared["gpu_memory_bytes"],
            gpu_idle_w=shared["gpu_idle_w"],
            gpu_busy_w=shared["gpu_busy_w"],
            servers_per_rack=servers_per_rack,
            oversubscription=oversubscription,
            groups=parts,
            profiles=tuple(profiles),
        )

    @classmethod
    def parse(cls, shape: str, gpu_memory_gb: float = 16, gpu: GpuType = V100) -> Cluster:
        """Make a uniform cluster from a shape such as `16x4`: 16 servers with 4 GPUs each."""
        match = re.fullmatch(r"([0-9]{1,9})[xX]([0-9]{1,9})", shape.strip())
        if match is None:
            raise InputError(
                f"must look like 16x4 (servers x GPUs per server) or be the path of a .toml file, "
                f"not {shown(shape)}.",
                field="cluster",
            )
        memory_bytes = gigabytes(gpu_memory_gb, "gpu_memory_gb")
        servers, gpus_per_server = int(match[1]), int(match[2])
        if not (servers and gpus_per_server):
            raise InputError(f"must have servers with GPUs, not {shown(shape)}.", field="cluster")
        return cls(servers, gpus_per_server, memory_bytes, gpu.idle_w, gpu.busy_w)

    @property
    def gpus(self) -> int:
        """The total number of GPUs."""
        if not self.groups:
            return self.servers * self.gpus_per_server
        return sum(group.servers * group.gpus_per_server for group in self.groups)

    @cached_property
    def all_groups(self) -> tuple[ServerGroup, ...]:
        """The groups of servers; a uniform cluster has one."""
        if self.groups:
            return self.groups
        gpu = GpuType(
            V100.name, self.gpu_memory_bytes, V100.performance, self.gpu_idle_w, self.gpu_busy_w
        )
        return (ServerGroup(self.servers, self.gpus_per_server, gpu),)

    @cached_property
    def gpu_types(self) -> tuple[GpuType, ...]:
        """The types of GPU, in the order in which servers first have them."""
        return tuple(dict.fromkeys(group.gpu for group in self.all_groups))

    @cached_property
    def server_gpus(self) -> tuple[int, ...]:
        """The number of GPUs of each server."""
        return _per_server(self.all_groups, [group.gpus_per_server for group in self.all_groups])

    @cached_property
    def server_type(self) -> tuple[int, ...]:
        """The type of each server's GPUs, as an index into `gpu_types`."""
        indices = {gpu: index for index, gpu in enumerate(self.gpu_types)}
        return _per_server(self.all_groups, [indices[group.gpu] for group in self.all_groups])

    @cached_property
    def server_rack(self) -> tuple[int, ...]:
        """The rack of each server, from 0."""
        if self.servers_per_rack is not None:
            return tuple(server // self.servers_per_rack for server in range(self.servers))
        names = dict.fromkeys(group.rack for group in self.all_groups)
        numbers = {name: number for number, name in enumerate(names)}
        return _per_server(self.all_groups, [numbers[group.rack] for group in self.all_groups])

    @cached_property
    def uplinks(self) -> tuple[float, ...]:
        """For each rack w = r / S: the cost of a byte on its uplink over that on a server link.

        Empty if all servers are in one rack.
        """
        sizes = Counter(self.server_rack)
        if len(sizes) == 1:
            return ()
        return tuple(self.oversubscription / sizes[rack] for rack in range(len(sizes)))

    @cached_property
    def server_of_gpu(self) -> NDArray[np.int64]:
        """The server of each GPU."""
        return _per_gpu(range(self.servers), self.server_gpus)

    @cached_property
    def type_of_gpu(self) -> NDArray[np.int64]:
        """The type of each GPU, as an index into `gpu_types`."""
        return _per_gpu(self.server_type, self.server_gpus)

    def servers_of(self, gpus: Iterable[int]) -> list[int]:
        """Return the servers of these GPUs, in ascending order."""
        return sorted({int(self.server_of_gpu[gpu]) for gpu in gpus})

    def __str__(self) -> str:
        if self.groups:
            text = ", ".join(map(str, self.groups))
        else:
            memory = self.gpu_memory_bytes / 2**30
            text = f"{self.servers}x{self.gpus_per_server} GPUs of {memory:g} GB"
        if self.uplinks:
            text += f", {len(self.uplinks)} racks, oversubscribed {self.oversubscription:g} to 1"
        return text


def _per_server(groups: Sequence[ServerGroup], values: Sequence[int]) -> tuple[int, ...]:
    """Return each group's value once for each of its servers."""
    parts = (repeat(value, group.servers) for group, value in zip(groups, values, strict=True))
    return tuple(chain.from_iterable(parts))


def _per_gpu(values: Sequence[int], counts: Sequence[int]) -> NDArray[np.int64]:
    """Return each server's value once for each of its GPUs, read only."""
    import numpy as np

    spread = np.repeat(np.array(values, np.int64), counts)
    spread.flags.writeable = False
    return spread


def _shared(groups: Sequence[ServerGroup]) -> dict[str, Any]:
    """Return the number of servers, and the values that all of them share, 0 where they differ."""
    values: dict[str, set[int | float]] = {
        "gpus_per_server": {group.gpus_per_server for group in groups},
        "gpu_memory_bytes": {group.gpu.memory_bytes for group in groups},
        "gpu_idle_w": {group.gpu.idle_w for group in groups},
        "gpu_busy_w": {group.gpu.busy_w for group in groups},
    }
    shared = {name: found.pop() if len(found) == 1 else 0 for name, found in values.items()}
    return {"servers": sum(group.servers for group in groups), **shared}
