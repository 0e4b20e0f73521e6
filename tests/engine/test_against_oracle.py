"""The engine and the oracle agree on every task of every job, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from agreement import check
from builders import DATA
from headway.domain.cluster import Cluster
from headway.domain.workload import Workload
from headway.network.contention import NetworkModel
from strategies import ADMISSIONS, PLACEMENTS, PRIORITIES, Case, cases, run_oracle


@pytest.mark.parametrize("placement", PLACEMENTS)
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_placement(
    placement: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases()), placement=placement))


@pytest.mark.parametrize("placement", PLACEMENTS)
@settings(max_examples=min(settings().max_examples, 60))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_on_general_clusters(
    placement: str, data: st.DataObject
) -> None:
    """Servers of unequal size, several types of GPU, racks."""
    check(replace(data.draw(cases(general=True)), placement=placement))


@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_where_jobs_have_gpus_to_themselves(
    data: st.DataObject,
) -> None:
    """Then servers become empty here and there, which `least-delay` gives to large jobs."""
    case = data.draw(cases())
    memory_bytes = case.cluster.gpu_memory_bytes
    jobs = [replace(job, memory_bytes=memory_bytes) for job in case.workload]
    cluster = Cluster(data.draw(st.integers(4, 9)), data.draw(st.integers(1, 2)), memory_bytes)
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=len(jobs), max_size=len(jobs)))
    jobs = [replace(job, gpus=gpus) for job, gpus in zip(jobs, sizes, strict=True)]
    check(replace(case, workload=Workload(jobs), cluster=cluster, placement="least-delay"))


@pytest.mark.parametrize("priority", PRIORITIES)
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_priority(
    priority: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases()), priority=priority))


@pytest.mark.parametrize("admission", ADMISSIONS)
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_admission(
    admission: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases()), admission=admission))


@pytest.mark.parametrize("name", ["lattice", "fickle"])
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_when_an_admission_names_a_time(
    name: str, data: st.DataObject
) -> None:
    case = data.draw(cases())
    jobs = [replace(job, gradient_bytes=job.gradient_bytes % 5_000_000) for job in case.workload]
    step_ns = data.draw(st.sampled_from([100_000, 1_000_000, 1_000_003]))
    admission = f"{DATA}/lattice.py:{name}:{step_ns}"
    check(replace(case, workload=Workload(jobs), admission=admission, bucket_bytes=1_000_000))


@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_when_slots_fit_into_a_cycle(data: st.DataObject) -> None:
    case = data.draw(cases())
    jobs = [replace(job, gradient_bytes=job.gradient_bytes % 400_000) for job in case.workload]
    network = data.draw(st.sampled_from([NetworkModel(a_ns=70_000), NetworkModel(a_ns=0)]))
    bucket_bytes = data.draw(st.sampled_from([None, 50_000]))
    case = replace(case, workload=Workload(jobs), network=network, bucket_bytes=bucket_bytes)
    check(replace(case, admission="interleave"))


@settings(max_examples=min(settings().max_examples, 50))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_on_many_servers(data: st.DataObject) -> None:
    case = data.draw(cases())
    jobs = [replace(job, gpus=data.draw(st.integers(20, 69))) for job in case.workload.jobs[:4]]
    cluster = Cluster(70, 1, case.cluster.gpu_memory_bytes)
    check(replace(case, workload=Workload(jobs), cluster=cluster, placement="rand"))


def overlapping(case: Case) -> int:
    """Return the largest number of messages that overlap in time on one server."""
    outcome = run_oracle(case)
    messages = [task for task in outcome.tasks if task.kind == "message"]
    most = 0
    for server in range(case.cluster.servers):
        here = [m for m in messages if server in case.cluster.servers_of(outcome.gpus[m.job])]
        most = max([most, *(sum(o.start_ns <= m.start_ns < o.end_ns for o in here) for m in here)])
    return most


def queued(case: Case) -> bool:
    outcome = run_oracle(case)
    return any(s > j.arrival_ns for s, j in zip(outcome.start_ns, case.workload, strict=True))


def shared(case: Case) -> bool:
    outcome = run_oracle(case)
    intervals = zip(outcome.gpus, outcome.start_ns, outcome.finish_ns, strict=True)
    jobs = list(intervals)
    return any(
        set(a[0]) & set(b[0]) and a[1] < b[2] and b[1] < a[2]
        for place, a in enumerate(jobs)
        for b in jobs[:place]
    )


def joins(case: Case) -> bool:
    """Whether AdaDUAL lets a message join another."""
    return case.network.messages_meet and overlapping(replace(case, admission="ada-dual")) == 2


def shifts(case: Case) -> bool:
    """Whether a message waits for a time although its servers are idle."""
    usual = run_oracle(replace(case, admission="srsf:1"))
    shifted = run_oracle(replace(case, admission="interleave"))
    return shifted.finish_ns != usual.finish_ns


def parts(case: Case) -> bool:
    """Whether `apart` leaves a job in the queue for which there is memory."""
    usual = run_oracle(replace(case, placement="consolidate", priority="fifo"))
    apart = run_oracle(replace(case, placement="apart", priority="fifo"))
    return any(a > u for a, u in zip(apart.start_ns, usual.start_ns, strict=True))


def passes(case: Case) -> bool:
    """Whether a job sends between two buckets of another's all-reduce, on a server of both."""
    outcome = run_oracle(case)
    messages = [task for task in outcome.tasks if task.kind == "message"]
    servers = [set(case.cluster.servers_of(gpus)) for gpus in outcome.gpus]
    return case.network.messages_meet and any(
        first.job == last.job != between.job
        and first.iteration == last.iteration
        and first.end_ns <= between.start_ns < between.end_ns <= last.start_ns
        and servers[first.job] & servers[between.job]
        for first in messages
        for last in messages
        for between in messages
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reaches", "what"),
    [
        (queued, "a job that waits for memory"),
        (shared, "two jobs on one GPU"),
        (
            lambda case: case.network.messages_meet and overlapping(case) >= 3,
            "three-way contention",
        ),
        (joins, "AdaDUAL joining a message"),
        (passes, "a bucket that passes another job's"),
        (shifts, "a message shifted in time"),
        (parts, "a job kept apart from another"),
    ],
    ids=["queued", "shared", "contended", "joined", "passed", "shifted", "parted"],
)
def test_random_cases_reach_what_is_hard(reaches: object, what: str) -> None:
    assert callable(reaches)
    enough = settings(phases=[Phase.generate], max_examples=5_000)
    assert find(cases(), reaches, settings=enough), what
