"""What the live core answers to each event."""

from __future__ import annotations

from typing import Any

import pytest

from headway.domain.errors import InputError
from headway.gate.frames import MeasuredBucket
from headway.gate.protocol import MAX_OPEN_REQUESTS
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    AnyInstruction,
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
    Stop,
    Tick,
    WakeAt,
    WorkerLost,
)
from headway.live.core.lifecycle import MAX_FINISHED
from headway.live.core.status import JobView
from headway.network.contention import NetworkModel

MB = 2**20
PROFILE: dict[str, Any] = {
    "forward_ns": 1,
    "optimizer_ns": 2,
    "buckets": (MeasuredBucket(3, 4), MeasuredBucket(0, 5)),
}


class Cluster:
    """A core with nodes, a clock of its own, and a check after every event."""

    def __init__(self, *slots: int, policy: str = "ff+srsf:1", memory_mb: int = 1000) -> None:
        self.core = Core(policy, NetworkModel())
        self.now_ns = 0
        self.add_nodes(*slots, memory_mb=memory_mb)

    def add_nodes(self, *slots: int, memory_mb: int = 1000) -> None:
        for number, gpus in enumerate(slots):
            self.tell(NodeUp, node=f"n{number}", gpus=gpus, memory_bytes=memory_mb * MB)

    def tell(self, kind: Any, **fields: Any) -> list[AnyInstruction]:
        self.now_ns += 1_000
        event: AnyEvent = kind(at_ns=self.now_ns, **fields)
        instructions = self.core.handle(event)
        self.core.validate()
        return instructions

    def submit(self, job: str, gpus: int = 1, **fields: Any) -> list[AnyInstruction]:
        spec = JobSpec(command=("train",), gpus=gpus, **fields)
        return self.tell(JobSubmitted, job_id=job, spec=spec)

    def ready(
        self, job: str, request: int = 1, mb: int = 10, **fields: Any
    ) -> list[AnyInstruction]:
        sizes = {"message_bytes": mb * MB, "unsent_bytes": mb * MB}
        return self.tell(
            MessageReady, **({"job_id": job, "attempt": 1, "request": request} | sizes | fields)
        )

    def done(self, job: str, request: int = 1) -> list[AnyInstruction]:
        return self.tell(MessageDone, job_id=job, attempt=1, request=request)

    def compute(self, job: str, request: int = 1, rank: int = 0) -> list[AnyInstruction]:
        return self.tell(ComputeReady, job_id=job, attempt=1, rank=rank, request=request)

    def computed(self, job: str, request: int = 1, rank: int = 0) -> list[AnyInstruction]:
        return self.tell(ComputeDone, job_id=job, attempt=1, rank=rank, request=request)

    def computing(self) -> list[str | None]:
        return [slot.computing for node in self.core.nodes() for slot in node.slots]

    def exit(
        self, job: str, code: int = 0, attempt: int = 1, **fields: Any
    ) -> list[AnyInstruction]:
        return self.tell(JobExited, job_id=job, attempt=attempt, code=code, **fields)

    def view(self, job: str) -> JobView:
        (found,) = [view for view in self.core.jobs() if view.job_id == job]
        return found

    def ignores(self, kind: Any, **fields: Any) -> bool:
        before = self.core.counts.ignored
        return self.tell(kind, **fields) == [] and self.core.counts.ignored == before + 1


def slots(*names: str) -> tuple[Slot, ...]:
    """Return slots such as n0.1."""
    return tuple(Slot(name[:-2], int(name[-1])) for name in names)


def launch(job: str, *names: str, attempt: int = 1) -> Launch:
    return Launch(job_id=job, attempt=attempt, slots=slots(*names))


def grant(job: str, request: int = 1, attempt: int = 1) -> GrantMessage:
    return GrantMessage(job_id=job, attempt=attempt, request=request)


def turn(job: str, request: int = 1, rank: int = 0) -> GrantTurn:
    return GrantTurn(job_id=job, attempt=1, rank=rank, request=request)


def test_a_job_is_placed_when_there_is_room_and_says_what_it_lacks_when_not() -> None:
    cluster = Cluster(2, 1)
    assert cluster.submit("a", 2) == [launch("a", "n0.0", "n0.1")]
    assert cluster.submit("b", 2) == []
    assert cluster.core.why("b") == "needs 2 slots to itself; 1 is free."
    assert cluster.submit("c", 1) == [launch("c", "n1.0")]
    assert cluster.view("a").state == "starting"
    cluster.tell(JobStarted, job_id="a", attempt=1)
    assert cluster.view("a").state == "running"
    assert cluster.exit("a") == [launch("b", "n0.0", "n0.1")]
    assert cluster.view("a").state == "done"
    assert cluster.core.why("nobody") == "there is no job nobody."


