"""A job as the live scheduler knows it: its specification, its progress and its estimates."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headway.domain.errors import InputError
from headway.domain.limits import (
    LONGEST_NS,
    MAX_BYTES,
    MAX_GPUS,
    MAX_ITERATIONS,
    MAX_PRIORITY,
    whole,
)
from headway.domain.records import NOBODY
from headway.live.core.events import IterationDone, IterationProfiled, JobSpec, Slot
from headway.live.core.job_state import FINISHED, TRANSITIONS, JobState, Trigger
from headway.live.core.observations import Observations

DEFAULT_FORWARD_NS = 25_000_000
DEFAULT_BACKWARD_NS = 50_000_000
DEFAULT_GRADIENT_BYTES = 100 * 2**20
"""Estimates for a job that has not been measured: about a ResNet-50 on a V100."""

SMOOTHING = 8
"""A new measurement has weight 1/SMOOTHING in the moving average."""

MAX_ATTEMPTS = 2**31
NEVER_NS = 2**63 - 1


class MessageRequest(NamedTuple):
    """A request to send a message; `unsent_bytes` is what its iteration has yet to send."""

    message_bytes: int
    unsent_bytes: int


def check_spec(spec: JobSpec) -> None:
    """Raise InputError, naming the field, for a job that no cluster could run."""
    if not spec.command or not all(isinstance(part, str) for part in spec.command):
        raise InputError("must be a program and its arguments.", field="command")
    whole(spec.gpus, "gpus", 1, MAX_GPUS)
    whole(spec.memory_bytes, "memory_bytes", 0, MAX_BYTES)
    whole(spec.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
    whole(spec.retries, "retries", 0, MAX_ATTEMPTS)
    for name, least, most in (
        ("iterations", 1, MAX_ITERATIONS),
        ("forward_ns", 1, LONGEST_NS),
        ("backward_ns", 1, LONGEST_NS),
        ("gradient_bytes", 0, MAX_BYTES),
    ):
        value = getattr(spec, name)
        if value is not None:
            whole(value, name, least, most)


class LiveJob:
    """One job. Its state follows the table in `job_state`; the rest is set by the core alone."""

    __slots__ = (
        "_state",
        "attempts",
        "backward_ns",
        "cancelled",
        "computations",
        "failures",
        "finished_ns",
        "forward_ns",
        "gradient_bytes",
        "granted",
        "granted_ns",
        "iterations",
        "job_id",
        "key",
        "lease_ns",
        "leased_ns",
        "measured",
        "node_names",
        "number",
        "observations",
        "order",
        "overdue",
        "ports",
        "profile",
        "ready_ns",
        "reason",
        "requests",
        "row",
        "running_ns",
        "slots",
        "slowest_ns",
        "spec",
        "started_ns",
        "stop_ns",
        "stuck",
        "stuck_rank",
        "submitted_ns",
        "takes_turns",
        "unstarted",
        "waiting_since_ns",
        "wake_ns",
    )

    def __init__(self, job_id: str, spec: JobSpec, number: int, submitted_ns: int) -> None:
        self.job_id = job_id
        self.spec = spec
        self.number = number  # in order of submission
        self.submitted_ns = submitted_ns
        self._state = JobState.QUEUED
        self.attempts = 0  # including the current one
        self.unstarted = 0  # attempts that never started, which use up no retry
        self.failures = 0  # attempts in a row that failed, each soon after it was launched
        self.ready_ns = 0  # when the next attempt may be launched
        self.cancelled = False  # whether the user has asked for its end
        self.reason = ""  # why its last attempt ended, or is being stopped
        self.started_ns = NOBODY
        self.running_ns = NOBODY  # when all processes of the present attempt had been started
        self.finished_ns = NOBODY
        self.iterations = 0  # done by the current attempt
        self.forward_ns = spec.forward_ns or DEFAULT_FORWARD_NS
        self.backward_ns = spec.backward_ns or DEFAULT_BACKWARD_NS
        self.gradient_bytes = (
            DEFAULT_GRADIENT_BYTES if spec.gradient_bytes is None else spec.gradient_bytes
        )
        self.measured: frozenset[str] = frozenset()  # which of these three come from measurements
        self.profile: IterationProfiled | None = None  # its average iteration, if it is known
        self.observations = Observations()  # of the current attempt
        self.row = NOBODY  # its index in the arrays, until it is finished
        self.key = 0  # the policy's priority key
        self.order = (-spec.priority, 0, number)
        self.slots: tuple[Slot, ...] = ()  # rank r runs on the r-th
        self.node_names: tuple[str, ...] = ()
        self.ports: frozenset[int] = frozenset()  # where its messages meet others; none on one node
        # Open message requests in order. Of a job on several nodes, only the first is shown to
        # policies and may be on the network.
        self.requests: dict[int, MessageRequest] = {}
        self.granted: int | None = None  # the request whose message is on the network
        self.granted_ns = NOBODY  # when that was granted
        self.lease_ns = NEVER_NS  # when others stop waiting for it
        self.leased_ns = 0  # the length of the latest lease
        self.slowest_ns = 0  # how long its messages are known to take, bounded
        self.overdue: int | None = None  # the first request, if it has outlived its lease
        self.stuck = ""  # why the job is stuck; empty if it is not
        self.stuck_rank: int | None = None  # the rank that hangs, if known
        self.stop_ns = NEVER_NS  # when it is to be stopped for that
        # By rank, its open requests to compute, in order, and whether each is granted: granted ones
        # come first.
        self.computations: dict[int, dict[int, bool]] = {}
        self.takes_turns = False  # whether its ranks ask before they compute
        self.waiting_since_ns = NOBODY  # when its first request began to wait for admission
        self.wake_ns = NEVER_NS  # when the admission policy wants to be asked again

    @property
    def state(self) -> JobState:
        """The current state; `apply` changes it."""
        return self._state

    def accepts(self, trigger: Trigger) -> bool:
        """Return whether the table has a transition from the current state."""
        return (self._state, trigger) in TRANSITIONS

    def apply(self, trigger: Trigger) -> None:
        """Change the state as the table says.

        Raises:
            AssertionError: The table has no such transition; the state stays as it is. Handlers
                ignore events that would lead here.
        """
        state = TRANSITIONS.get((self._state, trigger))
        if state is None:
            raise AssertionError(f"job {self.job_id} is {self._state}: cannot {trigger}")
        self._state = state

    @property
    def finished(self) -> bool:
        """Whether it is in a final state."""
        return self._state in FINISHED

    @property
    def exclusive(self) -> bool:
        """Whether it has its slots to itself, because it did not say how much memory it needs."""
        return self.spec.memory_bytes == 0

    @property
    def first_request(self) -> MessageRequest:
        """The first of its open message requests."""
        return next(iter(self.requests.values()))

    @property
    def awaits_gradients(self) -> bool:
        """Whether its next message is the last of an iteration and a rank still computes.

        Earlier messages overlap with computation.
        """
        message_bytes, unsent_bytes = self.first_request
        return bool(self.computations) and message_bytes == unsent_bytes

    @property
    def iterations_left(self) -> int:
        """The estimated number of iterations left, at least 1 until the job exits.

        A job submitted without a number of iterations counts as half done, so that such jobs are
        ordered by the service they have received.
        """
        if self.spec.iterations is None:
            return max(1, self.iterations)
        return max(1, self.spec.iterations - self.iterations)

    def set_key(self, key: int) -> None:
        """Set the policy's key; jobs are ordered by user priority, key and submission."""
        self.key = key
        self.order = (-self.spec.priority, key, self.number)

    def set_priority(self, priority: int) -> None:
        """Set the user's priority."""
        self.spec = msgspec.structs.replace(self.spec, priority=priority)
        self.set_key(self.key)

    def measure(self, event: IterationDone) -> bool:
        """Update the estimates that the specification leaves open.

        Return whether one of them was measured for the first time.
        """
        first = False
        for name, least, most in (
            ("forward_ns", 1, LONGEST_NS),
            ("backward_ns", 1, LONGEST_NS),
            ("gradient_bytes", 0, MAX_BYTES),
        ):
            value = getattr(event, name)
            if value is None or getattr(self.spec, name) is not None or not least <= value <= most:
                continue
            if name in self.measured:
                value = ((SMOOTHING - 1) * getattr(self, name) + value) // SMOOTHING
            else:
                self.measured |= {name}
                first = True
            setattr(self, name, value)
        return first
