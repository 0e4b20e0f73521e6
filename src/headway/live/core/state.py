"""The state that the core works on: jobs, nodes, messages, turns, and what decisions are due."""

from __future__ import annotations

import msgspec

from headway.domain.errors import InputError
from headway.domain.limits import HORIZON_NS, whole
from headway.live.core.cluster_arrays import ClusterArrays
from headway.live.core.events import JobSpec
from headway.live.core.job_state import ACTIVE
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.lease_rules import LeaseRules
from headway.live.core.observations import Overheads
from headway.live.core.rules import Rules
from headway.live.core.turns import SlotTurns
from headway.network.contention import NetworkModel


class Counts(msgspec.Struct):
    """Totals since the core was created; `events` includes those ignored."""

    events: int = 0
    ignored: int = 0
    launches: int = 0
    grants: int = 0
    turns: int = 0


class CoreState:
    """A live cluster and its jobs; the modules beside this one change it, event by event."""

    def __init__(
        self, policy: str, network: NetworkModel, seed: int = 0, leases: LeaseRules | None = None
    ) -> None:
        whole(seed, "seed", 0, 2**63 - 1)
        self.lease_rules = leases
        self.rules = Rules(policy)
        self.arrays = ClusterArrays(network, seed)
        self.arrays.set_bucket(self.rules.bucket_bytes)
        self.now_ns = 0
        self.counts = Counts()
        self.submitted = 0  # jobs so far
        self.jobs: dict[str, LiveJob] = {}  # by id; finished jobs are forgotten after a while
        self.finished: dict[str, LiveJob] = {}  # those of them that are finished, in that order
        # By number:
        self.queue: dict[int, LiveJob] = {}  # queued jobs
        self.pausing: dict[int, LiveJob] = {}  # those of them that have failed and start later
        self.urgent: dict[int, LiveJob] = {}  # those of them of a priority above 0
        self.waiting: dict[int, LiveJob] = {}  # jobs whose first message awaits admission
        self.stuck: dict[int, LiveJob] = {}  # running jobs that make no progress
        self.turns = SlotTurns()
        self.overheads = Overheads()
        self.drained: set[str] = set()  # names of draining nodes, including nodes that are gone
        self.wake_ns = NEVER_NS  # the earliest Tick asked for
        self.lease_check_ns = NEVER_NS  # when a lease may be over, or a stuck job is to be stopped
        self.placement_paused = False  # while jobs of an earlier scheduler are restored
        # What has changed since the last decisions.
        self.fresh: dict[int, LiveJob] = {}  # queued jobs not yet shown to the placement policy
        self.room_made = False  # whether queued jobs that were refused may fit now
        self.unasked: dict[int, LiveJob] = {}  # waiting jobs not yet shown to the admission policy
        self.rates_current = True  # whether every message in flight has its present cost

    def advance_clock(self, at_ns: int) -> None:
        """Set the time to that of an event; it never goes back."""
        if at_ns > HORIZON_NS:
            raise InputError(f"must be at most {HORIZON_NS:,}, not {at_ns:,}.", field="at_ns")
        self.now_ns = max(self.now_ns, at_ns)
        self.arrays.set_now(self.now_ns)

    def set_policy(self, policy: str) -> None:
        """Replace the policy."""
        self.rules = Rules(policy)
        self.arrays.set_bucket(self.rules.bucket_bytes)

    def add_job(self, job_id: str, spec: JobSpec, submitted_ns: int) -> LiveJob:
        """Create a job and give it a row in the arrays."""
        job = LiveJob(job_id, spec, self.submitted, submitted_ns)
        self.submitted += 1
        self.jobs[job_id] = job
        self.arrays.add(job)
        return job

    def enqueue(self, job: LiveJob) -> None:
        """Add a job to the queue."""
        self.queue[job.number] = self.fresh[job.number] = job
        if job.spec.priority > 0:
            self.urgent[job.number] = job

    def leave_queue(self, job: LiveJob) -> None:
        """Take a job off the queue if it is there; jobs that were kept waiting for it may fit."""
        self.queue.pop(job.number, None)
        self.fresh.pop(job.number, None)
        self.room_made |= self.urgent.pop(job.number, None) is not None

    def set_priority(self, job: LiveJob, priority: int) -> None:
        """Change the priority that a job's user gave it."""
        job.set_priority(priority)
        self.arrays.columns["priority"][job.row] = priority
        if job.number in self.queue:
            self.leave_queue(job)
            self.enqueue(job)
            self.room_made = True

    def update_key(self, job: LiveJob) -> None:
        """Ask the priority policy for a job's key."""
        job.set_key(self.rules.key(self.arrays.cluster, job.row))
        self.arrays.columns["priority_key"][job.row] = job.key

    def forget_stuck(self, job: LiveJob) -> None:
        """Unmark a job that was stuck."""
        job.stuck, job.stuck_rank, job.stop_ns = "", None, NEVER_NS
        self.stuck.pop(job.number, None)

    def job_of_attempt(self, job_id: str, attempt: int) -> LiveJob | None:
        """Return the job whose current attempt this is; None for a stale or unknown one."""
        job = self.jobs.get(job_id)
        if job is None or attempt != job.attempts or job.state not in ACTIVE:
            return None
        return job
