"""Tiers of switches above the servers: which server is under which switch of each tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headway.domain.errors import InputError, shown
from headway.domain.limits import MAX_GPUS, whole

MAX_OVERSUBSCRIPTION = 1e6
MAX_TIERS = 8
"""Tiers of a cluster; a rank of a message may use an uplink of each."""


def oversubscription(value: float) -> float:
    """Return an oversubscription as a float, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"must be a number, not {shown(value)}.", field="oversubscription")
    if not 1 <= value <= MAX_OVERSUBSCRIPTION:
        raise InputError(
            f"must be from 1 (an uplink carries all that comes from below it) to "
            f"{MAX_OVERSUBSCRIPTION:,.0f}, not {shown(value)}.",
            field="oversubscription",
        )
    return float(value)


@dataclass(frozen=True, slots=True)
class Tier:
    """A level of switches, each with one uplink.

    With `oversubscription` r, an uplink has the capacity of everything that comes from below its
    switch, divided by r. There are `servers_per_switch` consecutive servers under each switch, or
    the groups of servers name theirs.
    """

    name: str
    oversubscription: float = 1.0
    servers_per_switch: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InputError(f"must be a non-empty string, not {shown(self.name)}.", field="name")
        object.__setattr__(self, "oversubscription", oversubscription(self.oversubscription))
        if self.servers_per_switch is not None:
            whole(self.servers_per_switch, "servers_per_switch", 1, MAX_GPUS)


def check_tier(tier: Tier, below: Sequence[Tier], named: bool) -> None:
    """Refuse a tier that does not go with those below it, or with groups that name switches."""
    if len(below) == MAX_TIERS:
        raise InputError(f"there can be at most {MAX_TIERS} tiers.")
    if tier.name in [other.name for other in below]:
        raise InputError(f"{shown(tier.name)} is duplicated.", field="name")
    if named and tier.servers_per_switch is not None:
        raise InputError(
            "the groups name their switches already; give only one of the two.",
            field="servers_per_switch",
        )
    if not named and tier.servers_per_switch is None:
        raise InputError(
            "needs 'servers_per_switch', unless every group of servers names its 'switches'."
        )
    size, inner = tier.servers_per_switch, below[-1].servers_per_switch if below else None
    if size is not None and inner is not None and size % inner != 0:
        raise InputError(
            f"must be a multiple of that of the tier below, {inner:,}, not {size:,}.",
            field="servers_per_switch",
        )


def check_switches(switches: Sequence[str], tiers: int, above: dict[tuple[int, str], str]) -> None:
    """Refuse a group's switches that do not go with the tiers, or with those in `above`.

    `above` has what groups before it have said: the switch over each switch of a tier.
    """
    if switches and tiers == 0:
        raise InputError("needs tiers, which describe the switches.", field="switches")
    if len(switches) != tiers:
        raise InputError(
            f"must name a switch of each tier, lowest first: {tiers:,}, not {len(switches):,}.",
            field="switches",
        )
    for tier, (name, over) in enumerate(pairwise(switches)):
        if above.setdefault((tier, name), over) != over:
            raise InputError(
                f"{shown(name)} is under {shown(above[tier, name])} and under {shown(over)}; "
                "give different switches different names.",
                field="switches",
            )


def numbered(names: Sequence[str]) -> Mapping[str, int]:
    """Return a number for each name, from 0 in the order in which they first occur."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
