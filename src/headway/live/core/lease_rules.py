"""How long grants may last before other jobs stop waiting for them."""

from __future__ import annotations

import msgspec

from headway.domain.limits import LONGEST_NS, whole

SECOND_NS = 10**9
LONGEST_LEASE_NS = LONGEST_NS // 2
MAX_LEASE_FACTOR = 1000


class LeaseRules(msgspec.Struct, frozen=True, kw_only=True):
    """A lease is `factor` times the predicted time, and at least `least_ns`.

    A job that has been stuck for `stuck_ns` is stopped; 0 is never.
    """

    least_ns: int = 10 * SECOND_NS
    factor: int = 10
    stuck_ns: int = 600 * SECOND_NS

    def __post_init__(self) -> None:
        whole(self.least_ns, "least_ns", 1, LONGEST_LEASE_NS)
        whole(self.factor, "factor", 1, MAX_LEASE_FACTOR)
        whole(self.stuck_ns, "stuck_ns", 0, LONGEST_LEASE_NS)

    def lease_ns(self, predicted_ns: int) -> int:
        """Return the length of a lease."""
        return min(max(self.least_ns, self.factor * predicted_ns), LONGEST_LEASE_NS)
