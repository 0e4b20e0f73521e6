"""The SYSTEM record: the clock, the seed and a network, as compiled code sees them."""

from __future__ import annotations

from headway.domain.limits import MAX_BYTES
from headway.domain.records import NOT_RESERVED, SYSTEM, Records, zeros
from headway.network.contention import NetworkModel
from headway.network.laws.registry import index_of


def make_system(network: NetworkModel, seed: int, bucket_bytes: int = MAX_BYTES) -> Records:
    """Return the record of a network at time 0."""
    system = zeros(1, SYSTEM)
    system.seed[:] = seed
    system.a_ns[:] = network.a_ns
    system.b_ns_per_byte[:] = network.b_ns_per_byte
    system.eta_ns_per_byte[:] = network.eta_ns_per_byte
    system.law[:] = index_of(network.law)
    system.messages_meet[:] = network.messages_meet
    system.ring_size[:] = network.ring_size or 0
    system.bucket_bytes[:] = bucket_bytes
    system.reserved_bytes[:] = NOT_RESERVED
    return system
