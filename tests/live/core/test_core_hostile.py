"""Any sequence of events, sensible or hostile, leaves the core consistent and can be repeated."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.gate.frames import MeasuredBucket
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    ComputeDone,
    ComputeReady,
    GrantMessage,
    GrantTurn,
    IterationDone,
    IterationProfiled,
    JobCancelled,
    JobExited,
    JobRestored,
    JobSpec,
    JobStarted,
    JobSubmitted,
    Launch,
    MessageDone,
    MessageReady,
    NodeDrained,
    NodeLost,
    NodeUp,
    PolicyChanged,
    PriorityChanged,
    Slot,
    Tick,
    WorkerLost,
)
from headway.live.core.lease_rules import LeaseRules
from headway.live.core.status import JobView
from headway.live.daemon.event_log.format import encode_entry, encode_header
from headway.live.daemon.event_log.reader import EventLogReader
from headway.network.contention import NetworkModel

POLICIES = [
    "lwf:1+ada-srsf",
    "spread+srsf:1",
    "least-delay+srtf+ada-dual",
    "spread+las+k-way",
    "rand+fifo+interleave",
]
NETWORKS = [
    NetworkModel(),
    NetworkModel(ring_size=3, law="max-min"),
    NetworkModel(law="no-contention"),
]
LEASES = [None, LeaseRules(least_ns=2_000, factor=1, stuck_ns=15_000_000)]
NODES = ["n0", "n1", "n2"]
JOBS = ["a", "b", "c", "d", "e"]

some = st.integers(0, 3)
ranks = st.sampled_from([0, 0, 0, 1, 1, 2, 3, -1, 2**70])
large = st.one_of(st.integers(0, 2**20), st.sampled_from([2**53, 2**61, 2**63, 2**70, -1]))
maybe = st.one_of(st.none(), large)
attempts = st.one_of(st.none(), st.none(), st.none(), some)
"""None stands for the attempt that there is."""

specs = st.builds(
    JobSpec,
    command=st.just(("train",)),
    gpus=st.integers(1, 4),
    memory_bytes=st.sampled_from([0, 3, 5, 10]),
    iterations=st.one_of(st.none(), st.sampled_from([1, 5, 10**12])),
    priority=some,
    retries=some,
    forward_ns=st.sampled_from([None, 1_000, 2**61]),
    gradient_bytes=st.sampled_from([None, 0, 10**6, 2**53]),
)
nodes, jobs = st.sampled_from(NODES), st.sampled_from(JOBS)
slots = st.lists(st.builds(Slot, nodes, some), max_size=4).map(tuple)
MOVES: dict[Any, dict[str, st.SearchStrategy[Any]]] = {
    NodeUp: {"node": nodes, "gpus": st.integers(1, 3), "memory_bytes": st.sampled_from([0, 8, 10])},
    NodeLost: {"node": nodes},
    NodeDrained: {"node": nodes, "draining": st.booleans()},
    JobSubmitted: {"job_id": jobs, "spec": specs},
    JobRestored: {
        "job_id": jobs,
        "spec": specs,
        "submitted_ns": some,
        "attempts": st.integers(1, 3),
        "iterations": some,
        "slots": slots,
        "hold": st.booleans(),
    },
    JobCancelled: {"job_id": jobs},
    PriorityChanged: {"job_id": jobs, "priority": some},
    JobStarted: {"job_id": jobs, "attempt": attempts},
    JobExited: {"job_id": jobs, "attempt": attempts, "code": st.integers(0, 1)},
    MessageReady: {
        "job_id": jobs,
        "attempt": attempts,
        "request": some,
        "message_bytes": large,
        "unsent_bytes": large,
    },
    MessageDone: {"job_id": jobs, "attempt": attempts, "request": some},
    IterationDone: {
        "job_id": jobs,
        "attempt": attempts,
        "iterations": st.one_of(st.integers(0, 20), large),
        "forward_ns": maybe,
        "backward_ns": maybe,
        "gradient_bytes": maybe,
    },
    IterationProfiled: {
        "job_id": jobs,
        "attempt": attempts,
        "forward_ns": large,
        "optimizer_ns": large,
        "buckets": st.lists(st.builds(MeasuredBucket, large, large), max_size=3).map(tuple),
    },
    ComputeReady: {"job_id": jobs, "attempt": attempts, "rank": ranks, "request": some},
    ComputeDone: {"job_id": jobs, "attempt": attempts, "rank": ranks, "request": some},
    WorkerLost: {"job_id": jobs, "attempt": attempts, "rank": ranks, "hung": st.booleans()},
    PolicyChanged: {"policy": st.sampled_from(POLICIES)},
    Tick: {},
}
OFTEN: list[Any] = [
    JobSubmitted,
    MessageReady,
    MessageReady,
    MessageReady,
    MessageDone,
    MessageDone,
    ComputeReady,
    ComputeReady,
    ComputeReady,
    ComputeDone,
    ComputeDone,
]
RARELY: list[Any] = [kind for kind in MOVES if kind is not NodeUp]


@st.composite
def moves(draw: st.DrawFn) -> list[tuple[Any, dict[str, Any]]]:
    """Draw events without times, which begin with nodes."""
    kinds = [NodeUp, NodeUp, NodeUp, JobSubmitted, JobSubmitted]
    kinds += draw(st.lists(st.sampled_from([*MOVES, *RARELY, *OFTEN, *OFTEN]), max_size=40))
    return [(kind, {name: draw(values) for name, values in MOVES[kind].items()}) for kind in kinds]


class Account:
    """What workers and executors know; it must fit what they are told."""

    def __init__(self, leased: bool) -> None:
        self.leased = leased
        self.open: dict[tuple[str, int], set[int]] = {}
        self.granted: dict[tuple[str, int], set[int]] = {}
        self.launched: dict[str, int] = {}
        self.computing: dict[tuple[str, int, int], dict[int, bool]] = {}

    def note(self, event: AnyEvent) -> None:
        if isinstance(event, ComputeReady):
            attempt = event.job_id, event.attempt, event.rank
            self.computing.setdefault(attempt, {}).setdefault(event.request, False)
        elif isinstance(event, ComputeDone):
            attempt = event.job_id, event.attempt, event.rank
            self.computing.get(attempt, {}).pop(event.request, None)
        elif isinstance(event, WorkerLost):
            self.computing.pop((event.job_id, event.attempt, event.rank), None)
        if isinstance(event, MessageReady):
            self.open.setdefault((event.job_id, event.attempt), set()).add(event.request)
        elif isinstance(event, MessageDone):
            for known in (self.open, self.granted):
                known.get((event.job_id, event.attempt), set()).discard(event.request)
        elif isinstance(event, WorkerLost) and event.rank == 0:
            self.open.pop((event.job_id, event.attempt), None)
            self.granted.pop((event.job_id, event.attempt), None)

    def check(self, instruction: object) -> None:
        if isinstance(instruction, GrantMessage):
            attempt = instruction.job_id, instruction.attempt
            assert instruction.request in self.open[attempt]
            granted = self.granted.setdefault(attempt, set())
            assert instruction.request not in granted
            granted.add(instruction.request)
        elif isinstance(instruction, GrantTurn):
            rank = self.computing[instruction.job_id, instruction.attempt, instruction.rank]
            # After the end of a lease a number may be used again.
            assert not rank[instruction.request] or self.leased
            rank[instruction.request] = True
        elif isinstance(instruction, Launch):
            assert instruction.attempt > self.launched.get(instruction.job_id, 0)
            self.launched[instruction.job_id] = instruction.attempt


def check_placement(core: Core, launches: list[Launch]) -> None:
    """No job gets a slot that a queued one of higher priority could use; no slot stays unused."""
    views, nodes = {job.job_id: job for job in core.jobs()}, core.nodes()
    queue = [job for job in views.values() if job.state == "queued"]
    memory = {node.node: node.memory_bytes for node in nodes}
    room = [node.memory_bytes for node in nodes if not node.draining for _ in node.slots]

    def is_kept(job: JobView, node: str) -> bool:
        return any(
            other.spec.priority > max(0, job.spec.priority)
            and other.spec.memory_bytes <= memory[node]
            and sum(other.spec.memory_bytes <= size for size in room) >= other.spec.gpus
            for other in queue
        )

    for launch in launches:
        assert not any(is_kept(views[launch.job_id], slot.node) for slot in launch.slots)
    if core.state.placement_paused or core.rules.placement_name == "least-delay":
        return
    for job in queue:
        free = [
            slot
            for node in nodes
            if not node.draining and not is_kept(job, node.node)
            for slot in node.slots
            if (job.spec.memory_bytes and slot.free_bytes >= job.spec.memory_bytes)
            or not (job.spec.memory_bytes or slot.jobs)
        ]
        assert len(free) < job.spec.gpus


@settings(max_examples=100)
@given(
    st.sampled_from(POLICIES),
    st.sampled_from(NETWORKS),
    st.sampled_from(LEASES),
    moves(),
    st.randoms(),
)
def test_the_core_stays_consistent_and_its_log_repeats(
    policy: str,
    network: NetworkModel,
    leases: LeaseRules | None,
    drawn: list[tuple[Any, dict[str, Any]]],
    dice: Any,
) -> None:
    core = Core(policy, network, 1, leases)
    account = Account(leases is not None)
    lines = [encode_header(policy, network, 1, leases)]
    now_ns = 0
    for kind, fields in drawn:
        now_ns += dice.choice([0, 1, 1_000, 10_000_000, -5])
        if fields.get("attempt", 0) is None:
            known = core.state.jobs.get(fields["job_id"])
            fields["attempt"] = known.attempts if known else 1
        event = kind(at_ns=now_ns, **fields)
        account.note(event)
        instructions = core.handle(event)
        core.validate()
        for instruction in instructions:
            account.check(instruction)
        check_placement(core, [one for one in instructions if isinstance(one, Launch)])
        lines.append(encode_entry(event, instructions))
    log = EventLogReader(io.BytesIO(b"".join(lines)), "log")
    again = Core(log.header.policy, log.header.network, log.header.seed, log.header.leases)
    for entry in log:
        assert again.handle(entry.event) == entry.instructions
    assert again.jobs() == core.jobs()
    assert again.nodes() == core.nodes()
    assert again.counts == core.counts