def test_jobs_that_say_how_much_memory_they_need_share_slots_and_others_do_not() -> None:
    cluster = Cluster(1, memory_mb=1000)
    assert cluster.submit("a", memory_bytes=400 * MB) == [launch("a", "n0.0")]
    assert cluster.submit("b", memory_bytes=600 * MB) == [launch("b", "n0.0")]
    assert cluster.submit("c") == []
    cluster.exit("a")
    assert cluster.exit("b") == [launch("c", "n0.0")]
    assert cluster.submit("d", memory_bytes=1) == []
    assert "needs 1 slot with" in cluster.core.why("d")
    assert cluster.submit("e", memory_bytes=1001 * MB) == []
    assert cluster.core.why("e") == ("needs 1 slot with 1,001 MB; the cluster has 0 of that size.")


def test_a_users_priority_comes_before_the_policys_order() -> None:
    cluster = Cluster(1, policy="ff+srsf+srsf:1")
    cluster.submit("first")
    cluster.submit("short", iterations=1)
    cluster.submit("long", iterations=1_000)
    cluster.submit("urgent", iterations=1_000, priority=5)
    assert cluster.exit("first") == [launch("urgent", "n0.0")]
    assert cluster.exit("urgent") == [launch("short", "n0.0")]
    assert cluster.exit("short") == [launch("long", "n0.0")]


def test_a_job_of_a_priority_above_0_keeps_its_slots_from_jobs_of_lower_ones() -> None:
    cluster = Cluster(2, 2)
    cluster.submit("small")
    assert cluster.submit("large", 4, priority=2) == []
    assert cluster.submit("below") == cluster.submit("lower", priority=1) == []
    assert cluster.core.why("lower") == (
        "needs 1 slot to itself; 3 are free, but it waits behind job large, which has a higher "
        "priority."
    )
    assert cluster.core.why("large") == "needs 4 slots to itself; 3 are free."
    # A job of the same priority may go ahead.
    assert cluster.submit("beside", priority=2) == [launch("beside", "n0.1")]
    assert cluster.exit("small") == []
    assert cluster.exit("beside") == [launch("large", "n0.0", "n0.1", "n1.0", "n1.1")]
    assert cluster.exit("large") == [launch("lower", "n0.0"), launch("below", "n0.1")]


@pytest.mark.parametrize("priority", [0, -1])
def test_a_job_without_a_priority_above_0_lets_others_pass(priority: int) -> None:
    cluster = Cluster(2)
    cluster.submit("small")
    assert cluster.submit("large", 2, priority=priority) == []
    assert cluster.submit("below", priority=-5) == [launch("below", "n0.1")]


def test_slots_that_a_job_cannot_use_are_not_kept_for_it() -> None:
    cluster = Cluster(1, memory_mb=500)
    cluster.tell(NodeUp, node="n1", gpus=1, memory_bytes=1000 * MB)
    cluster.submit("holder", memory_bytes=600 * MB)
    assert cluster.submit("urgent", memory_bytes=800 * MB, priority=1) == []
    assert cluster.submit("fits", memory_bytes=400 * MB) == [launch("fits", "n0.0")]
    # There is room beside the holder, too, but that slot is kept.
    assert cluster.submit("behind", memory_bytes=300 * MB) == []
    assert "waits behind job urgent" in cluster.core.why("behind")
    assert cluster.submit("impossible", 3, priority=9) == []
    assert cluster.exit("fits") == [launch("behind", "n0.0")]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (JobCancelled, {"job_id": "urgent"}),
        (NodeDrained, {"node": "n1", "draining": True}),
        (NodeLost, {"node": "n1"}),
        (PriorityChanged, {"job_id": "urgent", "priority": 0}),
        (PriorityChanged, {"job_id": "behind", "priority": 7}),
    ],
)
def test_jobs_go_on_when_they_are_no_longer_behind_another(
    kind: Any, fields: dict[str, Any]
) -> None:
    cluster = Cluster(2, 1, policy="ff+srsf:1")
    cluster.submit("small")
    cluster.submit("urgent", 3, priority=7)
    assert cluster.submit("behind") == []
    assert cluster.tell(kind, **fields) == [launch("behind", "n0.1")]


def test_a_priority_can_be_changed_while_a_job_waits_or_runs() -> None:
    cluster = Cluster(1)
    cluster.submit("first")
    cluster.submit("a")
    cluster.submit("b")
    assert cluster.tell(PriorityChanged, job_id="b", priority=4) == []
    assert cluster.view("b").spec.priority == 4
    assert cluster.exit("first") == [launch("b", "n0.0")]
    assert cluster.tell(PriorityChanged, job_id="b", priority=-1) == []
    assert cluster.view("b").spec.priority == -1
    for job, priority in (("b", -1), ("first", 3), ("nobody", 3)):
        assert cluster.ignores(PriorityChanged, job_id=job, priority=priority)
    with pytest.raises(InputError, match="priority: must be at most"):
        cluster.tell(PriorityChanged, job_id="b", priority=2**40)


