"""The core's input and output: events that happen to a live cluster, and instructions that follow.

Every event carries `at_ns`, the time on the scheduler's own clock: nanoseconds since it first
started, never going back, whatever the machine's clock does. Events and instructions are plain
values that msgspec reads and writes as JSON, so a log of events is a complete record of a run.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headway.gate.frames import MeasuredBucket


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job as submitted; fields that are None are measured from its first iterations.

    Jobs of higher `priority` go first, whatever the policy's order; while one of a priority above 0
    is queued, no job of a lower one is placed on slots that it could use. `retries` limits how
    often a failed job is started again. `name` is a title for people. On Slurm, `directives` are
    options for the command that starts the job, and `skip_directives` names of options to leave
    out.
    """

    command: tuple[str, ...]
    gpus: int = 1
    memory_bytes: int = 0
    iterations: int | None = None
    model: str = ""
    priority: int = 0
    retries: int = 0
    name: str = ""
    folder: str = "."
    environment: dict[str, str] = {}
    directives: tuple[str, ...] = ()
    skip_directives: tuple[str, ...] = ()
    forward_ns: int | None = None
    backward_ns: int | None = None
    gradient_bytes: int | None = None


class Slot(msgspec.Struct, frozen=True):
    """One slot of a node: a GPU, or a share of a machine; `index` counts from 0."""

    node: str
    index: int


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something that happened."""

    at_ns: int


class NodeUp(Event, frozen=True, kw_only=True):
    """A node has joined with `gpus` slots of `memory_bytes` each."""

    node: str
    gpus: int
    memory_bytes: int


class NodeLost(Event, frozen=True, kw_only=True):
    """A node is gone with every process on it."""

    node: str


class NodeDrained(Event, frozen=True, kw_only=True):
    """A node takes no new jobs or, with `draining` false, takes them again."""

    node: str
    draining: bool


class JobSubmitted(Event, frozen=True, kw_only=True):
    """A user has submitted a job."""

    job_id: str
    spec: JobSpec


class JobRestored(Event, frozen=True, kw_only=True):
    """A job of an earlier scheduler: queued (no slots), or running on its slots.

    `attempts` counts its attempts including the running one, `unstarted` those that never started;
    `iterations` are done by the running one. With `hold` no job is placed before the next Tick, so
    that all jobs are restored first.
    """

    job_id: str
    spec: JobSpec
    submitted_ns: int
    attempts: int = 0
    iterations: int = 0
    slots: tuple[Slot, ...] = ()
    unstarted: int = 0
    hold: bool = False


class JobCancelled(Event, frozen=True, kw_only=True):
    """A user has cancelled a job."""

    job_id: str


class PriorityChanged(Event, frozen=True, kw_only=True):
    """A user has given a job another priority."""

    job_id: str
    priority: int


class JobStarted(Event, frozen=True, kw_only=True):
    """All processes of an attempt at a job have been started."""

    job_id: str
    attempt: int


NEVER_STARTED = -1
"""The exit code of an attempt that could not be started through no fault of the job."""


class JobExited(Event, frozen=True, kw_only=True):
    """All processes of an attempt have ended.

    `code` 0 is success; NEVER_STARTED uses up no retry. `reason` is shown to people.
    """

    job_id: str
    attempt: int
    code: int
    reason: str = ""


class MessageReady(Event, frozen=True, kw_only=True):
    """A job asks to send a message, an all-reduce; `request` numbers its requests.

    `unsent_bytes` is what this iteration has yet to send, this message included.
    """

    job_id: str
    attempt: int
    request: int
    message_bytes: int
    unsent_bytes: int


class MessageDone(Event, frozen=True, kw_only=True):
    """A message has ended, whether or not it was granted."""

    job_id: str
    attempt: int
    request: int


class ComputeReady(Event, frozen=True, kw_only=True):
    """A rank asks to compute on its slot, a forward or a backward pass for example.

    `request` numbers the rank's requests; rank r computes on the r-th slot of its job.
    """

    job_id: str
    attempt: int
    rank: int
    request: int


class ComputeDone(Event, frozen=True, kw_only=True):
    """A rank's computation has ended, whether or not it was granted."""

    job_id: str
    attempt: int
    rank: int
    request: int


class IterationDone(Event, frozen=True, kw_only=True):
    """An attempt has done `iterations` iterations so far.

    Times and bytes are measured over the latest iterations; None is unknown.
    """

    job_id: str
    attempt: int
    iterations: int
    forward_ns: int | None = None
    backward_ns: int | None = None
    gradient_bytes: int | None = None


class IterationProfiled(Event, frozen=True, kw_only=True):
    """An attempt's average iteration so far, without the first two.

    `optimizer_ns` is from the end of the last all-reduce to the next forward pass. The backward
    pass ends with the last of the `buckets`.
    """

    job_id: str
    attempt: int
    forward_ns: int
    optimizer_ns: int
    buckets: tuple[MeasuredBucket, ...]


class WorkerLost(Event, frozen=True, kw_only=True):
    """The connection to a rank is lost: all that it asked for or was granted is void.

    Rank 0 sends the messages of its job. `hung` says that it did not close the connection, but
    stopped answering.
    """

    job_id: str
    attempt: int
    rank: int = 0
    hung: bool = False


class PolicyChanged(Event, frozen=True, kw_only=True):
    """An operator has switched to another policy."""

    policy: str


class Tick(Event, frozen=True, kw_only=True):
    """Time has passed; follows a `WakeAt`, and ends the hold of a `JobRestored`."""


AnyEvent: TypeAlias = (
    NodeUp
    | NodeLost
    | NodeDrained
    | JobSubmitted
    | JobRestored
    | JobCancelled
    | PriorityChanged
    | JobStarted
    | JobExited
    | MessageReady
    | MessageDone
    | ComputeReady
    | ComputeDone
    | IterationDone
    | IterationProfiled
    | WorkerLost
    | PolicyChanged
    | Tick
)


class Instruction(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something for the daemon to do."""


class Launch(Instruction, frozen=True, kw_only=True):
    """Start an attempt at a job: one process on each slot, rank r on the r-th."""

    job_id: str
    attempt: int
    slots: tuple[Slot, ...]


class GrantMessage(Instruction, frozen=True, kw_only=True):
    """Grant a job's request to send a message."""

    job_id: str
    attempt: int
    request: int


class GrantTurn(Instruction, frozen=True, kw_only=True):
    """Grant a rank's request to compute: it has the turn on its slot."""

    job_id: str
    attempt: int
    rank: int
    request: int


class Stop(Instruction, frozen=True, kw_only=True):
    """End the processes of an attempt; a `JobExited` will follow."""

    job_id: str
    attempt: int
    reason: str


class ReportStuck(Instruction, frozen=True, kw_only=True):
    """Report that an attempt makes no progress, or, without a problem, that it does again."""

    job_id: str
    attempt: int
    problem: str


class WakeAt(Instruction, frozen=True, kw_only=True):
    """Send a `Tick` at this time: a policy wants to be asked, or a lease or a pause may be over."""

    at_ns: int


AnyInstruction: TypeAlias = Launch | GrantMessage | GrantTurn | Stop | ReportStuck | WakeAt
