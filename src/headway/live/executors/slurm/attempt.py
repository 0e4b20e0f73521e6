"""Attempts on a Slurm cluster: the ranks on each of their nodes, which end together."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from headway.live.core.events import NEVER_STARTED
from headway.live.executors.attempt_tracker import (
    NEVER_STARTED_OUTCOME,
    Outcome,
    TrackedAttempt,
)
from headway.live.executors.shim import COULD_NOT_START, STOPPED
from headway.live.executors.slurm import attempt_files
from headway.slurm import programs

LOST = 255
"""Exit code of an attempt that lost a node, or its processes there."""

GONE_AFTER_S = 5.0
"""How long Slurm does not know an attempt before its processes count as gone."""

STOPPED_OUTCOME: Outcome = (STOPPED, "stopped")
ALLOCATION_ENDED: Outcome = (LOST, "the allocation ended")


def is_running(pid: int) -> bool:
    """Return whether a child process runs; reap it otherwise."""
    return programs.exit_code(pid) is None


class SlurmAttempt(TrackedAttempt):
    """The nodes of an attempt, their allocations and outcomes.

    `sruns` are the processes that started it, by allocation, without those of another scheduler
    and those that have ended.
    """

    def __init__(self, folder: Path, nodes: Iterable[str]) -> None:
        super().__init__()
        self.folder = folder
        self.outcomes: dict[str, Outcome | None] = dict.fromkeys(nodes)
        self.allocations: dict[str, str] = dict.fromkeys(self.outcomes, "")
        self.sruns: dict[str, int] = {}
        self.ended_sruns: set[str] = set()  # their allocations
        self.launched = False
        self.lost: Outcome | None = None
        self.stopping = False
        self.kill_at_s = float("inf")
        self.has_started = False  # on a node, as far as is known
        self.waits_for = ""  # Why it has not started.
        self.missing_since_s = float("inf")  # Slurm does not know it.

    def reap(self) -> None:
        """Drop the processes that have ended."""
        for allocation, pid in list(self.sruns.items()):
            if not is_running(pid):
                del self.sruns[allocation]
                self.ended_sruns.add(allocation)

    def end_sruns(self, listed: Collection[str] = ()) -> None:
        """Ask each `srun` to give up, but for those in allocations where Slurm lists its step."""
        self.reap()
        for allocation, pid in self.sruns.items():
            if allocation not in listed:
                os.kill(pid, signal.SIGTERM)

    def read_outcomes(self) -> None:
        """Read the outcomes that nodes have written."""
        for node in self.running_nodes():
            self.outcomes[node] = attempt_files.outcome_on(self.folder, node)

    def running_nodes(self) -> list[str]:
        """Return the nodes without an outcome."""
        return [node for node, outcome in self.outcomes.items() if outcome is None]

    def lose(self, node: str) -> None:
        """Give up the ranks on a node that was lost."""
        if node not in self.running_nodes():
            return
        if attempt_files.withdraw(self.folder, node):
            outcome = (NEVER_STARTED, f"node {node} was lost before it started")
        else:
            outcome = (LOST, f"node {node} was lost")
        self.outcomes[node] = self.lost = outcome

    def lose_allocations(self, is_over: Callable[[str], bool]) -> None:
        """Decide the outcome of the remaining nodes in allocations that are over."""
        self.read_outcomes()
        over = [node for node, allocation in self.allocations.items() if is_over(allocation)]
        for node in set(self.running_nodes()).intersection(over):
            if attempt_files.withdraw(self.folder, node):
                self.outcomes[node] = (NEVER_STARTED, "the allocation ended before it started")
            else:
                self.outcomes[node] = ALLOCATION_ENDED
        if over:
            self.blame_allocation()

    def blame_allocation(self) -> None:
        """Name the end of its allocation as the reason, if Slurm has stopped its ranks."""
        if self.ended_by_slurm():
            self.lost = ALLOCATION_ENDED

    def ended_by_slurm(self) -> bool:
        """Return whether its ranks were stopped on all nodes that failed, without being asked."""
        failures = [one[0] for one in self.outcomes.values() if one is not None and one[0] != 0]
        return bool(failures) and not self.stopping and set(failures) == {STOPPED}

    def settle(self, nodes: Iterable[str], now_s: float) -> None:
        """Decide the outcome of nodes where Slurm runs nothing of the attempt.

        What Slurm does not list may be missing in one answer only, unless its `srun` has ended.
        Ranks that have started count as gone after `GONE_AFTER_S`: a controller that was killed may
        have forgotten a job, whose processes Slurm ends when their node registers.
        """
        self.read_outcomes()
        confirmed = now_s > self.missing_since_s
        self.missing_since_s = min(self.missing_since_s, now_s)
        for node in set(self.running_nodes()).intersection(nodes):
            if not confirmed and self.allocations[node] not in self.ended_sruns:
                continue
            if attempt_files.withdraw(self.folder, node):
                self.outcomes[node] = self._why_not_started()
            elif now_s >= self.missing_since_s + GONE_AFTER_S:
                self.outcomes[node] = (LOST, f"its step on {node} was killed")

    def is_claimed(self) -> bool:
        """Return whether its ranks have started on a node."""
        return any(attempt_files.is_claimed(self.folder, node) for node in self.outcomes)

    def withdraw(self) -> None:
        """Keep nodes that have not started from starting."""
        for node in self.running_nodes():
            if attempt_files.withdraw(self.folder, node):
                self.outcomes[node] = NEVER_STARTED_OUTCOME

    def failed(self) -> bool:
        """Return whether the ranks on a node have failed."""
        return any(outcome is not None and outcome[0] != 0 for outcome in self.outcomes.values())

    def outcome(self) -> Outcome:
        """Return how the attempt ended, from the outcomes on its nodes."""
        failures = [one for one in self.outcomes.values() if one is not None and one[0] != 0]
        if not failures:
            return 0, ""
        unstarted = [one for one in failures if one[0] == NEVER_STARTED]
        if len(unstarted) == len(self.outcomes):
            return (NEVER_STARTED, "stopped") if self.stopping else unstarted[0]
        if self.lost is not None:
            return self.lost
        if self.stopping:
            return STOPPED_OUTCOME
        # A lost or killed node has the highest code and is the cause. Those that were stopped had
        # to end with it; if one never started, the others have only waited for it.
        causes = [one for one in failures if one[0] != STOPPED]
        if not causes:
            return STOPPED, "ended by Slurm"
        return unstarted[0] if unstarted else max(causes, key=lambda outcome: outcome[0])

    def _why_not_started(self) -> Outcome:
        for name in ("srun.log", "slurm.log"):
            with contextlib.suppress(OSError):
                said = programs.last_error((self.folder / name).read_text(errors="replace"))
                if said:
                    code = COULD_NOT_START if programs.is_refusal(said) else NEVER_STARTED
                    return code, f"Slurm did not start it: {said.rstrip('.')}"
        return NEVER_STARTED_OUTCOME
