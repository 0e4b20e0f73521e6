"""What each entry of a job's graph takes on the critical paths of its iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.domain.graph import Entry, Graph, Message
from headway.reports.critical_path import Path, Spans
from headway.results.timeline.compiled import Integers

TASK = "task"
"""The kind of an entry that is no message."""


@dataclass(frozen=True, slots=True)
class EntryTime:
    """What an entry of a job's graph takes on the critical paths of its iterations."""

    name: str
    kind: str
    """The kind of a message, or `task`."""
    iterations: int
    """In how many iterations it is on the path."""
    waiting_ns: int
    """For its GPU, or for admission."""
    running_ns: int
    """Computing, or sending alone."""
    contention_ns: int
    """Sending under contention."""

    @property
    def total_ns(self) -> int:
        """All of it."""
        return self.waiting_ns + self.running_ns + self.contention_ns


def entry_times(graph: Graph, path: Path, alone_ns: Integers) -> tuple[EntryTime, ...]:
    """Return the entries on critical paths; `alone_ns` is how long each message is sent alone."""
    expanded, messages, found = graph.expanded, path.messages, []
    of_message = expanded.message_entry[messages.node - expanded.tasks]
    parts: tuple[tuple[Sequence[Entry], Spans, Integers, Integers], ...] = (
        (graph.tasks, path.tasks, expanded.task_entry[path.tasks.node], path.tasks.length_ns),
        (graph.messages, messages, of_message, alone_ns),
    )
    for entries, spans, owner, running_ns in parts:
        for index in np.unique(owner).tolist():
            own, entry = owner == index, entries[index]
            found.append(
                EntryTime(
                    entry.name,
                    entry.kind if isinstance(entry, Message) else TASK,
                    len(np.unique(spans.iteration[own])),
                    int(spans.waiting_ns[own].sum()),
                    int(running_ns[own].sum()),
                    int((spans.length_ns - running_ns)[own].sum()),
                )
            )
    return tuple(sorted(found, key=lambda one: -one.total_ns))