def test_equal_keys_go_by_submission_also_after_a_retry() -> None:
    cluster = Cluster(1, policy="ff+smallest+srsf:1")
    cluster.submit("a", retries=1)
    cluster.submit("b")
    assert cluster.exit("a", 1, reason="out of memory") == [launch("a", "n0.0", attempt=2)]
    assert cluster.view("a").attempts == 2
    assert cluster.exit("a", 1, attempt=2) == [launch("b", "n0.0")]
    assert cluster.view("a").state == "failed"
    assert cluster.core.why("a") == "failed: exit code 1."


def test_a_failed_job_that_waits_for_its_next_attempt_keeps_the_reason() -> None:
    cluster = Cluster(1)
    cluster.submit("a", retries=2)
    cluster.tell(NodeDrained, node="n0", draining=True)
    assert cluster.exit("a", 1, reason="out of memory") == []
    assert cluster.view("a").state == "queued"
    assert cluster.core.why("a") == (
        "last attempt failed (out of memory); needs 1 slot to itself; 0 are free "
        "(not counting draining nodes: n0)."
    )


def test_a_job_that_keeps_failing_pauses_longer_and_longer_and_holds_up_no_other() -> None:
    cluster = Cluster(1)
    cluster.submit("a", retries=1000)
    assert cluster.exit("a", 1) == [launch("a", "n0.0", attempt=2)]
    for attempt, pause_s in enumerate([1, 2, 4, 8, 16, 32, 60, 60], start=2):
        (wake,) = cluster.exit("a", 7, attempt)
        ready_ns = cluster.now_ns + pause_s * 10**9
        assert wake == WakeAt(at_ns=ready_ns)
        assert cluster.core.why("a") == (
            f"last attempt failed (exit code 7); starts again in {pause_s} s."
        )
        assert cluster.core.why("a", ready_ns - 1).endswith("starts again in 1 s.")
        # Another job has the slot meanwhile.
        assert cluster.submit(f"b{attempt}") == [launch(f"b{attempt}", "n0.0")]
        assert cluster.exit(f"b{attempt}") == []
        cluster.now_ns = ready_ns - 1_000
        assert cluster.tell(Tick) == [launch("a", "n0.0", attempt=attempt + 1)]
    # An attempt that ran for longer than any pause was worth its restart.
    cluster.now_ns += 61 * 10**9
    assert cluster.exit("a", 7, 10) == [launch("a", "n0.0", attempt=11)]
    cluster.exit("a", 7, 11)
    cluster.tell(JobCancelled, job_id="a")
    assert cluster.view("a").state == "cancelled"


def test_an_attempt_that_was_stopped_for_its_node_is_followed_at_once() -> None:
    cluster = Cluster(1, 1, 1)
    cluster.submit("a", retries=3)
    for attempt, node in enumerate(("n0", "n1"), start=1):
        cluster.tell(NodeLost, node=node)
        (restarted,) = cluster.exit("a", 137, attempt)
        assert isinstance(restarted, Launch)


def test_one_message_at_a_time_is_granted_where_nodes_are_shared() -> None:
    cluster = Cluster(2, 2, policy="spread+srsf:1")
    cluster.submit("a", 2)
    cluster.submit("b", 2)
    assert cluster.ready("a") == [grant("a")]
    assert cluster.ready("b") == []
    assert cluster.core.why("b") == (
        "its all-reduce of 10 MB waits: 1 message on n0 (job a, about 10 MB left), 1 message on n1 "
        "(job a, about 10 MB left); srsf:1 does not admit it."
    )
    node = cluster.core.nodes()[0]
    assert [message.job_id for message in node.messages] == ["a"]
    assert [message.job_id for message in node.waiting] == ["b"]
    assert [slot.jobs for slot in node.slots] == [("a",), ("b",)]
    assert cluster.done("a") == [grant("b")]
    assert cluster.done("b") == []
    assert cluster.core.counts.grants == 2


def test_ada_dual_admits_a_message_that_is_small_beside_what_is_left() -> None:
    cluster = Cluster(3, 3, policy="spread+ada-srsf")
    for job in "abc":
        cluster.submit(job, 2)
    cluster.ready("a", mb=100)
    assert cluster.ready("b", mb=60) == []
    assert cluster.ready("c", mb=10) == [grant("c")]
    assert cluster.done("c") == []
    # What is left of the large message is estimated as time passes.
    cluster.now_ns += 60_000_000
    assert cluster.tell(Tick) == []
    left = cluster.core.nodes()[0].messages[0].left_bytes
    assert 20 * MB < left < 60 * MB
    assert cluster.done("a") == [grant("b")]


def test_a_job_on_one_node_is_granted_at_once_and_never_counts() -> None:
    cluster = Cluster(2, policy="ff+srsf:1")
    cluster.submit("a", 2)
    assert cluster.ready("a", 1) == [grant("a", 1)]
    assert cluster.ready("a", 2) == [grant("a", 2)]
    assert cluster.core.nodes()[0].messages == ()
    assert cluster.done("a", 2) == []
    assert cluster.done("a", 1) == []
    assert cluster.core.counts.ignored == 0


