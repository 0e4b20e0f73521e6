"""The steps that every event goes through, whatever it is.

1. The core decides.
2. Grants go out, before anything else: a job waits for them.
3. Event and instructions go to the log_format.
4. Jobs that have changed are saved.
5. The other instructions are carried out: a launch only when it is on the disk, so that a scheduler
   that is killed knows at its next start what may be running.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from headway.live import operator_log
from headway.live.core.core import Core
from headway.live.core.events import (
    NEVER_STARTED,
    AnyEvent,
    AnyInstruction,
    ComputeDone,
    ComputeReady,
    GrantMessage,
    GrantTurn,
    IterationDone,
    JobExited,
    JobStarted,
    Launch,
    MessageDone,
    MessageReady,
    Stop,
    Tick,
    WakeAt,
    WorkerLost,
)
from headway.live.daemon import log_format
from headway.live.daemon.attempts import Attempts
from headway.live.daemon.clock import Clock
from headway.live.daemon.event_log import EventLog
from headway.live.daemon.hub import Hub
from headway.live.daemon.job_registry import Book
from headway.live.daemon.metrics import Metrics
from headway.live.daemon.store import Store
from headway.live.executors import Attempt, AttemptEnd, Executor

QUIET_S = 60.0
"""How long after a notice about a failing policy the next one may come."""

_QUICK = (
    MessageReady,
    MessageDone,
    ComputeReady,
    ComputeDone,
    IterationDone,
    WorkerLost,
    Tick,
)
"""Events that by themselves change nothing that is saved."""


class Grants(Protocol):
    """What the scheduler needs of a gate."""

    @property
    def connected(self) -> int:
        """The number of workers that are connected."""

    def grant(self, job: str, attempt: int, request: int, rank: int = 0) -> bool:
        """Let a worker start a message or a computation."""

    def refuse(self, job: str, attempt: int, text: str, rank: int | None = None) -> None:
        """Let a rank, or all, of an attempt go, which then goes on unasked."""


class Steps:
    """Owns the core and all that its instructions need; everything happens in one event loop."""

    def __init__(
        self,
        core: Core,
        store: Store,
        events: EventLog,
        clock: Clock,
        executor: Executor,
        environment: Callable[[Attempt], Mapping[str, str]],
    ) -> None:
        self.core, self.store, self.events, self.clock = core, store, events, clock
        self.executor = executor
        self.attempts = Attempts(executor, store, environment, self._started, self.conclude)
        self.hub, self.metrics = Hub(), Metrics()
        self.book = Book(store, clock, self.hub, self.metrics)
        self.gate: Grants | None = None
        self._held: list[AttemptEnd] | None = None  # ends that wait until their jobs are restored
        # When each request came, by attempt and request.
        self._asked: dict[tuple[str, int], dict[int, int]] = {}
        self._asking: tuple[str, int, int] | None = None  # whose request is being handled
        self._failures, self._quiet_until_s = 0, 0.0  # of the policy, and of notices about them
        self._busy = False
        self._later: deque[AnyEvent] = deque()
        self._wake_ns = 0
        self._wake: asyncio.TimerHandle | None = None

    def handle(self, event: AnyEvent) -> None:
        """Take an event through its steps; one that comes in the middle of another's waits."""
        if self._busy:
            self._later.append(event)
            return
        self._busy = True
        try:
            self._handle(event)
            while self._later:
                self._handle(self._later.popleft())
        finally:
            self._busy = False

    def _handle(self, event: AnyEvent) -> None:
        instructions = self._decide(event)
        if self.core.rules.failures != self._failures:
            self._policy_failed()
        others: list[AnyInstruction] = []
        for instruction in instructions:
            if type(instruction) is GrantMessage:
                self._grant(instruction)
            elif type(instruction) is GrantTurn:
                self._let_compute(instruction)
            else:
                others.append(instruction)
        self.events.add(log_format.next_line(event, instructions))
        if others or type(event) not in _QUICK:
            self._note(event, others)
            for instruction in others:
                self._carry_out(instruction)

    def _decide(self, event: AnyEvent) -> list[AnyInstruction]:
        try:
            return self.core.handle(event)
        except Exception as error:
            operator_log.failure("an event could not be handled", error, of=type(event).__name__)
        if isinstance(event, MessageReady):
            # Training goes on, whatever is wrong with a policy.
            return [GrantMessage(job_id=event.job_id, attempt=event.attempt, request=event.request)]
        if isinstance(event, ComputeReady):
            return [
                GrantTurn(
                    job_id=event.job_id,
                    attempt=event.attempt,
                    rank=event.rank,
                    request=event.request,
                )
            ]
        return []

    def _let_compute(self, grant: GrantTurn) -> None:
        if self.gate is not None:
            self.gate.grant(grant.job_id, grant.attempt, grant.request, grant.rank)

    def _policy_failed(self) -> None:
        """Count what a policy could not decide, and tell of it, but not each time."""
        rules, now_s = self.core.rules, time.monotonic()
        if rules.failures < self._failures:  # Another policy, which begins anew.
            self._failures, self._quiet_until_s = 0, now_s
        self.metrics.policy_failures += rules.failures - self._failures
        self._failures = rules.failures
        if self._failures and now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + QUIET_S
            operator_log.warning(
                "the policy fails",
                policy=rules.name,
                problem=rules.failure,
                failures=rules.failures,
            )

    def _grant(self, grant: GrantMessage) -> None:
        if self.gate is not None:
            self.gate.grant(grant.job_id, grant.attempt, grant.request)
        asked_ns = self._asked.get((grant.job_id, grant.attempt), {}).pop(grant.request, None)
        if asked_ns is not None:
            seconds = (time.perf_counter_ns() - asked_ns) / 1e9
            at_once = self._asking == (grant.job_id, grant.attempt, grant.request)
            (self.metrics.gate if at_once else self.metrics.wait).add(seconds)

    def _note(self, event: AnyEvent, instructions: list[AnyInstruction]) -> None:
        """Save the jobs that an event has changed."""
        jobs = {getattr(event, "job_id", None)}
        jobs |= {getattr(one, "job_id", None) for one in instructions}
        if self.attempts.closing:
            # A launch that is not carried out leaves its job in the queue, for the next scheduler.
            jobs -= {one.job_id for one in instructions if isinstance(one, Launch)}
        for job in jobs:
            if job is not None and job in self.book.records:
                self._note_job(job)

    def _note_job(self, job: str) -> None:
        known = self.core.job(job)
        if known is not None:
            self.book.update(
                job,
                state=known.state,
                attempts=known.attempts,
                unstarted=known.unstarted,
                slots=known.slots,
                iterations=known.iterations,
                reason=known.reason,
            )

    def _carry_out(self, instruction: AnyInstruction) -> None:
        if isinstance(instruction, Launch):
            attempt = Attempt(instruction.job_id, instruction.attempt)
            spec = self.book.records[instruction.job_id].spec
            self.attempts.launch(attempt, spec, instruction.slots)
        elif isinstance(instruction, Stop):
            attempt = Attempt(instruction.job_id, instruction.attempt)
            self.let_go(attempt, "this attempt is being stopped")
            self.attempts.stop(attempt)
        elif isinstance(instruction, WakeAt):
            self._wake_at(instruction.at_ns)

    def _started(self, attempt: Attempt) -> None:
        at_ns = self.clock.now_ns()
        self.handle(JobStarted(at_ns=at_ns, job_id=attempt.job_id, attempt=attempt.number))

    def _wake_at(self, at_ns: int) -> None:
        """Send a Tick then, unless an earlier one is due: the core asks again after each."""
        if self._wake is not None:
            if at_ns >= self._wake_ns:
                return
            self._wake.cancel()
        self._wake_ns = at_ns
        delay_s = max(0, at_ns - self.clock.now_ns()) / 1e9
        self._wake = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._wake = None
        # The loop's clock is coarser than this one: never tell a time before the one asked for.
        self.handle(Tick(at_ns=max(self._wake_ns, self.clock.now_ns())))

    def hold_ends(self) -> None:
        """Keep what the executor says of ends, until their jobs are known."""
        self._held = []

    def release_ends(self) -> list[AttemptEnd]:
        """Return the ends that were kept, and keep no more."""
        held, self._held = self._held or [], None
        return held

    def let_go(self, attempt: Attempt, why: str) -> None:
        """Answer all that a worker has asked at once: it goes on unasked, and waits for nobody."""
        self._asked.pop((attempt.job_id, attempt.number), None)
        if self.gate is not None:
            self.gate.refuse(attempt.job_id, attempt.number, why)

    def attempt_ended(self, ended: AttemptEnd) -> None:
        """Take note that all processes of an attempt are gone, or that it never had any."""
        # What programs say of themselves need not be text that can be stored.
        reason = ended.reason.encode(errors="replace").decode()
        ended = msgspec.structs.replace(ended, reason=reason)
        if self._held is not None:
            self._held.append(ended)
        elif ended.code == NEVER_STARTED:
            self.attempts.failed_to_start(ended)
        else:
            self.conclude(ended)

    def conclude(self, ended: AttemptEnd) -> None:
        """Let an attempt be over."""
        attempt = ended.attempt
        self.attempts.ended(ended)
        self.let_go(attempt, "this attempt is over")
        operator_log.info(
            "attempt ended",
            job=attempt.job_id,
            attempt=attempt.number,
            code=ended.code,
            reason=ended.reason,
        )
        self.handle(
            JobExited(
                at_ns=self.clock.now_ns(),
                job_id=attempt.job_id,
                attempt=attempt.number,
                code=ended.code,
                reason=ended.reason,
            )
        )
