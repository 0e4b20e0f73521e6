"""What workers report, and what that changes; nothing they say can make the core raise."""

from __future__ import annotations

from headway.domain.limits import MOST_BYTES, MOST_ITERATIONS
from headway.gate.protocol import MOST_OPEN
from headway.live.core.events import (
    AnyInstruction,
    ComputeDone,
    ComputeReady,
    IterationDone,
    MessageDone,
    MessageReady,
    WorkerLost,
)
from headway.live.core.job_state import JobState
from headway.live.core.state import Ledger


class Reports(Ledger):
    """The handlers of workers' events; each returns whether the event fits what is known."""

    def _iteration_done(self, event: IterationDone, _: list[AnyInstruction]) -> bool:
        job = self.attempt(event.job_id, event.attempt)
        if job is None or not job.iterations < event.iterations <= MOST_ITERATIONS:
            return False
        job.iterations = event.iterations
        # A steady placement has answered on what was only supposed: ask it again.
        self.room |= job.measure(event)
        if job.state != JobState.STOPPING:
            self.view.estimate(job)
            self.set_key(job)
        return True

    def _message_ready(self, event: MessageReady, instructions: list[AnyInstruction]) -> bool:
        job = self.attempt(event.job_id, event.attempt)
        if (
            job is None
            or job.state == JobState.STOPPING
            or event.request in job.requests
            or len(job.requests) >= MOST_OPEN
            or not 0 <= event.message_bytes <= MOST_BYTES
        ):
            return False
        unsent_bytes = max(event.unsent_bytes, event.message_bytes)
        job.requests[event.request] = (event.message_bytes, unsent_bytes)
        if not job.ports:
            # On one node an all-reduce meets nobody.
            self.grant(job, event.request, instructions)
        elif len(job.requests) == 1:
            self.next_message(job)
        return True

    def _message_done(self, event: MessageDone, _: list[AnyInstruction]) -> bool:
        job = self.attempt(event.job_id, event.attempt)
        if job is None or event.request not in job.requests:
            return False
        first = next(iter(job.requests)) == event.request
        del job.requests[event.request]
        if job.ports and first:
            self.off_network(job)
            if job.requests:
                self.next_message(job)
        return True

    def _compute_ready(self, event: ComputeReady, _: list[AnyInstruction]) -> bool:
        job = self.attempt(event.job_id, event.attempt)
        if job is None or job.state == JobState.STOPPING:
            return False
        if not self.turns.ask(job, event.rank, event.request):
            return False
        if job.number in self.waiting and job.still_computes:
            # The rank was between two passes; its gradients are not there yet.
            self.off_network(job)
        return True

    def _compute_done(self, event: ComputeDone, _: list[AnyInstruction]) -> bool:
        job = self.attempt(event.job_id, event.attempt)
        if job is None or not self.turns.end(job, event.rank, event.request):
            return False
        self.stopped_computing(job)
        return True

    def _worker_lost(self, event: WorkerLost, _: list[AnyInstruction]) -> bool:
        job = self.attempt(event.job_id, event.attempt)
        if job is None:
            return False
        if event.rank == 0:
            self.forget_messages(job)
        self.turns.forget(job, event.rank)
        self.stopped_computing(job)
        return True