def test_a_jobs_further_messages_queue_behind_its_first() -> None:
    cluster = Cluster(2, 2, policy="spread+srsf:1")
    cluster.submit("a", 2, iterations=2)
    cluster.submit("b", 2, iterations=1)
    assert cluster.ready("a", 1) == [grant("a", 1)]
    assert cluster.ready("a", 2) == []
    assert cluster.ready("b", 1) == []
    # At its end the next message of the same job competes with the others', in the policy's order.
    assert cluster.done("a", 1) == [grant("b", 1)]
    assert cluster.done("b", 1) == [grant("a", 2)]


def test_an_all_reduce_that_started_unasked_is_forgotten_when_it_ends() -> None:
    cluster = Cluster(2, 2, policy="spread+srsf:1")
    cluster.submit("a", 2)
    cluster.submit("b", 2)
    cluster.ready("a")
    cluster.ready("b", 1)
    cluster.ready("b", 2)
    assert cluster.done("b", 1) == []
    assert cluster.done("a") == [grant("b", 2)]
    assert cluster.core.counts.ignored == 0


@pytest.mark.parametrize("kind", [WorkerLost, JobExited, JobCancelled, NodeLost])
def test_what_a_job_was_granted_is_free_at_once_when_it_is_gone(kind: Any) -> None:
    cluster = Cluster(2, 1, 1, policy="ff+srsf:1")
    cluster.submit("a", 3)
    cluster.tell(NodeUp, node="n3", gpus=1, memory_bytes=MB)
    cluster.submit("c", 2)
    cluster.exit("a")
    cluster.submit("a2", 3)  # on n0 and n1
    cluster.exit("c")
    fields: dict[Any, dict[str, Any]] = {
        WorkerLost: {"job_id": "a2", "attempt": 1},
        JobExited: {"job_id": "a2", "attempt": 1, "code": 1},
        JobCancelled: {"job_id": "a2"},
        NodeLost: {"node": "n1"},
    }
    cluster.tell(NodeUp, node="n4", gpus=1, memory_bytes=MB)
    assert {slot.node for slot in cluster.view("a2").slots} == {"n0", "n1"}
    cluster.ready("a2", 1)
    cluster.ready("a2", 2)
    cluster.tell(kind, **fields[kind])
    assert all(not node.messages and not node.waiting for node in cluster.core.nodes())


def test_a_waiting_job_goes_on_when_the_worker_before_it_is_lost() -> None:
    cluster = Cluster(2, 2, policy="spread+srsf:1")
    cluster.submit("a", 2)
    cluster.submit("b", 2)
    cluster.ready("a")
    cluster.ready("b")
    assert cluster.tell(WorkerLost, job_id="a", attempt=1) == [grant("b")]
    assert cluster.view("a").state == "starting"
    # It attaches again and asks anew.
    assert cluster.ready("a") == []
    assert cluster.done("b") == [grant("a")]


def test_a_cancelled_job_leaves_the_queue_or_is_stopped() -> None:
    cluster = Cluster(1)
    cluster.submit("a", retries=3)
    cluster.submit("b")
    cluster.submit("c")
    assert cluster.tell(JobCancelled, job_id="b") == []
    assert cluster.view("b").state == "cancelled"
    assert cluster.tell(JobCancelled, job_id="a") == [
        Stop(job_id="a", attempt=1, reason="cancelled")
    ]
    assert cluster.view("a").state == "stopping"
    assert cluster.ignores(JobCancelled, job_id="a")
    assert cluster.exit("a", -15) == [launch("c", "n0.0")]
    assert cluster.view("a").state == "cancelled"
    assert cluster.ignores(JobCancelled, job_id="a")


def test_a_lost_nodes_jobs_are_stopped_and_keep_their_other_slots_until_they_exit() -> None:
    cluster = Cluster(1, 1, 1)
    cluster.submit("a", 2, retries=1)
    cluster.submit("b", 2)
    assert cluster.tell(NodeLost, node="n0") == [
        Stop(job_id="a", attempt=1, reason="node n0 was lost")
    ]
    assert cluster.core.why("a") == "stopping: node n0 was lost."
    assert cluster.view("a").slots == slots("n1.0")
    assert cluster.tell(NodeUp, node="n0", gpus=1, memory_bytes=MB) == [launch("b", "n2.0", "n0.0")]
    assert cluster.exit("a", 1) == []
    assert "last attempt failed (node n0 was lost)" in cluster.core.why("a")
    assert cluster.exit("b") == [launch("a", "n1.0", "n2.0", attempt=2)]


def test_a_node_that_comes_back_with_other_slots_has_lost_its_jobs() -> None:
    cluster = Cluster(2)
    cluster.submit("a", 2)
    assert cluster.ignores(NodeUp, node="n0", gpus=2, memory_bytes=1000 * MB)
    assert cluster.tell(NodeUp, node="n0", gpus=1, memory_bytes=1000 * MB) == [
        Stop(job_id="a", attempt=1, reason="node n0 was lost")
    ]
    assert cluster.view("a").slots == ()
    cluster.exit("a", 1)
    assert cluster.view("a").state == "failed"


