"""The questions that policies ask about messages."""

from __future__ import annotations

import numpy as np
import pytest

from headway.domain.records import (
    GPU,
    IN_FLIGHT,
    JOB,
    LINK,
    MESSAGE,
    MESSAGE_GROUP,
    NOBODY,
    PORT,
    SEAT,
    SERVER,
    SYSTEM,
    ClusterView,
    zeros,
)
from headway.network.cuts import sending_by_server
from headway.network.messages import (
    all_reduce_alone_ns,
    bytes_left,
    messages_in_the_way,
    most_messages,
)


@pytest.fixture
def cluster() -> ClusterView:
    """One job on three servers, its message rated at 1000 with k = 2 and 500 bytes left."""
    view = ClusterView(
        system=zeros(1, SYSTEM),
        jobs=zeros(1, JOB),
        messages=zeros(1, MESSAGE),
        message_groups=zeros(0, MESSAGE_GROUP),
        ranks=np.zeros(0, np.int64),
        gpus=zeros(3, GPU),
        servers=zeros(3, SERVER),
        seats=zeros(3, SEAT),
        links=zeros(3, LINK),
        sending_ns=np.zeros(0, np.int64),
        shares=np.zeros(0),
        ports=zeros(3, PORT),
        sending_by_server=sending_by_server,
    )
    view.system.b_ns_per_byte[:] = 1.0
    view.system.eta_ns_per_byte[:] = 0.5
    view.messages.servers[:] = view.messages.links[:] = 3
    view.links.port[:] = [0, 1, 2]
    view.jobs.graph[:] = NOBODY
    view.ports.factor[:] = 1.0
    view.ports.carries[:] = 1
    view.messages.byte_weight[:] = 1.0
    view.messages.state[:] = IN_FLIGHT
    view.messages.cost_ns_per_byte[:] = 2.5
    view.messages.since_ns[:] = 1000
    view.messages.bytes_left[:] = 500.0
    return view


@pytest.mark.parametrize(
    ("now_ns", "left"), [(0, 500.0), (1000, 500.0), (1250, 400.0), (2250, 0.0), (99_999, 0.0)]
)
def test_bytes_left_go_down_at_the_rate_of_the_last_k_and_never_below_0(
    cluster: ClusterView, now_ns: int, left: float
) -> None:
    cluster.system.now_ns[:] = now_ns
    assert bytes_left(cluster, 0) == left
    assert cluster.messages[0].bytes_left == 500.0


def test_a_message_admitted_at_this_instant_has_everything_left(cluster: ClusterView) -> None:
    cluster.messages.since_ns[:] = 5000
    cluster.messages.cost_ns_per_byte[:] = 0.0
    cluster.system.now_ns[:] = 5000
    assert bytes_left(cluster, 0) == 500.0


def test_most_messages_is_the_fullest_of_the_messages_links(cluster: ClusterView) -> None:
    assert most_messages(cluster, 0) == 0
    cluster.ports.messages[:] = [1, 4, 2]
    assert most_messages(cluster, 0) == 4
    cluster.messages.links[:] = 1
    assert most_messages(cluster, 0) == 1


@pytest.mark.parametrize(
    ("carries", "in_the_way"),
    [(1, [0, 1, 2, 3, 4, 5]), (2, [0, 0, 1, 2, 3, 4]), (4, [0, 0, 0, 0, 1, 2])],
)
def test_messages_that_a_port_carries_beside_one_more_are_not_in_its_way(
    cluster: ClusterView, carries: int, in_the_way: list[int]
) -> None:
    cluster.ports.carries[1] = carries
    for messages, expected in enumerate(in_the_way):
        cluster.ports.messages[:] = [0, messages, 0]
        assert messages_in_the_way(cluster, 1) == most_messages(cluster, 0) == expected


def test_an_all_reduce_alone_has_the_latency_and_the_weight_of_its_servers(
    cluster: ClusterView,
) -> None:
    cluster.messages.latency_ns[:] = 7
    cluster.jobs.gradient_bytes[:] = 11
    assert all_reduce_alone_ns(cluster, 0) == 7 + 11
    cluster.messages.byte_weight[:] = 1.5
    assert all_reduce_alone_ns(cluster, 0) == 7 + 16
