"""Admissions by port: the decisions of asking about every message, with far fewer questions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import DATA, make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.records import NOBODY, READY
from headway.domain.workload import Workload
from headway.engine import kernel
from headway.engine.compilation import compiled_kernel
from headway.engine.state import State
from headway.network.contention import NetworkModel
from strategies import Case, cases, prepare_state, run_engine, run_oracle, run_state

BY_PORT = ("ada-dual", "srsf:1", "srsf:2", "srsf:3")
PLAIN = f"{DATA}/by_message.py"
AS_MESSAGES = {
    "ada-dual": f"{PLAIN}:ada",
    "srsf:1": f"{PLAIN}:at-most:1",
    "srsf:3": f"{PLAIN}:at-most:3",
    f"{PLAIN}:patient-by-port:0.5": f"{PLAIN}:patient-by-message:0.5",
    f"{PLAIN}:patient-by-port:3": f"{PLAIN}:patient-by-message:3",
}


@st.composite
def contended(draw: st.DrawFn) -> Case:
    """Draw a case of many jobs that cross servers and compute for a short time; most are alike."""
    case = draw(cases(general=True))
    unit = draw(st.sampled_from([1, 1_000, 1_003]))
    gradients = draw(st.lists(st.integers(1, 60), min_size=1, max_size=4))
    jobs = [
        make_job(
            str(index),
            arrival_ns=draw(st.sampled_from([0, 0, 5, 40])) * unit,
            gpus=min(draw(st.sampled_from([2, 2, 3, 4, 8])), case.cluster.gpus),
            iterations=draw(st.integers(1, 4)),
            forward_ns=draw(st.sampled_from([1, 3])) * unit,
            backward_ns=2 * unit,
            gradient_bytes=draw(st.sampled_from(gradients)) * unit,
            memory_bytes=0,
        )
        for index in range(draw(st.integers(8, 20)))
    ]
    return replace(
        case,
        workload=Workload(jobs),
        network=replace(case.network, a_ns=draw(st.sampled_from([0, 7, unit]))),
        placement=draw(st.sampled_from(["spread", "rand", "rand", "lwf:1"])),
        bucket_bytes=draw(st.sampled_from([None, None, 10 * unit, 7 * unit])),
        buckets_if_shared=draw(st.booleans()),
    )


@pytest.mark.parametrize("admission", BY_PORT)
@settings(max_examples=min(settings().max_examples, 100))
@given(data=st.data())
def test_where_many_messages_wait_the_engine_agrees_with_the_oracle(
    admission: str, data: st.DataObject
) -> None:
    case = replace(data.draw(contended()), admission=admission)
    expected = run_oracle(case)
    result = run_engine(case)
    assert result.start_ns.tolist() == expected.start_ns
    assert result.finish_ns.tolist() == expected.finish_ns
    assert list(result.gpus) == expected.gpus


@pytest.mark.parametrize("admission", AS_MESSAGES, ids=lambda text: text.rpartition("/")[2])
@settings(max_examples=min(settings().max_examples, 50))
@given(data=st.data())
def test_an_admission_by_port_decides_as_one_that_is_asked_about_every_message(
    admission: str, data: st.DataObject
) -> None:
    case = data.draw(contended())
    by_port = run_engine(replace(case, admission=admission))
    plain = run_engine(replace(case, admission=AS_MESSAGES[admission]))
    assert by_port.finish_ns.tolist() == plain.finish_ns.tolist()


def check_watchers(state: State) -> None:
    """Every waiting message is on the list of one port, which refuses it; nobody else is."""
    waiting = {int(m) for m in (state.cluster.messages.state == READY).nonzero()[0]}
    listed = []
    for port in range(len(state.cluster.ports)):
        before, message = NOBODY, int(state.watched[port].watcher)
        while message != NOBODY:
            waiter = state.waiters[message]
            assert (waiter.port, waiter.before) == (port, before)
            assert waiter.bytes >= state.watched[port].limit_bytes
            links = range(waiter.first_link, waiter.first_link + waiter.links)
            assert port in [state.cluster.links[link].port for link in links]
            listed.append(message)
            before, message = message, int(waiter.beside)
    assert sorted(listed) == sorted(waiting)
    assert state.tally[0].waiting == len(waiting)
    for message in waiting:
        job = state.cluster.messages[message].job
        assert state.waiters[message].key == state.cluster.jobs[job].priority_key


@settings(max_examples=min(settings().max_examples, 30))
@given(case=contended(), admission=st.sampled_from(BY_PORT))
def test_after_every_instant_each_waiting_message_watches_a_port_that_refuses_it(
    case: Case, admission: str
) -> None:
    case = replace(case, admission=admission)
    state = prepare_state(case, "full")
    advance = compiled_kernel()
    while advance(state, 1) != kernel.FINISHED:
        check_watchers(state)


def crowd(jobs: int, admission: str) -> Case:
    """Return a case of jobs that all send on the same two servers, all the time."""
    sizes = (500_000, 300_000, 180_000, 90_000)
    workload = make_workload(
        *[
            make_job(
                gpus=2,
                iterations=20,
                forward_ns=10,
                backward_ns=10 + index,
                gradient_bytes=sizes[index % len(sizes)],
                memory_bytes=1,
            )
            for index in range(jobs)
        ]
    )
    cluster = Cluster(2, jobs, gpu_memory_bytes=1)
    return Case(workload, cluster, NetworkModel(), "spread", "srsf", admission, 0, None)


@pytest.mark.parametrize("admission", BY_PORT)
def test_questions_do_not_grow_with_the_messages_that_wait(admission: str) -> None:
    """A message's start and end change two ports; a limit is asked for again when one joins."""
    for jobs in (4, 16, 64):
        tally = run_state(crowd(jobs, admission), "none").tally[0]
        assert tally.messages == 20 * jobs
        assert tally.questions <= 8 * tally.messages
    plain = run_state(crowd(64, AS_MESSAGES.get(admission, f"{PLAIN}:at-most:2")), "none").tally[0]
    assert plain.questions > 30 * plain.messages
