"""A run that is cut and continued is the run that is not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.moment import InFlight, Moment, PendingMessage, StartedJob
from headway.domain.records import COMMUNICATION
from headway.domain.workload import Workload
from headway.engine.run import iterations_after, simulate
from headway.network.contention import NetworkModel
from headway.results.timeline.sinks import Timeline
from strategies import Case, cases, oracle_before, run_engine

FEWER = settings(max_examples=max(20, settings().max_examples * 2 // 5))
"""Each example is cut at several moments."""


def moment_of(simulation: oracle.Simulation, time_ns: int) -> Moment:
    """Return the moment at which the oracle is, after the instant at this time."""
    return Moment(time_ns, tuple(_started(simulation, job) for job in simulation.jobs if job.gpus))


def _started(simulation: oracle.Simulation, job: oracle.Job) -> StartedJob:
    common = StartedJob(job.index, job.gpus, job.start_ns, job.iterations_done)
    if job.finish_ns >= 0:
        return replace(common, finish_ns=job.finish_ns)
    running = [simulation.running.get(gpu) for gpu in job.gpus]
    first_message = 0
    if job.expansion is None:
        done = [2 - len(job.compute[gpu]) for gpu in job.gpus]
        messages_done = frozenset[int]()
    else:
        first_message = sum(not node.is_message for node in job.expansion.nodes)
        done = [
            sum(rank in node.ranks and not node.is_message for node in job.ended)
            for rank in range(len(job.gpus))
        ]
        messages_done = frozenset(
            node.number - first_message for node in job.ended if node.is_message
        )
    return replace(
        common,
        tasks_done=tuple(done),
        task_start_ns=tuple(
            task.start_ns if task is not None and task.job == job.index else None
            for task in running
        ),
        messages_done=messages_done,
        messages=tuple(_pending(transfer, first_message) for transfer in job.transfers),
    )


def _pending(transfer: oracle.Transfer, first: int) -> PendingMessage:
    number = 0 if transfer.number < 0 else transfer.number - first
    message = transfer.message
    if message is None:
        later = None if transfer.not_before_ns < 0 else transfer.not_before_ns
        whole = transfer.next_bytes == transfer.unsent_bytes
        return PendingMessage(number, 0, transfer.unsent_bytes, later, whole)
    since_ns = max(message.last_change_ns, message.end_of_latency_ns)
    flight = InFlight(
        message.number,
        message.admitted_ns,
        since_ns,
        message.remaining_bytes,
        message.cost,
        message.end_ns,
    )
    unsent = transfer.unsent_bytes + transfer.bucket_bytes
    whole = transfer.unsent_bytes == 0
    return PendingMessage(number, 0, unsent, is_whole=whole, in_flight=flight)


def check_cuts(case: Case, choose: st.DataObject) -> None:
    """Let the oracle run, cut it at some instants, and let the engine go on from there."""
    simulation = oracle_before(case)
    moments = []
    while any(job.finish_ns < 0 for job in simulation.jobs):
        time_ns = simulation.next_instant()
        simulation.instant(time_ns)
        moments.append(moment_of(simulation, time_ns))
    start = [job.start_ns for job in simulation.jobs]
    finish = [job.finish_ns for job in simulation.jobs]
    for moment in choose.draw(st.lists(st.sampled_from(moments), min_size=1, max_size=3)):
        timeline = Timeline()
        for result in (
            run_engine(case, initial=moment),
            run_engine(case, timeline, initial=moment),
        ):
            assert result.start_ns.tolist() == start
            assert result.finish_ns.tolist() == finish
            assert list(result.gpus) == [job.gpus for job in simulation.jobs]
        whole = run_engine(case)
        assert result.gpu_busy_ns.tolist() == whole.gpu_busy_ns.tolist()
        assert result.service_ns.tolist() == whole.service_ns.tolist()
        ends = sorted(task.end_ns for task in simulation.tasks if task.end_ns > moment.time_ns)
        assert sorted(timeline.tasks().end_ns.tolist()) == ends


@FEWER
@given(case=cases(general=True), choose=st.data())
def test_a_run_that_is_cut_goes_on_as_if_it_were_not(case: Case, choose: st.DataObject) -> None:
    check_cuts(case, choose)


@FEWER
@given(case=cases(general=True, graphs=True), choose=st.data())
def test_a_run_of_graphs_that_is_cut_goes_on(case: Case, choose: st.DataObject) -> None:
    check_cuts(case, choose)


@FEWER
@given(case=cases(general=True, graphs=True))
def test_a_moment_may_leave_the_decisions_to_the_policies(case: Case) -> None:
    jobs = [replace(job, arrival_ns=0) for job in case.workload]
    case = replace(case, workload=Workload(jobs))
    usual, resumed = run_engine(case), run_engine(case, initial=Moment(0, settled=False))
    assert resumed.start_ns.tolist() == usual.start_ns.tolist()
    assert resumed.finish_ns.tolist() == usual.finish_ns.tolist()
    assert resumed.gpus == usual.gpus


def two_jobs() -> Workload:
    """One job of four GPUs, then one of two."""
    return Workload([Job("a", 0, 4, 3, 10, 20, 1000), Job("b", 5, 2, 1, 10, 20, 1000)])


RUNNING = StartedJob(0, (0, 1, 2, 3), 0, 1, tasks_done=(1, 1, 1, 1), task_start_ns=(4, 4, 4, 4))
SENT = InFlight(0, 5, 8, 900.0, 1.0, 908)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job": 2}, "job 2: not an index of the workload, or twice."),
        ({"gpus": (0, 1, 2)}, "job 'a' must have 4 different GPUs in ascending order."),
        ({"gpus": (0, 2, 1, 3)}, "job 'a' must have 4 different GPUs in ascending order."),
        ({"gpus": (1, 2, 3, 8)}, "job 'a' has a GPU that is not from 0 to 7."),
        ({"start_ns": 11}, "job 'a' must start between its arrival and the moment."),
        ({"finish_ns": 9}, "job 'a' has finished, but not all its iterations are done."),
        (
            {"finish_ns": 11, "iterations_done": 3},
            "job 'a' must finish between its start and the moment.",
        ),
        (
            {"iterations_done": 3},
            "job 'a' must have done from 0 to 2 iterations, or have finished.",
        ),
        ({"tasks_done": (1,)}, "job 'a' needs the tasks of each of its 4 ranks."),
        (
            {"tasks_done": (3, 1, 1, 1)},
            "job 'a' has done 3 tasks on a rank of 2, or runs another.",
        ),
        (
            {"task_start_ns": (4, 4, 4, 11)},
            "job 'a' has a task that starts after the moment.",
        ),
        (
            {"messages": (PendingMessage(1, 5, 1000),)},
            "job 'a' has a message whose number is not from 0 to 0.",
        ),
        ({"messages": (PendingMessage(0, 5, 1000),) * 2}, "job 'a' has a message twice."),
        (
            {"messages": (PendingMessage(0, 5, 1000),)},
            "job 'a' has a message while it still computes.",
        ),
        (
            {"messages_done": frozenset({0})},
            "job 'a' has sent its message, so its iteration is over.",
        ),
        (
            {
                "tasks_done": (2,) * 4,
                "task_start_ns": (None,) * 4,
                "messages": (PendingMessage(0, 5, 10, in_flight=SENT),),
            },
            "job 'a' has a message in flight that does not fit the moment.",
        ),
        (
            {
                "tasks_done": (2,) * 4,
                "task_start_ns": (None,) * 4,
                "messages": (PendingMessage(0, 5, 10, not_before_ns=9),),
            },
            "job 'a' has a message that waits for a time that is past.",
        ),
    ],
)
def test_what_cannot_be_a_moment_is_refused(changes: dict[str, Any], message: str) -> None:
    moment = Moment(10, (replace(RUNNING, **changes),))
    with pytest.raises(InputError, match=f"^initial: {re.escape(message)}$"):
        simulate(two_jobs(), "2x4", initial=moment)


def test_a_gpu_computes_for_one_job_at_a_time() -> None:
    beside = StartedJob(1, (0, 1), 5, 0, tasks_done=(0, 0), task_start_ns=(5, None))
    with pytest.raises(InputError, match="computes on a GPU where another job does"):
        simulate(two_jobs(), "2x4", initial=Moment(10, (RUNNING, beside)))


def test_jobs_of_a_moment_must_fit_the_memory() -> None:
    workload = Workload([replace(job, memory_bytes=10 * 2**30) for job in two_jobs()])
    beside = StartedJob(1, (0, 1), 5, 0, tasks_done=(0, 0), task_start_ns=(None, None))
    with pytest.raises(InputError, match="job 'b' has a GPU without enough memory left"):
        simulate(workload, "2x4", initial=Moment(10, (RUNNING, beside)))


def test_messages_in_flight_get_their_costs_where_decisions_are_due() -> None:
    workload = Workload([Job(name, 0, 2, 1, 10, 20, 1_000_000) for name in "ab"])
    started = tuple(
        StartedJob(
            number,
            (number, 2 + number),
            0,
            0,
            tasks_done=(2, 2),
            task_start_ns=(None, None),
            messages=(
                PendingMessage(
                    0, 50, 1_000_000, in_flight=InFlight(number, 50, 100, 1e6, 1.0, 1_000_100)
                ),
            ),
        )
        for number in range(2)
    )
    network = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.5)
    alone = simulate(workload, "2x2", network=network, initial=Moment(100, started))
    assert alone.finish_ns.tolist() == [1_000_100, 1_000_100]
    moment = Moment(100, started, settled=False)
    together = simulate(workload, "2x2", network=network, initial=moment)
    assert together.finish_ns.tolist() == [2_500_100, 2_500_100]


def test_closed_gpus_take_no_more_jobs() -> None:
    moment = Moment(10, (RUNNING,), settled=False, closed_gpus=frozenset({0, 1, 4}))
    result = simulate(two_jobs(), "2x4", policy="ff+fifo+srsf:1", initial=moment)
    assert result.gpus[1] == (2, 3)
    with pytest.raises(InputError, match="closed GPUs must be from 0 to 7"):
        simulate(two_jobs(), "2x4", initial=Moment(10, closed_gpus=frozenset({8})))


def test_a_run_of_a_given_length_does_the_iterations_that_the_whole_run_does_by_then() -> None:
    times: dict[str, Any] = {"forward_ns": 3_000, "backward_ns": 5_000, "gradient_bytes": 4_000}
    workload = Workload([Job(f"j{number}", 0, 3, 300, **times) for number in range(2)])
    cluster, network = Cluster(2, 2), NetworkModel(100, 1.0, 0.25)
    first = tuple(
        StartedJob(number, (0, 1, 2), 0, 0, tasks_done=(0,) * 3, task_start_ns=(None,) * 3)
        for number in range(2)
    )
    moment = Moment(0, first, settled=False)
    settings: dict[str, Any] = {"network": network, "policy": "ff+srsf:1", "initial": moment}
    timeline = Timeline()
    simulate(workload, cluster, timeline=timeline, **settings)
    passed_ns, done = iterations_after(workload, cluster, **settings, least_ns=500_000)
    assert 500_000 <= passed_ns < 1_000_000
    tasks = timeline.tasks()
    messages = tasks[tasks.kind == COMMUNICATION]
    assert done == [
        int(((messages.job == job) & (messages.end_ns <= passed_ns)).sum()) for job in range(2)
    ]
    assert min(done) > 10
    whole_ns, all_done = iterations_after(workload, cluster, **settings, least_ns=10**12)
    assert all_done == [300, 300]
    assert whole_ns == tasks.end_ns.max()


def test_a_run_of_a_given_length_says_what_is_wrong_with_its_moment() -> None:
    workload = Workload([Job("j0", 0, 2, 5, 10, 10)])
    moment = Moment(0, (StartedJob(0, (0,), 0, 0),))
    with pytest.raises(InputError, match="must have 2 different GPUs"):
        iterations_after(
            workload,
            Cluster(1, 2),
            network=NetworkModel(),
            policy="paper",
            initial=moment,
            least_ns=1,
        )
