"""`interleave` starts all-reduces alone, and out of the slots of others."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from builders import MB, make_job, make_workload
from headway.domain.job import Job
from headway.domain.records import COMMUNICATION
from headway.engine.run import simulate
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.results.timeline.sinks import Timeline
from headway.workload.generate import Recipe, generate_workload

MS = 1_000_000
SENDING = 669_000 + 894_436
"""A message of 1 MB on the default network, alone."""

SLOT = 669_001 + 894_435
CYCLE = 30 * MS + SLOT


def job(**changes: int) -> Job:
    """Return a job in two servers that computes 30 ms and sends 1 MB."""
    fields: dict[str, Any] = {"gpus": 2, "forward_ns": 10 * MS, "backward_ns": 20 * MS}
    return make_job(**(fields | {"gradient_bytes": MB} | changes))


def messages(
    *jobs: Job,
    placement: str = "spread",
    admission: str = "interleave",
    bucket_mb: float = 0,
    **options: Any,
) -> list[list[int]]:
    """Return when each job's messages start; `spread` gives every job a GPU of each server."""
    timeline = Timeline()
    simulate(
        make_workload(*jobs),
        options.pop("cluster", "2x4"),
        policy=PolicySet.parse(f"{placement}+fifo+{admission}").override(bucket_mb=bucket_mb),
        timeline=timeline,
        **options,
    )
    tasks = timeline.tasks()
    sent = tasks[tasks.kind == COMMUNICATION]
    return [sorted(sent.start_ns[sent.job == index].tolist()) for index in range(len(jobs))]


def test_a_job_that_meets_nobody_starts_at_once() -> None:
    assert messages(job(iterations=2)) == [[30 * MS, 60 * MS + SENDING]]


def test_jobs_that_share_no_server_do_not_know_each_other() -> None:
    apart = messages(job(gpus=3), job(gpus=3), placement="apart", cluster="4x2")
    assert apart == [[30 * MS], [30 * MS]]


def test_the_gap_after_the_slots_is_free_and_the_slot_of_another_is_not() -> None:
    assert SENDING == SLOT
    # At 30 ms the first may start in the gap: it ends when the next cycle begins. At that instant
    # begins the slot of the first; the second may start when it is over.
    first, second = messages(job(iterations=2), job())
    assert first[0] == 30 * MS
    assert second == [CYCLE + SLOT]


def test_jobs_that_have_been_shifted_wait_no_more() -> None:
    _, second = messages(job(iterations=5), job(iterations=5))
    periods = [later - earlier for earlier, later in itertools.pairwise(second)]
    assert periods == [CYCLE] * 4


def test_slots_come_in_the_order_of_the_workload() -> None:
    long = job(iterations=3)
    first, second, third = messages(long, long, long)
    assert (first[0], second[0], third[0]) == (30 * MS, CYCLE + SLOT, CYCLE + 2 * SLOT)


def test_a_job_that_is_late_for_its_slot_does_not_run_into_the_next() -> None:
    # Slots of 36.4 and 27.5 ms in a cycle of 66.4. At 30 ms the first job is in its own slot, but
    # too late; the second still has to wait for its slot, and the first then until that is over.
    large, small = job(gradient_bytes=40 * MB), job(gradient_bytes=30 * MB)
    first, second = messages(large, small)
    slots = [669_001 + 35_777_413, 669_001 + 26_833_059]
    assert second == [slots[0]]
    assert first == [sum(slots)]


def test_without_room_for_the_slots_a_message_starts_as_soon_as_it_is_alone() -> None:
    jobs = [job(gradient_bytes=40 * MB, iterations=4), job(gradient_bytes=40 * MB, iterations=4)]
    # The two all-reduces take longer than an iteration alone: no shift can part them.
    assert messages(*jobs) == messages(*jobs, admission="srsf:1")


def test_nothing_waits_on_a_network_without_contention() -> None:
    quiet = NetworkModel(law="no-contention")
    assert messages(job(), job(), network=quiet) == [[30 * MS], [30 * MS]]


def test_the_latency_of_every_bucket_counts() -> None:
    # Ten buckets: 6.69 ms of latencies instead of 0.669, so the second job's slot begins later.
    _, second, third = messages(*[job(iterations=2)] * 3, bucket_mb=0.1)
    slot = 10 * 669_001 + 894_435
    assert second[0] == 30 * MS + 2 * slot
    # Once it has begun a job sends all its buckets: it is the next job's slot that comes after.
    assert third[0] == second[0] + slot
    assert second[9] < third[0] < second[10]


@pytest.mark.parametrize("seed", range(5))
def test_no_message_waits_for_ever_and_none_shares_a_server(seed: int) -> None:
    """On a network on which several jobs fit into one cycle, and with jobs of many sizes."""
    recipe = Recipe(40, 20, {2: 2, 3: 2, 5: 1, 8: 1}, (3, 30), ["resnet50", "inception-v3"])
    workload = generate_workload(recipe, seed=seed)
    network = NetworkModel(a_ns=70_000, b_ns_per_byte=0.08, eta_ns_per_byte=0.02)
    timeline = Timeline()
    result = simulate(
        workload, "4x4", network=network, policy="ls+srsf+interleave", timeline=timeline
    )
    tasks = timeline.tasks()
    sent = sorted(tasks[tasks.kind == COMMUNICATION], key=lambda task: int(task.start_ns))
    end_ns = dict.fromkeys(range(4), 0)
    for task in sent:
        for server in {gpu // 4 for gpu in result.gpus[task.job]}:
            assert task.start_ns >= end_ns[server]
            end_ns[server] = int(task.end_ns)
    alone = simulate(workload, "4x4", network=network, policy="ls+srsf+srsf:1")
    assert result.finish_ns.tolist() != alone.finish_ns.tolist()
