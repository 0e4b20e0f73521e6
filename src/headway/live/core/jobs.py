"""A job as the live scheduler remembers it, and what it takes the job to need."""

from __future__ import annotations

from headway.domain.errors import InputError
from headway.domain.limits import LONGEST_NS, MOST_BYTES, MOST_GPUS, MOST_ITERATIONS, whole
from headway.domain.records import NOBODY
from headway.live.core.events import IterationDone, JobSpec, Slot
from headway.live.core.job_state import FINISHED, JobState

USUAL_FORWARD_NS = 25_000_000
USUAL_BACKWARD_NS = 50_000_000
USUAL_GRADIENT_BYTES = 100 * 2**20
"""What a job is taken to need until it has been measured: about a ResNet-50 on a V100."""

SMOOTHING = 8
"""A further measurement counts one in so many parts, what was known before the others."""

MOST_ATTEMPTS = 2**31
WIDEST_PRIORITY = 2**31
"""The bound of the core's arithmetic; the API accepts less."""
NEVER_NS = 2**63 - 1

Request = tuple[int, int]
"""What a job asked to send: bytes of the message, and unsent bytes of its iteration."""


def check_spec(spec: JobSpec) -> None:
    """Refuse a job that no cluster could run, naming the field at fault."""
    if not spec.command or not all(isinstance(part, str) for part in spec.command):
        raise InputError("must be a program and its arguments.", field="command")
    whole(spec.gpus, "gpus", 1, MOST_GPUS)
    whole(spec.memory_bytes, "memory_bytes", 0, MOST_BYTES)
    whole(spec.priority, "priority", -WIDEST_PRIORITY, WIDEST_PRIORITY)
    whole(spec.retries, "retries", 0, MOST_ATTEMPTS)
    for name, least, most in (
        ("iterations", 1, MOST_ITERATIONS),
        ("forward_ns", 1, LONGEST_NS),
        ("backward_ns", 1, LONGEST_NS),
        ("gradient_bytes", 0, MOST_BYTES),
    ):
        value = getattr(spec, name)
        if value is not None:
            whole(value, name, least, most)


class LiveJob:
    """One job; `Core` alone changes it."""

    __slots__ = (
        "attempts",
        "backward_ns",
        "cancelled",
        "computations",
        "finished_ns",
        "forward_ns",
        "gradient_bytes",
        "granted",
        "iterations",
        "job_id",
        "key",
        "measured",
        "node_names",
        "number",
        "order",
        "ports",
        "reason",
        "requests",
        "row",
        "slots",
        "spec",
        "started_ns",
        "state",
        "submitted_ns",
        "unstarted",
        "waiting_since_ns",
        "wake_ns",
    )

    def __init__(self, job_id: str, spec: JobSpec, number: int, submitted_ns: int) -> None:
        self.job_id = job_id
        self.spec = spec
        self.number = number  # in the order of submission
        self.submitted_ns = submitted_ns
        self.state = JobState.QUEUED
        self.attempts = 0
        self.unstarted = 0  # of those: how many never started, and count for no retry
        self.cancelled = False  # whether a user wants it to end
        self.reason = ""
        self.started_ns = NOBODY
        self.finished_ns = NOBODY
        self.iterations = 0  # that its attempt has done
        self.forward_ns = spec.forward_ns or USUAL_FORWARD_NS
        self.backward_ns = spec.backward_ns or USUAL_BACKWARD_NS
        self.gradient_bytes = (
            USUAL_GRADIENT_BYTES if spec.gradient_bytes is None else spec.gradient_bytes
        )
        self.measured: frozenset[str] = frozenset()  # of these three
        self.row = NOBODY  # in the view, while the job is not over
        self.key = 0
        self.order = (-spec.priority, 0, number)
        self.slots: tuple[Slot, ...] = ()
        self.node_names: tuple[str, ...] = ()
        self.ports: frozenset[int] = frozenset()  # where its messages meet others
        # Requests in order; the first is the one that policies know, unless the job is on one node.
        self.requests: dict[int, Request] = {}
        self.granted: int | None = None  # the request on the network
        # By rank, its requests to compute in order, and which are granted: the first ones.
        self.computations: dict[int, dict[int, bool]] = {}
        self.waiting_since_ns = NOBODY  # since when its first request has not been granted
        self.wake_ns = NEVER_NS  # when the admission wants to be asked again

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in FINISHED

    @property
    def alone(self) -> bool:
        """Whether it has its slots to itself: it did not say how much memory it needs."""
        return self.spec.memory_bytes == 0

    @property
    def still_computes(self) -> bool:
        """Whether the last message of its iteration is next, and a rank's gradients are not there.

        What comes before is sent while ranks compute.
        """
        message_bytes, unsent_bytes = next(iter(self.requests.values()))
        return bool(self.computations) and message_bytes == unsent_bytes

    @property
    def iterations_left(self) -> int:
        """The iterations that it is taken to have left, at least one until it exits.

        Without a number it is taken to be half-way, so that such jobs go by what they have had.
        """
        if self.spec.iterations is None:
            return max(1, self.iterations)
        return max(1, self.spec.iterations - self.iterations)

    def set_key(self, key: int) -> None:
        """Set the policy's key: users' priorities first, then the key, then submission."""
        self.key = key
        self.order = (-self.spec.priority, key, self.number)

    def measure(self, event: IterationDone) -> bool:
        """Learn what the job did not say; return whether something is known for the first time."""
        new = False
        for name, least, most in (
            ("forward_ns", 1, LONGEST_NS),
            ("backward_ns", 1, LONGEST_NS),
            ("gradient_bytes", 0, MOST_BYTES),
        ):
            value = getattr(event, name)
            if value is None or getattr(self.spec, name) is not None or not least <= value <= most:
                continue
            if name in self.measured:
                value = ((SMOOTHING - 1) * getattr(self, name) + value) // SMOOTHING
            else:
                self.measured |= {name}
                new = True
            setattr(self, name, value)
        return new
