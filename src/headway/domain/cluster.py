"""The cluster: servers with GPUs and rails, under tiers of switches."""

from __future__ import annotations

import math
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
from headway.domain.tiers import (
    Tier,
    check_switches,
    check_tier,
    numbered,
    oversubscription,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headway.domain.fabric import Fabric


def gigabytes(value: float, field: str) -> int:
    """Convert GPU memory in GB (1 GB = 1024 MB = 2**30 bytes) to bytes."""
    return scaled(value, 2**30, field, 2**20, MAX_BYTES, "GB")


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """Identical servers: how many, their GPUs and the type of those, and their rack if named.

    A server has `rails` links to the network, which its GPUs share in equal blocks. Where there are
    tiers, `switches` may name the switch of each that the servers are under, lowest first.
    """

    servers: int
    gpus_per_server: int
    gpu: GpuType = V100
    rack: str = ""
    rails: int = 1
    switches: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whole(self.servers, "servers", 1, MAX_GPUS)
        whole(self.gpus_per_server, "gpus_per_server", 1, MAX_GPUS)
        if not isinstance(self.gpu, GpuType):
            raise InputError(f"must be a GpuType, not {shown(self.gpu)}.", field="gpu")
        if not isinstance(self.rack, str):
            raise InputError(f"must be a string, not {shown(self.rack)}.", field="rack")
        _check_rails(self.rails, self.gpus_per_server)
        for name in self.switches:
            if not isinstance(name, str) or not name.strip():
                raise InputError(f"must be non-empty strings, not {shown(name)}.", field="switches")
        object.__setattr__(self, "switches", tuple(self.switches))

    def __str__(self) -> str:
        rails = f" with {self.rails} rails" if self.rails > 1 else ""
        return f"{self.servers}x{self.gpus_per_server} {self.gpu}{rails}"


@dataclass(frozen=True)
class Cluster:
    """Servers with GPUs; both are numbered from 0, GPUs server by server.

    The constructor makes a uniform cluster: N_s identical servers of N_g GPUs, with GPU g on server
    g // N_g. A GPU draws `gpu_busy_w` watts while it computes and `gpu_idle_w` otherwise, and jobs
    run at their own times. The defaults are those of a Tesla V100 (SXM2). `Cluster.of` makes a
    cluster of different groups of servers; `servers` is then their total, and each of the next four
    fields, and `rails`, is 0 unless all groups agree on it.

    A rack holds `servers_per_rack` consecutive servers, or the groups that name it. With
    `oversubscription` r, the uplink of a rack of S servers has the capacity of S / r server links.
    Racks are one tier of switches; `tiers`, lowest first, describes any number of them instead. A
    server has `rails` links, which its GPUs share in equal blocks.

    On an `exclusive` cluster every job has its GPUs to itself: a GPU that holds a job has no room
    for another.
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
    rails: int = 1
    tiers: tuple[Tier, ...] = ()
    exclusive: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.exclusive, bool):
            raise InputError(
                f"must be true or false, not {shown(self.exclusive)}.", field="exclusive"
            )
        if self.groups:
            self._check_groups()
        else:
            self._check_uniform()
        self._check_racks()
        self._check_tiers()

    def _check_uniform(self) -> None:
        whole(self.servers, "servers", 1, MAX_GPUS)
        whole(self.gpus_per_server, "gpus_per_server", 1, MAX_GPUS)
        whole(self.gpu_memory_bytes, "gpu_memory_bytes", 1, MAX_BYTES)
        whole(self.gpus, "servers x gpus_per_server", 1, MAX_GPUS)
        _check_rails(self.rails, self.gpus_per_server)
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
        object.__setattr__(self, "oversubscription", oversubscription(self.oversubscription))

    def _check_tiers(self) -> None:
        object.__setattr__(self, "tiers", tuple(self.tiers))
        in_racks = self.servers_per_rack is not None or any(group.rack for group in self.groups)
        if self.tiers and (in_racks or self.oversubscription != 1):
            raise InputError("racks are a tier; give only one of the two.", field="tiers")
        named = any(group.switches for group in self.groups)
        for index, tier in enumerate(self.tiers):
            check_tier(tier, self.tiers[:index], named)
        above: dict[tuple[int, str], str] = {}
        for group in self.groups:
            check_switches(group.switches, len(self.tiers) if named else 0, above)

    @classmethod
    def of(
        cls,
        groups: Iterable[ServerGroup],
        *,
        servers_per_rack: int | None = None,
        oversubscription: float = 1.0,
        profiles: Iterable[Profile] = (),
        tiers: Iterable[Tier] = (),
        exclusive: bool = False,
    ) -> Cluster:
        """Make a cluster from groups of servers, numbered in this order.

        Args:
            groups: The groups. Racks that they name are numbered by their first group.
            servers_per_rack: Fills racks with this many consecutive servers instead; the last rack
                has the rest.
            oversubscription: Total capacity of a rack's server links over that of its uplink.
            profiles: Times of models measured on these types of GPU.
            tiers: Tiers of switches instead of racks, lowest first.
            exclusive: Whether every job has its GPUs to itself.
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
            rails=shared["rails"],
            tiers=tuple(tiers),
            exclusive=exclusive,
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
        return (ServerGroup(self.servers, self.gpus_per_server, gpu, rails=self.rails),)

    @cached_property
    def all_tiers(self) -> tuple[Tier, ...]:
        """The tiers of switches, lowest first; racks are one."""
        if self.tiers:
            return self.tiers
        if self.servers_per_rack is None and not self.all_groups[0].rack:
            return ()
        return (Tier("rack", self.oversubscription, self.servers_per_rack),)

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
    def server_rails(self) -> tuple[int, ...]:
        """The number of rails of each server."""
        return _per_server(self.all_groups, [group.rails for group in self.all_groups])

    @cached_property
    def server_switches(self) -> tuple[tuple[int, ...], ...]:
        """For each tier, the switch of each server, from 0."""
        switches = []
        for index, tier in enumerate(self.all_tiers):
            size = tier.servers_per_switch
            if size is not None:
                switches.append(tuple(server // size for server in range(self.servers)))
                continue
            names = [(group.switches or (group.rack,))[index] for group in self.all_groups]
            numbers = numbered(names)
            switches.append(_per_server(self.all_groups, [numbers[name] for name in names]))
        return tuple(switches)

    @cached_property
    def switch_names(self) -> tuple[tuple[str, ...], ...]:
        """For each tier, the names of its switches, or their numbers."""
        return tuple(
            tuple(numbered([(group.switches or (group.rack,))[index] for group in self.all_groups]))
            if tier.servers_per_switch is None
            else tuple(map(str, range(self.server_switches[index][-1] + 1)))
            for index, tier in enumerate(self.all_tiers)
        )

    @cached_property
    def server_rack(self) -> tuple[int, ...]:
        """The rack of each server, from 0: its switch of the lowest tier."""
        return self.server_switches[0] if self.all_tiers else (0,) * self.servers

    @cached_property
    def uplinks(self) -> tuple[tuple[float, ...], ...]:
        """For each tier of several switches, the cost of a byte on their uplinks over a rail's.

        That is w = r / S for S rails below a switch, with the product r of the oversubscriptions up
        to its tier.
        """
        return tuple(tuple(factor / rails for rails in below) for factor, below in self._uplinks)

    @cached_property
    def uplink_carries(self) -> tuple[tuple[int, ...], ...]:
        """For each tier of several switches, how many messages an uplink has room for: S / r."""
        return tuple(
            tuple(max(1, math.floor(rails / factor)) for rails in below)
            for factor, below in self._uplinks
        )

    @cached_property
    def _uplinks(self) -> list[tuple[float, list[int]]]:
        """For each tier of several switches, r and the number of rails below each switch."""
        factor, found = 1.0, []
        for tier, switches in zip(self.all_tiers, self.server_switches, strict=True):
            rails: Counter[int] = Counter()
            for switch, count in zip(switches, self.server_rails, strict=True):
                rails[switch] += count
            if len(rails) == 1:
                break
            factor *= tier.oversubscription
            found.append((factor, [rails[switch] for switch in range(len(rails))]))
        return found

    @cached_property
    def fabric(self) -> Fabric:
        """The links of the cluster."""
        from headway.domain.fabric import Fabric

        return Fabric(self)

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
            if self.rails > 1:
                text += f" with {self.rails} rails"
        for tier, uplinks in zip(self.all_tiers, self.uplinks, strict=False):
            switches = "racks" if tier.name == "rack" else f"{tier.name} switches"
            text += f", {len(uplinks):,} {switches}, oversubscribed {tier.oversubscription:g} to 1"
        return text


def _check_rails(rails: int, gpus_per_server: int) -> None:
    whole(rails, "rails", 1, MAX_GPUS)
    if rails > gpus_per_server:
        raise InputError(
            f"must be at most the number of GPUs of a server, {gpus_per_server}, not {rails}.",
            field="rails",
        )


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
        "rails": {group.rails for group in groups},
    }
    shared = {name: found.pop() if len(found) == 1 else 0 for name, found in values.items()}
    return {"servers": sum(group.servers for group in groups), **shared}