def test_a_draining_node_gets_no_jobs_even_when_it_was_lost_in_between() -> None:
    cluster = Cluster(1)
    cluster.tell(NodeDrained, node="n0", draining=True)
    assert cluster.submit("a") == []
    cluster.tell(NodeLost, node="n0")
    assert cluster.tell(NodeUp, node="n0", gpus=1, memory_bytes=MB) == []
    assert cluster.core.nodes()[0].draining
    assert cluster.tell(NodeDrained, node="n0", draining=False) == [launch("a", "n0.0")]
    assert cluster.ignores(NodeDrained, node="n9", draining=True)
    assert cluster.ignores(NodeDrained, node="n0", draining=False)


def test_restored_jobs_run_where_they_were_or_wait_as_before() -> None:
    cluster = Cluster(1, 1)
    spec = JobSpec(command=("train",), gpus=2, retries=5, iterations=10)
    restored = {"spec": spec, "submitted_ns": 5, "attempts": 3}
    assert not cluster.tell(
        JobRestored, job_id="a", iterations=4, slots=slots("n1.0", "n0.0"), **restored
    )
    assert cluster.view("a").state == "running"
    assert cluster.view("a").iterations == 4
    assert cluster.tell(JobRestored, job_id="b", **restored) == []
    assert cluster.ignores(JobRestored, job_id="b", **restored)
    assert cluster.exit("a", attempt=3) == [launch("b", "n0.0", "n1.0", attempt=4)]


@pytest.mark.parametrize("names", [("n0.0", "n7.0"), ("n0.0", "n0.5"), ("n0.0", "n0.0"), ("n0.0",)])
def test_a_restored_job_whose_slots_are_gone_is_stopped(names: tuple[str, ...]) -> None:
    cluster = Cluster(1, 1)
    spec = JobSpec(command=("train",), gpus=2, retries=1)
    fields: dict[str, Any] = {"spec": spec, "submitted_ns": 0, "attempts": 1}
    reason = "its slots are no longer available"
    assert cluster.tell(JobRestored, job_id="a", slots=slots(*names), **fields) == [
        Stop(job_id="a", attempt=1, reason=reason)
    ]
    assert cluster.view("a").slots == slots("n0.0")
    assert cluster.exit("a", 1) == [launch("a", "n0.0", "n1.0", attempt=2)]


def test_what_a_job_did_not_say_is_measured_and_smoothed() -> None:
    cluster = Cluster(1)
    cluster.submit("a", backward_ns=7)
    view = cluster.view("a")
    assert (view.forward_ns, view.backward_ns, view.gradient_bytes) == (25_000_000, 7, 100 * MB)
    measured = {"forward_ns": 800, "backward_ns": 900, "gradient_bytes": 80}
    cluster.tell(IterationDone, job_id="a", attempt=1, iterations=1, **measured)
    cluster.tell(IterationDone, job_id="a", attempt=1, iterations=3, forward_ns=1_600)
    view = cluster.view("a")
    assert (view.forward_ns, view.backward_ns, view.gradient_bytes) == (900, 7, 80)
    assert view.measured == ("forward_ns", "gradient_bytes")
    assert view.iterations == 3


def test_a_job_without_a_number_of_iterations_is_taken_to_be_half_way() -> None:
    cluster = Cluster(1)
    cluster.submit("a", forward_ns=10, backward_ns=20)
    row = cluster.core.state.jobs["a"].row
    jobs = cluster.core.state.arrays.cluster.jobs
    assert jobs.iterations_left[row] == 1
    cluster.tell(IterationDone, job_id="a", attempt=1, iterations=8)
    assert jobs.iterations_left[row] == 8
    assert jobs.iterations[row] == 16
    assert jobs.remaining_service_ns[row] == 240


def test_a_job_that_goes_beyond_its_iterations_has_one_left_until_it_exits() -> None:
    cluster = Cluster(1)
    cluster.submit("a", iterations=2, forward_ns=10, backward_ns=20)
    cluster.tell(IterationDone, job_id="a", attempt=1, iterations=5)
    row = cluster.core.state.jobs["a"].row
    assert cluster.core.state.arrays.cluster.jobs.remaining_service_ns[row] == 30


def test_a_policy_can_be_changed_while_messages_run_and_jobs_wait() -> None:
    cluster = Cluster(2, 2, policy="spread+fifo+srsf:1")
    cluster.submit("a", 2)
    cluster.submit("b", 2)
    cluster.ready("a")
    cluster.ready("b")
    with pytest.raises(InputError, match="unknown policy"):
        cluster.tell(PolicyChanged, policy="nonsense")
    cluster.core.validate()
    assert cluster.core.rules.name == "spread+fifo+srsf:1"
    assert cluster.tell(PolicyChanged, policy="spread+fifo+srsf:2") == [grant("b")]
    cluster.submit("long", 4, iterations=100)
    cluster.submit("short", 4, iterations=1)
    cluster.exit("a")
    cluster.tell(PolicyChanged, policy="spread+srsf+srsf:2")
    assert [type(i) for i in cluster.exit("b")] == [Launch]
    assert cluster.view("short").state == "starting"


