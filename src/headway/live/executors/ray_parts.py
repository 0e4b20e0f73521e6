"""Attempts on a Ray cluster: each has a part on every node of it, and they end together."""

from __future__ import annotations

from typing import Any

from headway.live.executors import shim
from headway.live.executors.ranks import NEVER_STARTED_VERDICT
from headway.live.executors.watching import Watched

LOST = 255
"""Code of an attempt of which a node, or what ran there, is gone."""


class Part:
    """One node's share of an attempt: its keeper, and how it ended if it has.

    `kept` is the number of the keeper's latest answer, 0 before the first.
    """

    def __init__(self, keeper: Any, number: str) -> None:
        self.keeper, self.node_number = keeper, number
        self.verdict: tuple[int, str] | None = None
        self.question: Any = None
        self.kept = 0
        self.silent = False


class Parts(Watched):
    """All parts of an attempt; `incomplete` if an earlier scheduler's were more."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[Part] = []
        self.incomplete = False
        self.logs: dict[int, shim.Log] = {}
        self.verdict: tuple[int, str] | None = None
        self.asked_to_end_s: float | None = None  # when its keepers were asked last

    def left(self) -> list[Part]:
        """Return the parts that have not ended."""
        return [part for part in self.parts if part.verdict is None]

    def heard(self) -> bool:
        """Tell whether every part has said how it stands, or will not any more."""
        return all(part.kept for part in self.left())

    def judge(self) -> None:
        """Decide how the attempt ends, as soon as one part has failed."""
        failed = [part.verdict for part in self.parts if part.verdict and part.verdict[0] != 0]
        if self.incomplete and self.heard():
            failed.append((LOST, "a node of it was lost while no scheduler ran"))
        if failed and self.verdict is None:
            # What was lost or killed is the cause; others may only have lost their neighbour. What
            # was never started on one node has only waited for its neighbours on the others.
            worst = max(failed, key=lambda verdict: verdict[0])
            self.verdict = NEVER_STARTED_VERDICT if NEVER_STARTED_VERDICT in failed else worst
