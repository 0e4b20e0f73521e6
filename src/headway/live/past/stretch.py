"""A stretch of a live cluster's past as the page reads it, of bounded size.

Blocks have the layout of `headway.web.columns`; docs/reference/page-data.md lists their content.
Times are in ns on the clock of the running scheduler, as if it had never stood still.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.live.past.activity import Activity, Integers, PastAttempt
from headway.web.columns import pack, spread, steps
from headway.web.periods import Periods

PERIODS = 64
"""Equal periods into which a stretch is divided."""
MAX_MESSAGES = 20_000
"""A stretch with more messages comes with means instead."""
MAX_ATTEMPTS = 4_000
"""The latest attempts are described."""


def stretch(activity: Activity, ahead_ns: int, from_ns: int, to_ns: int, until_ns: int) -> bytes:
    """Return what happened between two times, as far as it is known: until `until_ns`."""
    to_ns = max(from_ns + 1, to_ns)
    begin_ns, end_ns = from_ns + ahead_ns, to_ns + ahead_ns
    shown = _attempts(activity, begin_ns, end_ns)
    row_of = np.full(len(activity.attempts), -1, np.int64)
    row_of[[attempt.index for attempt in shown]] = np.arange(len(shown))
    messages = activity.messages_between(begin_ns, end_ns)
    owner = row_of[messages.attempt]
    known = np.flatnonzero(owner >= 0)
    order = known[np.lexsort((messages.ready_ns[known], owner[known]))]
    owner = owner[order]
    ready, start, end = (
        column[order] - ahead_ns
        for column in (messages.ready_ns, messages.start_ns, messages.end_ns)
    )
    exact = len(order) <= MAX_MESSAGES
    values = {
        "from": from_ns,
        "to": to_ns,
        "until": min(until_ns, to_ns),
        "exact": exact,
        "periods": PERIODS,
        "unknown": [
            [max(from_ns, first_ns - ahead_ns), min(to_ns, last_ns - ahead_ns)]
            for first_ns, last_ns in activity.unknown
            if first_ns < end_ns and last_ns > begin_ns
        ],
        "attempt_of": [attempt.job.job_id for attempt in shown],
        "node": list(activity.nodes),
    }
    columns = _attempt_columns(activity, shown, ahead_ns)
    columns |= _iteration_columns(activity, row_of, from_ns, to_ns, ahead_ns)
    columns |= _cluster_columns(shown, owner, (ready, start, end), from_ns, to_ns)
    if exact:
        columns |= {
            "message_attempt_step": steps(owner),
            "message_ready_step": steps(ready),
            "message_wait": start - ready,
            "message_length": end - start,
        }
    else:
        each = Periods.alike(len(shown), from_ns, to_ns, PERIODS)
        for name, first, last in (("sending", start, end), ("waiting", ready, start)):
            share = each.mean(owner, *_clipped(first, last, from_ns, to_ns))
            columns[name] = np.rint(255 * np.minimum(1, share))
    return pack(values, columns)


def _attempts(activity: Activity, begin_ns: int, end_ns: int) -> list[PastAttempt]:
    found: list[PastAttempt] = []
    for attempt in reversed(activity.attempts):
        last_ns = attempt.end_ns
        if attempt.start_ns < end_ns and (last_ns is None or last_ns > begin_ns):
            found.append(attempt)
            if len(found) == MAX_ATTEMPTS:
                break
    return found[::-1]


def _attempt_columns(activity: Activity, shown: list[PastAttempt], ahead_ns: int) -> dict[str, Any]:
    """Return the attempts; one that has not ended ends at -1."""
    slots = [slot for attempt in shown for slot in attempt.slots]
    return {
        "attempt_number": [attempt.number for attempt in shown],
        "attempt_start": [attempt.start_ns - ahead_ns for attempt in shown],
        "attempt_length": [
            -1 if attempt.end_ns is None else attempt.end_ns - attempt.start_ns for attempt in shown
        ],
        "attempt_slots": [len(attempt.slots) for attempt in shown],
        "slot_node": [activity.nodes[slot.node] for slot in slots],
        "slot_index": [slot.index for slot in slots],
    }


def _iteration_columns(
    activity: Activity, row_of: Integers, from_ns: int, to_ns: int, ahead_ns: int
) -> dict[str, Any]:
    """Return the last report of each attempt in each period."""
    reports = activity.iterations_between(from_ns + ahead_ns, to_ns + ahead_ns)
    owner, at_ns = row_of[reports.attempt], reports.at_ns - ahead_ns
    period = (at_ns - from_ns) * PERIODS // (to_ns - from_ns)
    order = np.lexsort((at_ns, owner))
    order = order[owner[order] >= 0]
    cell = owner[order] * PERIODS + period[order]
    order = order[np.append(cell[1:] != cell[:-1], True)[: len(cell)]]
    return {
        "iteration_attempt_step": steps(owner[order]),
        "iteration_at_step": steps(at_ns[order]),
        "iterations": reports.iterations[order],
    }


def _cluster_columns(
    shown: list[PastAttempt],
    owner: Integers,
    times: tuple[Integers, Integers, Integers],
    from_ns: int,
    to_ns: int,
) -> dict[str, Any]:
    ready, start, end = times
    whole, first_row = Periods.alike(1, from_ns, to_ns, PERIODS), np.zeros(len(owner), np.int64)
    on_node, message = spread([attempt.nodes for attempt in shown], owner)
    busy, row = np.unique(on_node, return_inverse=True)
    flight = _clipped(start[message], end[message], from_ns, to_ns)
    each = Periods.alike(max(1, len(busy)), from_ns, to_ns, PERIODS)
    cells = len(busy) * PERIODS
    return {
        "in_flight": np.rint(100 * whole.mean(first_row, *_clipped(start, end, from_ns, to_ns))),
        "unadmitted": np.rint(100 * whole.mean(first_row, *_clipped(ready, start, from_ns, to_ns))),
        "busy_node": busy,
        "node_mean": np.rint(100 * each.mean(row, *flight))[:cells],
        "node_most": each.most(row, *flight)[:cells],
    }


def _clipped(start: Integers, end: Integers, from_ns: int, to_ns: int) -> tuple[Integers, Integers]:
    return np.clip(start, from_ns, to_ns), np.clip(end, from_ns, to_ns)