def test_late_and_unknown_events_are_ignored_and_counted() -> None:
    cluster = Cluster(1, 1)
    cluster.submit("a", 2)
    cluster.submit("queued")
    job = {"job_id": "a", "attempt": 1}
    for other in (
        {"job_id": "a", "attempt": 2},
        {"job_id": "z", "attempt": 1},
        {"job_id": "queued", "attempt": 0},
    ):
        sizes = {"message_bytes": 1, "unsent_bytes": 1}
        assert cluster.ignores(MessageReady, **other, request=1, **sizes)
        assert cluster.ignores(MessageDone, **other, request=1)
        assert cluster.ignores(IterationDone, **other, iterations=1)
        assert cluster.ignores(IterationProfiled, **other, **PROFILE)
        assert cluster.ignores(WorkerLost, **other)
        assert cluster.ignores(ComputeReady, **other, rank=0, request=1)
        assert cluster.ignores(ComputeDone, **other, rank=0, request=1)
        assert cluster.ignores(JobStarted, **other)
        assert cluster.ignores(JobExited, **other, code=0)
    assert cluster.ignores(MessageDone, **job, request=9)
    assert cluster.ignores(MessageReady, **job, request=1, message_bytes=-1, unsent_bytes=1)
    assert cluster.ignores(MessageReady, **job, request=1, message_bytes=2**60, unsent_bytes=1)
    assert cluster.ignores(ComputeDone, **job, rank=0, request=9)
    assert cluster.ignores(ComputeReady, **job, rank=2, request=1)
    assert cluster.ignores(ComputeReady, **job, rank=-1, request=1)
    assert cluster.ignores(IterationDone, **job, iterations=0)
    assert cluster.ignores(IterationDone, **job, iterations=10**13)
    for wrong in (
        {"forward_ns": -1},
        {"optimizer_ns": 2**61 + 1},
        {"buckets": ()},
        {"buckets": (MeasuredBucket(-1, 1),)},
        {"buckets": (MeasuredBucket(1, 2**53 + 1),)},
        {"buckets": (MeasuredBucket(1, 1),) * 1_025},
    ):
        assert cluster.ignores(IterationProfiled, **job, **PROFILE | wrong)
    cluster.ready("a")
    assert cluster.ignores(MessageReady, **job, request=1, message_bytes=1, unsent_bytes=1)
    cluster.done("a")
    assert cluster.ignores(MessageDone, **job, request=1)
    cluster.tell(JobStarted, **job)
    assert cluster.ignores(JobStarted, **job)
    assert cluster.ignores(NodeLost, node="n9")
    assert cluster.ignores(JobCancelled, job_id="z")


def test_a_worker_that_floods_the_gate_with_questions_is_cut_off() -> None:
    cluster = Cluster(1, 1)
    cluster.submit("a", 2)
    for request in range(MAX_OPEN_REQUESTS):
        cluster.core.handle(
            MessageReady(
                at_ns=0, job_id="a", attempt=1, request=request, message_bytes=1, unsent_bytes=1
            )
        )
        cluster.core.handle(ComputeReady(at_ns=0, job_id="a", attempt=1, rank=0, request=request))
    assert cluster.ignores(
        MessageReady, job_id="a", attempt=1, request=-5, message_bytes=1, unsent_bytes=1
    )
    assert cluster.ignores(ComputeReady, job_id="a", attempt=1, rank=0, request=-5)


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"gpus": 0}, "gpus"),
        ({"gpus": 2**60}, "gpus"),
        ({"memory_bytes": -1}, "memory_bytes"),
        ({"iterations": 0}, "iterations"),
        ({"forward_ns": 0}, "forward_ns"),
        ({"gradient_bytes": 2**60}, "gradient_bytes"),
        ({"priority": 2**40}, "priority"),
        ({"retries": -1}, "retries"),
        ({"command": ()}, "command"),
    ],
)
def test_an_impossible_job_is_refused_before_anything_changes(
    fields: dict[str, Any], where: str
) -> None:
    cluster = Cluster(1)
    with pytest.raises(InputError) as caught:
        cluster.tell(JobSubmitted, job_id="a", spec=JobSpec(**({"command": ("x",)} | fields)))
    assert caught.value.field == where
    assert cluster.core.jobs() == []
    cluster.core.validate()


def test_reports_of_absurd_size_do_not_upset_the_sums() -> None:
    cluster = Cluster(1, 1, policy="lwf:1+ada-srsf")
    cluster.submit("a", 2, iterations=10**12)
    cluster.submit("b", 2, iterations=10**12, forward_ns=2**61, gradient_bytes=2**53)
    huge = {"forward_ns": 2**61, "backward_ns": 2**61, "gradient_bytes": 2**53}
    cluster.tell(IterationDone, job_id="a", attempt=1, iterations=10**11, **huge)
    assert (cluster.core.state.arrays.cluster.jobs.remaining_service_ns >= 0).all()
    assert (cluster.core.state.arrays.cluster.servers.load_ns >= 0).all()


