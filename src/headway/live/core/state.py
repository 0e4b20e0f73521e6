"""What the live scheduler knows, and the steps from which every change of it is made."""

from __future__ import annotations

from headway.domain.limits import whole
from headway.live.core.events import AnyInstruction, GrantMessage, JobSpec, Stop
from headway.live.core.job_state import JobState
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.rules import Rules
from headway.live.core.status import Counts
from headway.live.core.turns import SlotTurns
from headway.live.core.view import View
from headway.network.contention import NetworkModel

MOST_KEPT = 1_000
"""Jobs that are over and still known; those that ended first are forgotten first."""


class Ledger:
    """Jobs, nodes, messages and turns, and what has changed since the last decisions."""

    def __init__(self, policy: str, network: NetworkModel, seed: int = 0) -> None:
        whole(seed, "seed", 0, 2**63 - 1)
        self.rules = Rules(policy)
        self.view = View(network, seed)
        self.view.set_bucket(self.rules.bucket_bytes)
        self.seed = seed
        self.now_ns = 0
        self.counts = Counts()
        self.submitted = 0
        self.known: dict[str, LiveJob] = {}  # all jobs by id; those that are over at most MOST_KEPT
        self.queue: dict[int, LiveJob] = {}  # by number
        self.waiting: dict[int, LiveJob] = {}  # jobs whose first request is not granted, by number
        self.turns = SlotTurns()
        self.over: dict[str, LiveJob] = {}
        self.drained: set[str] = set()  # names of nodes, there or not
        self.wake_ns = NEVER_NS  # the Tick that has been asked for
        # What has changed since the last decisions.
        self.fresh: dict[int, LiveJob] = {}  # queued jobs that have not been tried
        self.held = False  # whether nobody is placed until all jobs are known
        self.room = False  # whether jobs that were refused may fit now
        self.asking: dict[int, LiveJob] = {}  # waiting jobs that have not been asked about
        self.touched: set[int] = set()  # ports where a message has ended
        self.rated = True  # whether all messages have their costs

    def new_job(self, job_id: str, spec: JobSpec, submitted_ns: int) -> LiveJob:
        """Return a new job, known and in the view."""
        job = LiveJob(job_id, spec, self.submitted, submitted_ns)
        self.submitted += 1
        self.known[job_id] = job
        self.view.add(job)
        return job

    def enqueue(self, job: LiveJob) -> None:
        """Let a job join the queue."""
        job.state = JobState.QUEUED
        self.queue[job.number] = self.fresh[job.number] = job
        self.set_key(job)

    def set_key(self, job: LiveJob) -> None:
        """Ask the priority for a job's key."""
        job.set_key(self.rules.key(self.view.cluster, job.row))
        self.view.columns["priority_key"][job.row] = job.key

    def attempt(self, job_id: str, attempt: int) -> LiveJob | None:
        """Return the job whose attempt this is, if that has been made and has not ended."""
        job = self.known.get(job_id)
        if job is None or attempt != job.attempts or job.state == JobState.QUEUED or job.over:
            return None
        return job

    def stop(self, job: LiveJob, reason: str, instructions: list[AnyInstruction]) -> None:
        """End an attempt: it is off the network now, and off its slots when it has exited."""
        if job.state == JobState.STOPPING:
            return
        self.silence(job)
        job.state = JobState.STOPPING
        job.reason = reason
        self.view.retire(job)
        instructions.append(Stop(job_id=job.job_id, attempt=job.attempts, reason=reason))

    def end(self, job: LiveJob, state: JobState, reason: str) -> None:
        """Let a job be over; it must have no slots."""
        job.state, job.reason, job.finished_ns = state, reason, self.now_ns
        self.view.remove(job)
        self.over[job.job_id] = job
        if len(self.over) > MOST_KEPT:
            oldest = next(iter(self.over))
            del self.over[oldest], self.known[oldest]

    def next_message(self, job: LiveJob) -> None:
        """Let the first of a job's requests wait for admission, once all its ranks are ready."""
        if job.still_computes:
            return
        self.view.ready(job, *next(iter(job.requests.values())))
        job.waiting_since_ns, job.wake_ns = self.now_ns, NEVER_NS
        self.waiting[job.number] = self.asking[job.number] = job

    def off_network(self, job: LiveJob) -> None:
        """Take a job's first message off the network, or out of those that wait."""
        if job.granted is None:
            self.waiting.pop(job.number, None)
            self.asking.pop(job.number, None)
            return
        job.granted = None
        self.touched |= job.ports
        self.rated = False
        self.view.finish(job)

    def stopped_computing(self, job: LiveJob) -> None:
        """Let a message wait for admission that the last pass of a rank has held up."""
        if job.ports and job.requests and job.granted is None and job.number not in self.waiting:
            self.next_message(job)

    def silence(self, job: LiveJob) -> None:
        """Forget what a job asked for or was granted."""
        self.forget_messages(job)
        for rank in list(job.computations):
            self.turns.forget(job, rank)

    def forget_messages(self, job: LiveJob) -> None:
        """Forget the messages that a job asked for or was granted."""
        if job.ports and job.requests:
            self.off_network(job)
        job.requests.clear()

    def grant(self, job: LiveJob, request: int, instructions: list[AnyInstruction]) -> None:
        """Tell a job that it may start."""
        self.counts.grants += 1
        instructions.append(GrantMessage(job_id=job.job_id, attempt=job.attempts, request=request))
