"""Attempts on a Ray cluster: one group of ranks per node, which end together."""

from __future__ import annotations

from typing import Any

from headway.live.executors import shim
from headway.live.executors.attempt_tracker import (
    NEVER_STARTED_OUTCOME,
    Outcome,
    TrackedAttempt,
)

LOST = 255
"""Exit code of an attempt that lost a node, or its processes there."""


class RankGroup:
    """The ranks of an attempt on one node: their agent, and their outcome once they have ended.

    `received` is the number of the agent's latest report, 0 before the first.
    """

    def __init__(self, agent: Any, node_id: str) -> None:
        self.agent, self.node_id = agent, node_id
        self.outcome: Outcome | None = None
        self.pending_report: Any = None
        self.received = 0
        self.silent = False


class RayAttempt(TrackedAttempt):
    """All groups of an attempt; `incomplete` if some were lost while no scheduler ran."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[RankGroup] = []
        self.incomplete = False
        self.logs: dict[int, shim.Log] = {}
        self.outcome: Outcome | None = None
        self.stop_requested_s: float | None = None  # the last time

    def running_groups(self) -> list[RankGroup]:
        """Return the groups that have not ended."""
        return [group for group in self.groups if group.outcome is None]

    def all_reported(self) -> bool:
        """Return whether every running group has reported at least once."""
        return all(group.received for group in self.running_groups())

    def decide_outcome(self) -> None:
        """Decide how the attempt ends, as soon as one group has failed."""
        failed = [group.outcome for group in self.groups if group.outcome and group.outcome[0] != 0]
        if self.incomplete and self.all_reported():
            failed.append((LOST, "one of its nodes was lost while no scheduler ran"))
        if failed and self.outcome is None:
            # A lost or killed group has the highest code and is the cause: others may only have
            # lost a peer. If one group never started, the others have only waited for it.
            worst = max(failed, key=lambda outcome: outcome[0])
            self.outcome = NEVER_STARTED_OUTCOME if NEVER_STARTED_OUTCOME in failed else worst
