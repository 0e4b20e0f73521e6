"""Which ranks of a pipeline are where: devices, replicas of them, and ranks that share layers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankLayout:
    """Ranks in order: device by device, in each replica by replica, in each the `split` ranks."""

    devices: int
    replicas: int
    split: int
    """Ranks of tensor parallelism."""

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.devices * self.replicas * self.split

    def of_device(self, device: int) -> range:
        """Return the ranks of a device, in all replicas."""
        size = self.replicas * self.split
        return range(device * size, (device + 1) * size)

    def pairs(self, device: int, other: int) -> list[tuple[int, int]]:
        """Return each rank of a device with its counterpart on another."""
        return list(zip(self.of_device(device), self.of_device(other), strict=True))

    def tensor_groups(self, device: int) -> list[range]:
        """Return the groups of ranks that share a layer."""
        ranks = self.of_device(device)
        return [ranks[at : at + self.split] for at in range(0, len(ranks), self.split)]

    def replica_groups(self, device: int) -> list[range]:
        """Return the groups of ranks that have the same parameters."""
        ranks = self.of_device(device)
        return [ranks[part :: self.split] for part in range(self.split)]
