"""How a link is held to its rate, and control traffic kept out of its queue: htb at both ends."""

from __future__ import annotations

from headway.testbed.description import FASTEST_MBIT, Testbed

DATA = "1:20"
"""The class of everything but control traffic: what the rate holds for."""

CONTROL = "1:10"
"""The class of packets marked DSCP CS6, as the gate's are. They pass at once and count nothing."""

LEAST_BURST_BYTES = 32 * 1024
BURST_S = 0.001
"""A bucket of 1 ms of the rate, so that the rate holds when the kernel's timer comes late."""

LEAST_QUEUE_BYTES = 128 * 1024
"""Two of the largest packets: TCP hands over up to 64 kB in one, and all of it is queued or none.
With less, links below 5 Mbit/s carried a third of their rate."""

QUEUE_S = 0.05
"""What a full queue holds, in time at the rate. With 10 ms, flows of one second had shares as
unequal as 1 to 2.5; 100 ms gains nothing more."""

CONGESTION = "bbr"
"""The TCP congestion control of every host. Three hosts that sent to a fourth for a second at
1 Gbit/s: with BBR the smallest share was 97 to 99% of the largest and the total 95.8% of the rate,
with CUBIC 52 to 88% and 92 to 93%. Four flows out of one host at 200 Mbit/s: 67 to 89% with BBR, 79
to 82% with CUBIC, the total 95.6% with both."""


def rate_bytes_per_s(testbed: Testbed, messages: int) -> int:
    """Return the rate of a link on which k messages run: rate * k / (k + (k-1)*eta)."""
    k = max(messages, 1)
    return round(_full_bytes_per_s(testbed) * k / (k + (k - 1) * testbed.eta))


def limits(testbed: Testbed, device: str) -> list[str]:
    """Return tc's lines that hold a device without limits to the rate."""
    queue_bytes = max(LEAST_QUEUE_BYTES, round(_full_bytes_per_s(testbed) * QUEUE_S))
    control = f"{_class(testbed, FASTEST_MBIT * 125_000)} prio 0"
    return [
        f"qdisc add dev {device} root handle 1: htb default 20",
        f"class add dev {device} parent 1: classid {CONTROL} {control}",
        f"class add dev {device} parent 1: {data(testbed, 0)}",
        f"qdisc add dev {device} parent {DATA} bfifo limit {queue_bytes}",
        f"filter add dev {device} parent 1: protocol ip "
        f"u32 match ip tos 0xc0 0xfc flowid {CONTROL}",
    ]


def data(testbed: Testbed, messages: int) -> str:
    """Return tc's words for the data of a link on which k messages run; only the rate changes."""
    return f"classid {DATA} {_class(testbed, rate_bytes_per_s(testbed, messages))} prio 1"


def _class(testbed: Testbed, bytes_per_s: int) -> str:
    burst = _burst_bytes(testbed)
    return f"htb rate {bytes_per_s}bps burst {burst} cburst {burst} quantum 20000"


def _burst_bytes(testbed: Testbed) -> int:
    return max(LEAST_BURST_BYTES, round(_full_bytes_per_s(testbed) * BURST_S))


def _full_bytes_per_s(testbed: Testbed) -> int:
    return testbed.rate_mbit * 125_000
