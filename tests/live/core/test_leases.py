"""A grant that lasts too long counts as over for others, and its job as stuck."""

from __future__ import annotations

from typing import Any

from headway.live.core.core import Core
from headway.live.core.events import (
    AnyInstruction,
    ComputeDone,
    GrantMessage,
    IterationDone,
    JobExited,
    JobStarted,
    MessageDone,
    MessageReady,
    ReportStuck,
    Stop,
    Tick,
    WakeAt,
    WorkerLost,
)
from headway.live.core.job_state import JobState
from headway.live.core.lease_rules import LeaseRules
from headway.network.contention import NetworkModel
from live.core.test_core import MB, Cluster, grant, turn

SECOND_NS = 10**9
RULES = LeaseRules(least_ns=10 * SECOND_NS, factor=10, stuck_ns=60 * SECOND_NS)


class LeasedCluster(Cluster):
    """Nodes with jobs `a` and `b`, each on two nodes, so that one of them sends at a time."""

    def __init__(self, rules: LeaseRules = RULES, **spec: Any) -> None:
        self.core = Core("ff+srsf:1", NetworkModel(), 0, rules)
        self.now_ns = 0
        self.add_nodes(2, 2)
        for job in "ab":
            self.submit(job, 3, memory_bytes=100 * MB, **spec)
            self.tell(JobStarted, job_id=job, attempt=1)

    def at(self, seconds: float, kind: Any = Tick, **fields: Any) -> list[AnyInstruction]:
        """Tell an event at this time."""
        self.now_ns = round(seconds * SECOND_NS) - 1_000
        return self.tell(kind, **fields)


def stuck(job: str, problem: str) -> ReportStuck:
    return ReportStuck(job_id=job, attempt=1, problem=problem)


NOT_ENDED = "its all-reduce has not ended after 10 s; a rank may hang"


def test_the_end_of_a_lease_admits_the_next_job_and_marks_the_first_as_stuck() -> None:
    cluster = LeasedCluster()
    granted, wake = cluster.ready("a")
    assert (granted, isinstance(wake, WakeAt)) == (grant("a"), True)
    assert cluster.ready("b") == []
    assert cluster.at(9.9) == []
    assert cluster.at(10.1)[:2] == [stuck("a", NOT_ENDED), grant("b")]
    assert cluster.view("a").stuck == NOT_ENDED
    assert cluster.core.why("a") == (
        f"stuck on n0, n1: {NOT_ENDED}; no other job waits for it, and it is stopped in 60 s."
    )
    # Its other buckets wait for the one that hangs, and nothing else does.
    assert cluster.ready("a", 2) == []
    assert cluster.done("b") == []
    # It goes on: the next bucket competes again.
    assert cluster.done("a") == [stuck("a", ""), grant("a", 2)]
    assert cluster.view("a").stuck == ""


def test_a_job_that_stays_stuck_is_stopped_and_retried() -> None:
    cluster = LeasedCluster(retries=1)
    cluster.ready("a")
    cluster.at(11)
    assert cluster.at(70.9) == []
    reason = f"stuck for too long: {NOT_ENDED}"
    assert cluster.at(71) == [Stop(job_id="a", attempt=1, reason=reason)]
    cluster.tell(JobExited, job_id="a", attempt=1, code=143)
    assert (cluster.view("a").attempts, cluster.view("a").stuck) == (2, "")
    cluster.tell(JobStarted, job_id="a", attempt=2)
    cluster.ready("a", attempt=2)
    cluster.at(90)
    cluster.at(200)
    cluster.tell(JobExited, job_id="a", attempt=2, code=143)
    assert cluster.view("a").state is JobState.FAILED
    assert cluster.view("a").reason == reason


def test_a_stuck_job_may_be_left_alone() -> None:
    cluster = LeasedCluster(LeaseRules(least_ns=SECOND_NS, stuck_ns=0))
    cluster.ready("a")
    cluster.at(2)
    assert cluster.at(10**6) == []
    assert cluster.core.why("a").endswith("; no other job waits for it.")


def test_leases_ask_for_few_ticks_and_short_messages_never_outlive_them() -> None:
    cluster = LeasedCluster()
    wakes = 0
    for number in range(1, 3_001):
        at_s = number / 100
        answers = cluster.at(at_s, **_ready("a", number))
        answers += cluster.at(at_s + 0.005, **_done("a", number))
        assert sum(isinstance(one, GrantMessage) for one in answers) == 1
        assert not any(isinstance(one, ReportStuck) for one in answers)
        wakes += sum(isinstance(one, WakeAt) for one in answers)
    assert 1 <= wakes <= 6


def test_leases_follow_the_size_of_messages_and_learn_from_slow_ones() -> None:
    cluster = LeasedCluster()
    # 4 GiB take 3.7 s on this network, so the lease is 37 s.
    cluster.ready("a", mb=4096)
    assert cluster.at(30) == []
    assert cluster.at(37.5)[0].problem.startswith("its all-reduce has not ended after 36.6 s")  # type: ignore[union-attr]
    assert cluster.at(120, **_done("a", 1)) == [stuck("a", "")]
    # A network that is slower than its model: leases double until they fit.
    leases = []
    for number in range(2, 7):
        cluster.ready("b", number, mb=1)
        leases.append(cluster.core.state.jobs["b"].leased_ns / SECOND_NS)
        cluster.at(1000 * number, Tick)
        cluster.at(1000 * number + 1, **_done("b", number))
    assert leases == [10, 20, 40, 80, 160]


def test_a_turn_that_lasts_too_long_is_released_with_what_its_rank_asked_for_since() -> None:
    cluster = LeasedCluster()
    assert cluster.compute("a")[0] == turn("a")
    assert cluster.compute("b") == []
    assert cluster.compute("a", 2) == []
    answers = cluster.at(20)
    problem = "rank 0 has kept its turn to compute on n0:0 for too long"
    assert answers[:3] == [turn("a", 2), stuck("a", problem), turn("b")]
    assert cluster.ignores(ComputeDone, job_id="a", attempt=1, rank=0, request=1)
    # The rank that hung asks again: it goes on, and waits for its turn.
    assert cluster.compute("a", 3) == [stuck("a", "")]
    assert turn("a", 3) in cluster.computed("b")


def test_a_rank_that_stops_answering_makes_its_job_stuck_until_it_reports_progress() -> None:
    cluster = LeasedCluster()
    cluster.ready("a")
    cluster.ready("b")
    answers = cluster.tell(WorkerLost, job_id="a", attempt=1, rank=0, hung=True)
    assert answers == [stuck("a", "rank 0 does not respond"), grant("b")]
    assert cluster.tell(WorkerLost, job_id="a", attempt=1, rank=0, hung=True) == []
    assert cluster.tell(IterationDone, job_id="a", attempt=1, iterations=5) == [stuck("a", "")]


def test_without_rules_grants_last() -> None:
    cluster = Cluster(2, 2)
    for job in "ab":
        cluster.submit(job, 3, memory_bytes=100 * MB)
    assert cluster.ready("a") == [grant("a")]
    assert cluster.ready("b") == []
    cluster.now_ns = 10**18
    assert cluster.tell(Tick) == []


def _ready(job: str, request: int) -> dict[str, Any]:
    sizes = {"message_bytes": MB, "unsent_bytes": MB}
    return {"kind": MessageReady, "job_id": job, "attempt": 1, "request": request, **sizes}


def _done(job: str, request: int) -> dict[str, Any]:
    return {"kind": MessageDone, "job_id": job, "attempt": 1, "request": request}
