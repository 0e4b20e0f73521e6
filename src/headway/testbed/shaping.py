"""Traffic shaping: htb limits data at both ends of a link, and lets control packets pass."""

from __future__ import annotations

from headway.testbed.description import MAX_RATE_MBIT, Testbed

DATA = "1:20"
"""The htb class of all other traffic, which the rate applies to."""

CONTROL = "1:10"
"""The htb class of packets marked DSCP CS6, as the gate's are. They bypass queue and rate."""

MIN_BURST_BYTES = 32 * 1024
BURST_S = 0.001
"""A token bucket of 1 ms at the rate, so that a late kernel timer does not lower the rate."""

MIN_QUEUE_BYTES = 128 * 1024
"""Two packets of the largest size: TCP hands over up to 64 kB at once, queued whole or dropped.
With less, links below 5 Mbit/s carried a third of their rate."""

QUEUE_S = 0.05
"""The length of the queue, in time at the rate. With 10 ms, flows of one second had shares as
unequal as 1 to 2.5; 100 ms is no better."""

CONGESTION = "bbr"
"""The TCP congestion control of every host. Three hosts that sent to a fourth for a second at
1 Gbit/s: with BBR the smallest share was 97 to 99% of the largest and the total 95.8% of the rate,
with CUBIC 52 to 88% and 92 to 93%. Four flows out of one host at 200 Mbit/s: 67 to 89% with BBR, 79
to 82% with CUBIC, the total 95.6% with both."""


def rate_bytes_per_s(testbed: Testbed, messages: int) -> int:
    """Return the rate of a link with k messages in flight: rate * k / (k + (k-1)*eta)."""
    k = max(messages, 1)
    return round(_full_bytes_per_s(testbed) * k / (k + (k - 1) * testbed.eta))


def limits(testbed: Testbed, device: str) -> list[str]:
    """Return the tc commands that limit a device to the rate."""
    queue_bytes = max(MIN_QUEUE_BYTES, round(_full_bytes_per_s(testbed) * QUEUE_S))
    control = f"{_class(testbed, MAX_RATE_MBIT * 125_000)} prio 0"
    return [
        f"qdisc add dev {device} root handle 1: htb default 20",
        f"class add dev {device} parent 1: classid {CONTROL} {control}",
        f"class add dev {device} parent 1: {data(testbed, 0)}",
        f"qdisc add dev {device} parent {DATA} bfifo limit {queue_bytes}",
        f"filter add dev {device} parent 1: protocol ip "
        f"u32 match ip tos 0xc0 0xfc flowid {CONTROL}",
    ]


def data(testbed: Testbed, messages: int) -> str:
    """Return the tc arguments of the data class with k messages in flight; only the rate varies."""
    return f"classid {DATA} {_class(testbed, rate_bytes_per_s(testbed, messages))} prio 1"


def _class(testbed: Testbed, bytes_per_s: int) -> str:
    burst = _burst_bytes(testbed)
    return f"htb rate {bytes_per_s}bps burst {burst} cburst {burst} quantum 20000"


def _burst_bytes(testbed: Testbed) -> int:
    return max(MIN_BURST_BYTES, round(_full_bytes_per_s(testbed) * BURST_S))


def _full_bytes_per_s(testbed: Testbed) -> int:
    return testbed.rate_mbit * 125_000
