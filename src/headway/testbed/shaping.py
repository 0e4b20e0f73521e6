"""How a link is held to its rate: a token bucket (tbf) at each of its ends."""

from __future__ import annotations

from headway.testbed.description import Testbed

LEAST_BURST_BYTES = 32 * 1024
BURST_S = 0.001
"""A bucket of 1 ms of the rate. A smaller one makes the kernel cut every large packet into
frames before it passes: at 1 Gbit/s, 32 kB cost ten times the CPU of 128 kB."""

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


def tbf(testbed: Testbed, messages: int = 0) -> str:
    """Return tc's words for a link on which k messages run; only the rate depends on k."""
    full = _full_bytes_per_s(testbed)
    burst = max(LEAST_BURST_BYTES, round(full * BURST_S))
    limit = burst + round(full * QUEUE_S)
    return f"root tbf rate {rate_bytes_per_s(testbed, messages)}bps burst {burst} limit {limit}"


def _full_bytes_per_s(testbed: Testbed) -> int:
    return testbed.rate_mbit * 125_000