def test_interleave_asks_to_be_woken_and_grants_then() -> None:
    cluster = Cluster(2, 2, policy="spread+fifo+interleave")
    for job in "ab":
        cluster.submit(
            job, 2, forward_ns=60_000_000, backward_ns=60_000_000, gradient_bytes=40 * MB
        )
    instructions = cluster.ready("b", mb=40)
    assert len(instructions) == 1
    (wake,) = instructions
    at_ns = getattr(wake, "at_ns", 0)
    assert at_ns > cluster.now_ns
    assert f"does not admit it before {at_ns / 1e9:.3f} s" in cluster.core.why("b")
    cluster.now_ns = at_ns - 1_000
    assert cluster.tell(Tick) == [grant("b")]


def test_time_that_goes_back_stands_still() -> None:
    cluster = Cluster(1, 1)
    cluster.submit("a", 2)
    cluster.ready("a")
    before_ns = cluster.core.state.now_ns
    cluster.now_ns = -(10**15)
    cluster.tell(Tick)
    assert cluster.core.state.now_ns == before_ns
    with pytest.raises(InputError, match="at_ns"):
        cluster.core.handle(Tick(at_ns=2**63))


def test_many_jobs_and_nodes_make_the_arrays_grow_and_are_forgotten_again() -> None:
    cluster = Cluster(policy="lwf:1+ada-srsf")
    core = cluster.core
    for node in range(40):
        core.handle(NodeUp(at_ns=0, node=f"n{node}", gpus=4, memory_bytes=100))
    live: list[str] = []
    for number in range(1_500):
        core.handle(
            JobSubmitted(
                at_ns=number,
                job_id=str(number),
                spec=JobSpec(command=("x",), gpus=1 + number % 6, memory_bytes=60),
            )
        )
        live.append(str(number))
        if len(live) > 100:
            core.handle(JobExited(at_ns=number, job_id=live.pop(number % 20), attempt=1, code=0))
        if number % 100 == 0:
            core.validate()
    core.validate()
    assert len(core.state.arrays.cluster.jobs) <= 2_048
    assert len(core.state.finished) <= MAX_FINISHED
    for job in live:
        if core.state.jobs[job].state == "queued":
            core.handle(JobCancelled(at_ns=2_000, job_id=job))
        else:
            core.handle(JobExited(at_ns=2_000, job_id=job, attempt=1, code=0))
    core.validate()


def test_a_policy_that_fails_leaves_the_cluster_running(tmp_path: Any) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "def twice(cluster, job, candidates, parameter):\n"
        "    candidates[:] = candidates[0]\n"
        "    return True\n"
        "def out_of_range(cluster, job, parameter):\n"
        "    return cluster.jobs[len(cluster.jobs)].gpus\n"
    )
    cluster = Cluster(1, 1, policy=f"{file}:twice+fifo+{file}:out_of_range")
    assert cluster.submit("a", 2) == []
    assert "gave a GPU twice" in cluster.core.why("a")
    cluster.tell(PolicyChanged, policy=f"ff+fifo+{file}:out_of_range")
    assert cluster.ready("a") == [grant("a")]
    assert cluster.core.rules.failures == 1


def sharing(*jobs: str, policy: str = "ff+srsf:1", gpus: int = 1, **fields: Any) -> Cluster:
    """Return a cluster of one node whose slots all these jobs share."""
    cluster = Cluster(gpus, policy=policy)
    for job in jobs:
        cluster.submit(job, gpus, memory_bytes=MB, **fields)
    return cluster


def test_on_a_shared_slot_one_job_computes_at_a_time_and_the_first_in_order_goes_next() -> None:
    cluster = sharing("a", policy="ff+fifo+srsf:1")
    cluster.submit("b", memory_bytes=MB)
    cluster.submit("c", memory_bytes=MB)
    cluster.submit("urgent", memory_bytes=MB, priority=1)
    assert cluster.compute("c") == [turn("c")]
    assert cluster.compute("b") == cluster.compute("a") == cluster.compute("urgent") == []
    assert cluster.computing() == ["c"]
    assert cluster.core.why("a") == "starting on n0."
    cluster.tell(JobStarted, job_id="a", attempt=1)
    assert cluster.core.why("a") == "running on n0; rank 0 waits while job c computes on n0:0."
    assert cluster.computed("c") == [turn("urgent")]
    assert cluster.computed("urgent") == [turn("a")]
    assert cluster.computed("a") == [turn("b")]
    assert cluster.computed("b") == []
    assert cluster.computing() == [None]
    assert cluster.core.counts.turns == 4


