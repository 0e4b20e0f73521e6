"""What can happen to a live cluster, and what the scheduler answers: the words of `live.core`.

Every event carries `at_ns`, the scheduler's own clock: nanoseconds since it first started, never
going back, whatever the machine's clock does. Events and instructions are plain values that
msgspec reads and writes as JSON, so that a log of events is a complete account of a run.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was submitted; what is None is measured from its first iterations.

    `priority` comes before whatever the policy says: higher goes first. `retries` is how often the
    job is started again after a failure.
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
    forward_ns: int | None = None
    backward_ns: int | None = None
    gradient_bytes: int | None = None


class Slot(msgspec.Struct, frozen=True):
    """One GPU, or slot, of a node; slots are numbered from 0."""

    node: str
    index: int


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something that happened."""

    at_ns: int


class NodeUp(Event, frozen=True, kw_only=True):
    """A node is there, with so many GPUs (or slots) of this memory each."""

    node: str
    gpus: int
    memory_bytes: int


class NodeLost(Event, frozen=True, kw_only=True):
    """A node is gone, and every process on it."""

    node: str


class NodeDrained(Event, frozen=True, kw_only=True):
    """A node gets no new jobs (or, with `draining` false, gets them again)."""

    node: str
    draining: bool


class JobSubmitted(Event, frozen=True, kw_only=True):
    """A job joins the queue."""

    job_id: str
    spec: JobSpec


class JobRestored(Event, frozen=True, kw_only=True):
    """A job that an earlier scheduler knew: queued (no slots), or running where it was.

    `attempts` counts those made so far, the running one included, `unstarted` those of them that
    never started; `iterations` are those it has done. After one with `hold` nobody is placed before
    the next Tick, so that all jobs can be known first.
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
    """A user does not want a job any more."""

    job_id: str


class JobStarted(Event, frozen=True, kw_only=True):
    """All processes of an attempt at a job have been started."""

    job_id: str
    attempt: int


NEVER_STARTED = -1
"""The code of an attempt that could not be started for a reason that is not the job's."""


class JobExited(Event, frozen=True, kw_only=True):
    """All processes of an attempt have ended; 0 is success, NEVER_STARTED nobody's failure.

    `reason` is for people.
    """

    job_id: str
    attempt: int
    code: int
    reason: str = ""


class MessageReady(Event, frozen=True, kw_only=True):
    """A job asks whether it may start an all-reduce; `request` numbers its questions.

    `unsent_bytes` is what this iteration still has to send, this message included.
    """

    job_id: str
    attempt: int
    request: int
    message_bytes: int
    unsent_bytes: int


class MessageDone(Event, frozen=True, kw_only=True):
    """An all-reduce has ended, whether it was granted or started unasked."""

    job_id: str
    attempt: int
    request: int


class ComputeReady(Event, frozen=True, kw_only=True):
    """A rank asks whether it may compute on its slot: a forward or a backward pass, say.

    `request` numbers a rank's questions; rank r computes on the r-th slot of its job.
    """

    job_id: str
    attempt: int
    rank: int
    request: int


class ComputeDone(Event, frozen=True, kw_only=True):
    """A rank's computation has ended, whether it was granted or started unasked."""

    job_id: str
    attempt: int
    rank: int
    request: int


class IterationDone(Event, frozen=True, kw_only=True):
    """A job has finished so many iterations, since its attempt began.

    Times and bytes are those of its latest iterations, or None where unknown.
    """

    job_id: str
    attempt: int
    iterations: int
    forward_ns: int | None = None
    backward_ns: int | None = None
    gradient_bytes: int | None = None


class WorkerLost(Event, frozen=True, kw_only=True):
    """The connection to a rank is gone: what it asked for or was granted counts no more.

    Messages are rank 0's.
    """

    job_id: str
    attempt: int
    rank: int = 0


class PolicyChanged(Event, frozen=True, kw_only=True):
    """From now on another policy decides."""

    policy: str


class Tick(Event, frozen=True, kw_only=True):
    """Time has passed; answers a `WakeAt`, and ends the hold of a `JobRestored`."""


AnyEvent: TypeAlias = (
    NodeUp
    | NodeLost
    | NodeDrained
    | JobSubmitted
    | JobRestored
    | JobCancelled
    | JobStarted
    | JobExited
    | MessageReady
    | MessageDone
    | ComputeReady
    | ComputeDone
    | IterationDone
    | WorkerLost
    | PolicyChanged
    | Tick
)


class Instruction(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something that has to be done."""


class Launch(Instruction, frozen=True, kw_only=True):
    """Start an attempt at a job: one process on each slot; rank r on the r-th."""

    job_id: str
    attempt: int
    slots: tuple[Slot, ...]


class GrantMessage(Instruction, frozen=True, kw_only=True):
    """Tell a job that it may start the all-reduce it asked about."""

    job_id: str
    attempt: int
    request: int


class GrantTurn(Instruction, frozen=True, kw_only=True):
    """Tell a rank that it may start the computation it asked about."""

    job_id: str
    attempt: int
    rank: int
    request: int


class Stop(Instruction, frozen=True, kw_only=True):
    """End the processes of an attempt; `JobExited` will follow."""

    job_id: str
    attempt: int
    reason: str


class WakeAt(Instruction, frozen=True, kw_only=True):
    """Send a `Tick` at this time; a policy wants to be asked again then."""

    at_ns: int


AnyInstruction: TypeAlias = Launch | GrantMessage | GrantTurn | Stop | WakeAt
