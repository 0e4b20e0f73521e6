"""Counters over time: queued jobs, messages running and waiting, messages on each server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway import jit
from headway.jit.views import fields_of
from headway.results.timeline.compiled import Integers, Steps, sweep
from headway.results.timeline.window import Window

QUEUED, RUNNING, WAITING = range(3)
FIRST_SERVER = 3
"""The numbers of the counters; server s has `FIRST_SERVER + s`."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of counters, increments before decrements, otherwise in no order."""

    time_ns: Integers
    counter: Integers
    change: Integers

    def within(self, window: Window) -> Changes:
        """Return the changes inside a window in the order of time.

        Earlier ones are moved to its beginning; changes at its end are included.
        """
        inside = np.flatnonzero(self.time_ns <= window.to_ns)
        time_ns = np.maximum(self.time_ns[inside], window.from_ns)
        order = np.argsort(time_ns, kind="stable")
        rows = inside[order]
        return Changes(time_ns[order], self.counter[rows], self.change[rows])


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages as counters need them: their times, and the servers they are on."""

    ready_ns: Integers
    start_ns: Integers
    end_ns: Integers
    message: Integers
    server: Integers
    """Pairs: a message's index, and one of its servers."""


def joined(batches: Sequence[Messages]) -> Messages:
    """Return the messages of several batches as one."""
    empty = np.zeros(0, np.int64)
    sizes = [len(batch.end_ns) for batch in batches]
    first = np.repeat(np.cumsum(sizes) - sizes, [len(batch.message) for batch in batches])
    columns = {
        name: np.concatenate([empty, *(getattr(batch, name) for batch in batches)])
        for name in Messages.__slots__
    }
    columns["message"] = columns["message"] + first.astype(np.int64)
    return Messages(**columns)


def counter_changes(arrival_ns: Integers, placed_ns: Integers, messages: Messages) -> Changes:
    """Return all changes of all counters."""
    on_server = FIRST_SERVER + messages.server
    start_ns, end_ns = messages.start_ns, messages.end_ns
    ups: list[tuple[Integers, int | Integers]] = [
        (arrival_ns, QUEUED),
        (messages.ready_ns, WAITING),
        (start_ns, RUNNING),
        (start_ns[messages.message], on_server),
    ]
    downs: list[tuple[Integers, int | Integers]] = [
        (placed_ns, QUEUED),
        (start_ns, WAITING),
        (end_ns, RUNNING),
        (end_ns[messages.message], on_server),
    ]
    both = ups + downs
    total = sum(len(times) for times, _ in ups)
    return Changes(
        time_ns=np.concatenate([times for times, _ in both]),
        counter=np.concatenate([np.broadcast_to(counter, len(times)) for times, counter in both]),
        change=np.repeat([1, -1], [total, total]),
    )


def counter_steps(changes: Changes, servers: int, window: Window) -> Steps:
    """Return the counters at every instant of a window at which one changes, and at both ends."""
    inside = changes.within(window)
    # A change of nothing at each end gives these a step of their own.
    ends = np.array([window.from_ns, window.to_ns], np.int64)
    time_ns = np.concatenate([ends[:1], inside.time_ns, ends[1:]])
    counter = np.concatenate([[QUEUED], inside.counter, [QUEUED]])
    change = np.concatenate([[0], inside.change, [0]])
    on_server = inside.counter[inside.counter >= FIRST_SERVER]
    servers_with = np.zeros(int(np.bincount(on_server).max(initial=0)) + 2, np.int64)
    servers_with[0] = servers
    values = np.zeros(FIRST_SERVER + servers, np.int64)
    steps = Steps(**{name: np.zeros(len(time_ns), np.int64) for name in fields_of(Steps)})
    arguments = (time_ns, counter, change, values, servers_with, steps)
    count = jit.call(sweep, "message counters", *arguments)
    return steps.replace(**{name: getattr(steps, name)[:count] for name in fields_of(Steps)})
