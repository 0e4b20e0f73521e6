"""What has changed since pages were last brought up to date."""

from __future__ import annotations

from collections.abc import Iterable

from headway.live.core.events import AnyEvent, AnyInstruction, IterationDone


class Changes:
    """Notes which jobs and what else has changed; nothing while no page is open.

    Messages and turns change all the time, and are not noted.
    """

    def __init__(self) -> None:
        self.noting = False
        """Whether anyone wants to know."""
        self._jobs: dict[str, None] = {}  # a set in insertion order
        self.room_changed = False
        """Whether the reasons of queued jobs may have changed."""
        self.nodes_changed = False

    def passing(self, event: AnyEvent) -> None:
        """Note what an event changed that led to nothing but grants."""
        if type(event) is IterationDone:
            self._jobs[event.job_id] = None

    def lasting(self, event: AnyEvent, instructions: Iterable[AnyInstruction]) -> None:
        """Note what any other event and its instructions changed."""
        self.room_changed = True
        for one in (event, *instructions):
            if job_id := getattr(one, "job_id", None):
                self._jobs[job_id] = None

    def job(self, job_id: str) -> None:
        """Note a change that no event reports."""
        if self.noting:
            self._jobs[job_id] = None

    def nodes(self) -> None:
        """Note that a node came, went, or is draining or not."""
        self.nodes_changed = self.room_changed = self.noting

    def start(self) -> None:
        """Begin to note changes."""
        self.noting, self._jobs = True, {}

    def stop(self) -> None:
        """Note nothing any more."""
        self.noting, self._jobs = False, {}

    def take_jobs(self) -> dict[str, None]:
        """Return the jobs that have changed since the last call."""
        jobs, self._jobs = self._jobs, {}
        return jobs
