"""The decision core: events in, instructions out.

`Core` reads no clock, does no I/O and starts no thread: the same events give the same instructions,
bit for bit. It asks the simulator's policies, at the same points and about the same quantities
(docs/explanation/live-core.md). An event that does not fit the state, such as a late report or
nonsense from a worker, is ignored and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from headway.live.core import (
    decisions,
    invariants,
    job_events,
    leases,
    node_events,
    reasons,
    status,
    worker_events,
)
from headway.live.core.events import (
    AnyEvent,
    AnyInstruction,
    ComputeDone,
    ComputeReady,
    Event,
    IterationDone,
    IterationProfiled,
    JobCancelled,
    JobExited,
    JobRestored,
    JobStarted,
    JobSubmitted,
    MessageDone,
    MessageReady,
    NodeDrained,
    NodeLost,
    NodeUp,
    PolicyChanged,
    PriorityChanged,
    Tick,
    WorkerLost,
)
from headway.live.core.jobs import LiveJob
from headway.live.core.lease_rules import LeaseRules
from headway.live.core.rules import Rules
from headway.live.core.state import CoreState, Counts
from headway.live.core.status import JobView, MessageStatus, NodeView
from headway.network.contention import NetworkModel

Handler: TypeAlias = Callable[[CoreState, Any, list[AnyInstruction]], bool]
"""Changes the state as an event says; returns False if the event does not fit it."""

HANDLERS: Mapping[type[Event], Handler] = MappingProxyType(
    {
        NodeUp: node_events.node_up,
        NodeLost: node_events.node_lost,
        NodeDrained: node_events.node_drained,
        JobSubmitted: job_events.job_submitted,
        JobRestored: job_events.job_restored,
        JobCancelled: job_events.job_cancelled,
        PriorityChanged: job_events.priority_changed,
        JobStarted: job_events.job_started,
        JobExited: job_events.job_exited,
        PolicyChanged: job_events.policy_changed,
        Tick: job_events.tick,
        IterationDone: worker_events.iteration_done,
        IterationProfiled: worker_events.iteration_profiled,
        MessageReady: worker_events.message_ready,
        MessageDone: worker_events.message_done,
        ComputeReady: worker_events.compute_ready,
        ComputeDone: worker_events.compute_done,
        WorkerLost: worker_events.worker_lost,
    }
)


class Core:
    """A live cluster's state and every decision about it."""

    def __init__(
        self, policy: str, network: NetworkModel, seed: int = 0, leases: LeaseRules | None = None
    ) -> None:
        """Decide by a policy; without `leases`, grants last until their jobs end them."""
        self.state = CoreState(policy, network, seed, leases)

    def handle(self, event: AnyEvent) -> list[AnyInstruction]:
        """Handle one event; return the instructions that follow from it, in order.

        Raises:
            InputError: A job, a node or a policy is invalid; nothing has changed.
            PolicyError: A policy does not compile; nothing has changed.
        """
        state = self.state
        instructions: list[AnyInstruction] = []
        state.advance_clock(event.at_ns)

        # 1. Apply what happened.
        accepted = HANDLERS[type(event)](state, event, instructions)
        state.counts.events += 1
        if not accepted:
            state.counts.ignored += 1
            return instructions
        leases.expire(state, instructions)

        # 2. Place queued jobs.
        if not state.placement_paused:
            decisions.place(state, instructions)

        # 3. Admit waiting messages; update the cost of those in flight.
        decisions.admit(state, instructions)
        decisions.rate(state)

        # 4. Give turns to compute on free slots.
        if state.turns.changed:
            state.counts.turns += state.turns.give(state.arrays.shared, instructions)
            leases.begin_turns(state)

        # 5. Ask to be woken when a policy wants to decide again, or a lease or pause may be over.
        decisions.ask_to_wake(state, instructions)
        return instructions

    @property
    def rules(self) -> Rules:
        """The policy in force."""
        return self.state.rules

    @property
    def counts(self) -> Counts:
        """Totals since the core was created."""
        return self.state.counts

    def job(self, job_id: str) -> LiveJob | None:
        """Return a job, or None if it is unknown or forgotten."""
        return self.state.jobs.get(job_id)

    def why(self, job_id: str, now_ns: int = 0) -> str:
        """Return a sentence on what a job does or waits for, at a time after the last event."""
        return reasons.why(self.state, job_id, now_ns)

    def jobs(self) -> list[JobView]:
        """Return all known jobs in order of submission."""
        return status.jobs(self.state)

    def nodes(self) -> list[NodeView]:
        """Return all nodes with the jobs on their slots and the messages on their network."""
        return status.nodes(self.state)

    def messages(self, now_ns: int) -> list[MessageStatus]:
        """Return the messages that compete for the network, with their progress by now."""
        return status.messages(self.state, now_ns)

    def validate(self) -> None:
        """Raise AssertionError if the state is inconsistent; for tests."""
        invariants.validate(self.state)
