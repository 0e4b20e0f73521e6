"""Attempts on a Slurm cluster: the ranks on each of their nodes, which end together."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
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
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    return False


class SlurmAttempt(TrackedAttempt):
    """The nodes of an attempt and their outcomes; `srun` is the id of the process that started it.

    Another scheduler's `srun`, and one that has ended, is None.
    """

    def __init__(self, folder: Path, nodes: Iterable[str]) -> None:
        super().__init__()
        self.folder = folder
        self.outcomes: dict[str, Outcome | None] = dict.fromkeys(nodes)
        self.srun: int | None = None
        self.launched = False
        self.lost: Outcome | None = None
        self.stopping = False
        self.kill_at_s = float("inf")
        self.waits_for = ""  # Why it is in Slurm's queue.
        self.missing_since_s = float("inf")  # Slurm does not know it.

    def srun_runs(self) -> bool:
        """Return whether its `srun` runs; reap it otherwise."""
        if self.srun is not None and not is_running(self.srun):
            self.srun = None
        return self.srun is not None

    def end_srun(self) -> None:
        """Ask its `srun` to give up, if it runs."""
        if self.srun_runs() and self.srun is not None:
            os.kill(self.srun, signal.SIGTERM)

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

    def lose_allocation(self) -> None:
        """Decide the outcome of the remaining nodes, when its allocation is over."""
        self.read_outcomes()
        for node in self.running_nodes():
            if attempt_files.withdraw(self.folder, node):
                self.outcomes[node] = (NEVER_STARTED, "the allocation ended before it started")
            else:
                self.outcomes[node] = ALLOCATION_ENDED
        self.blame_allocation()

    def blame_allocation(self) -> None:
        """Name the end of its allocation as the reason, if Slurm has stopped its ranks."""
        if self.ended_by_slurm():
            self.lost = ALLOCATION_ENDED

    def ended_by_slurm(self) -> bool:
        """Return whether its ranks were stopped on all nodes that failed, without being asked."""
        failures = [one[0] for one in self.outcomes.values() if one is not None and one[0] != 0]
        return bool(failures) and not self.stopping and set(failures) == {STOPPED}

    def settle(self, now_s: float) -> None:
        """Decide the outcome of the remaining nodes, when Slurm runs nothing of the attempt.

        Ranks that have started count as gone after `GONE_AFTER_S`: a controller that was killed may
        have forgotten a job, whose processes Slurm ends when their node registers.
        """
        self.read_outcomes()
        self.missing_since_s = min(self.missing_since_s, now_s)
        for node in self.running_nodes():
            if attempt_files.withdraw(self.folder, node):
                self.outcomes[node] = self._why_not_started()
            elif now_s >= self.missing_since_s + GONE_AFTER_S:
                self.outcomes[node] = (LOST, f"its step on {node} was killed")

    def has_started(self) -> bool:
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
        if self.lost is not None:
            return self.lost
        if self.stopping:
            return STOPPED_OUTCOME
        # A lost or killed node has the highest code and is the cause. Those that were stopped had
        # to end with it; if one never started, the others have only waited for it.
        causes = [one for one in failures if one[0] != STOPPED]
        unstarted = [one for one in causes if one[0] == NEVER_STARTED]
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
