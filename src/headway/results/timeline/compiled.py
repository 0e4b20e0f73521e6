"""The compiled loop over changes of counters; it must not allocate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.jit import View

Integers = NDArray[np.int64]


class Steps(View):
    """All counters at every instant at which one changes, in the order of time."""

    time_ns: Integers
    queued: Integers
    running: Integers
    waiting: Integers
    peak: Integers
    """The messages on the server that has the most."""


def sweep(
    time_ns: Integers,
    counter: Integers,
    change: Integers,
    values: Integers,
    servers_with: Integers,
    steps: Steps,
) -> int:
    """Apply changes in the order of time and fill in the steps; return the number of steps.

    `values` holds the cluster's three counters and then one per server; `servers_with[k]` is the
    number of servers with k messages.
    """
    count, peak = 0, 0
    for row in range(len(time_ns)):
        changed = counter[row]
        value = values[changed] + change[row]
        if changed >= 3:
            servers_with[values[changed]] -= 1
            servers_with[value] += 1
            peak = max(peak, value)
            while peak > 0 and servers_with[peak] == 0:
                peak -= 1
        values[changed] = value
        if row + 1 < len(time_ns) and time_ns[row + 1] == time_ns[row]:
            continue
        steps.time_ns[count] = time_ns[row]
        steps.queued[count] = values[0]
        steps.running[count] = values[1]
        steps.waiting[count] = values[2]
        steps.peak[count] = peak
        count += 1
    return count