def test_each_rank_has_turns_of_its_own_on_its_own_slot() -> None:
    cluster = sharing("a", "b", gpus=2)
    assert cluster.compute("a", rank=0) == [turn("a", rank=0)]
    assert cluster.compute("b", rank=1) == [turn("b", rank=1)]
    assert cluster.computing() == ["a", "b"]
    assert cluster.compute("b", rank=0) == cluster.compute("a", rank=1) == []
    assert cluster.computed("b", rank=1) == [turn("a", rank=1)]
    assert cluster.tell(WorkerLost, job_id="a", attempt=1, rank=0) == [turn("b", rank=0)]
    assert cluster.computing() == ["b", "a"]


def test_a_rank_that_asks_before_it_has_ended_competes_at_its_end() -> None:
    cluster = sharing("first", "second", policy="ff+fifo+srsf:1")
    cluster.compute("first", 1)
    assert cluster.compute("second", 1) == cluster.compute("first", 2) == []
    assert cluster.computed("first", 1) == [turn("first", 2)]
    assert cluster.computed("first", 2) == [turn("second", 1)]
    assert cluster.compute("second", 2) == cluster.compute("first", 3) == []
    assert cluster.computed("second", 1) == [turn("first", 3)]
    # A computation that started without a turn ends without one.
    assert cluster.computed("second", 2) == []
    assert cluster.computed("first", 3) == []


def test_a_job_alone_on_its_slot_computes_at_once_until_another_comes() -> None:
    cluster = sharing("a")
    assert cluster.compute("a", 1) == [turn("a", 1)]
    assert cluster.compute("a", 2) == [turn("a", 2)]
    cluster.submit("b", memory_bytes=MB)
    assert cluster.compute("a", 3) == cluster.compute("b") == []
    assert cluster.computed("a", 1) == []
    assert cluster.computed("a", 2) == [turn("a", 3)]
    assert cluster.exit("b") == []
    assert cluster.compute("a", 4) == [turn("a", 4)]


@pytest.mark.parametrize("kind", [WorkerLost, JobExited, JobCancelled])
def test_a_turn_is_free_at_once_when_its_job_is_gone(kind: Any) -> None:
    cluster = sharing("a", "b", gpus=2)
    for rank in range(2):
        cluster.compute("a", rank=rank)
        cluster.compute("b", rank=rank)
    fields: dict[Any, dict[str, Any]] = {
        WorkerLost: {"job_id": "a", "attempt": 1},
        JobExited: {"job_id": "a", "attempt": 1, "code": 1},
        JobCancelled: {"job_id": "a"},
    }
    instructions = cluster.tell(kind, **fields[kind])
    assert [one for one in instructions if isinstance(one, GrantTurn)] == [
        turn("b", rank=rank) for rank in range(1 if kind is WorkerLost else 2)
    ]
    assert cluster.computing() == (["b", "a"] if kind is WorkerLost else ["b", "b"])


def test_a_lost_connection_of_another_rank_leaves_messages_as_they_are() -> None:
    cluster = Cluster(1, 1)
    cluster.submit("a", 2)
    cluster.ready("a")
    cluster.tell(WorkerLost, job_id="a", attempt=1, rank=1)
    assert [message.job_id for message in cluster.core.nodes()[0].messages] == ["a"]


@pytest.mark.parametrize("lost", [False, True])
def test_the_last_message_of_an_iteration_waits_until_no_rank_computes(lost: bool) -> None:
    cluster = Cluster(1, 1)
    cluster.submit("a", gpus=2, memory_bytes=MB)
    cluster.tell(JobStarted, job_id="a", attempt=1)
    for rank in (0, 1):
        cluster.compute("a", rank=rank)
    # A bucket with others to come goes at once.
    assert cluster.ready("a", request=1, mb=10, unsent_bytes=30 * MB) == [grant("a", 1)]
    cluster.done("a", request=1)
    assert cluster.ready("a", request=2, mb=20) == []
    assert "waits until all ranks have computed" in cluster.core.why("a")
    assert cluster.computed("a", rank=0) == []
    if lost:
        assert cluster.tell(WorkerLost, job_id="a", attempt=1, rank=1) == [grant("a", 2)]
    else:
        assert cluster.computed("a", rank=1) == [grant("a", 2)]
    # What the ranks compute next holds up nothing that has been granted.
    cluster.compute("a", request=2, rank=1)
    assert "sending 20 MB" in cluster.core.why("a")
    assert cluster.done("a", request=2) == []


def test_a_message_that_waits_is_taken_back_when_a_rank_turns_out_to_compute() -> None:
    cluster = Cluster(1, 1)
    for name in "ab":
        cluster.submit(name, gpus=2, memory_bytes=MB)
    assert cluster.ready("a") == [grant("a")]
    assert cluster.ready("b") == []
    assert cluster.compute("b", rank=1) == [turn("b", rank=1)]
    assert cluster.done("a") == []
    assert cluster.computed("b", rank=1) == [grant("b")]


def test_turns_on_a_lost_node_are_forgotten() -> None:
    cluster = sharing("a", "b")
    cluster.compute("a")
    cluster.compute("b")
    assert [type(one) for one in cluster.tell(NodeLost, node="n0")] == [Stop, Stop]
    assert cluster.ignores(ComputeReady, job_id="b", attempt=1, rank=0, request=2)
