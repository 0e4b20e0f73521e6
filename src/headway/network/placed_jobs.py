"""A job on the cluster: its GPUs, the ports of its messages, and s_J and L_J there. Compiled."""

from __future__ import annotations

from headway.domain.occupancy import hold, release
from headway.domain.records import NOBODY, ClusterView
from headway.jit import inlined, part
from headway.network.messages import all_reduce_alone_ns
from headway.network.traffic import connect, disconnect


@part
def put_on_cluster(cluster: ClusterView, job: int) -> None:
    """Give a job the GPUs of its seats, and connect its messages."""
    jobs, gpus, seats = cluster.jobs, cluster.gpus, cluster.seats
    hold(cluster, job)
    first = jobs[job].first_message
    for message in range(first, first + jobs[job].messages):
        connect(cluster, message)
    if jobs[job].graph == NOBODY:
        jobs[job].servers = cluster.messages[first].servers
        return
    first, servers = jobs[job].first_seat, 1
    for seat in range(first + 1, first + jobs[job].gpus):  # in order of GPUs
        servers += gpus[seats[seat].gpu].server != gpus[seats[seat - 1].gpu].server
    jobs[job].servers = servers


@part
def take_off_cluster(cluster: ClusterView, job: int) -> None:
    """Undo `put_on_cluster`; none of the job's messages may be in flight."""
    disconnect_messages(cluster, job)
    release(cluster, job)


@part
def disconnect_messages(cluster: ClusterView, job: int) -> None:
    """Take a job's messages out of the lists of their ports."""
    first = cluster.jobs[job].first_message
    for message in range(first, first + cluster.jobs[job].messages):
        disconnect(cluster, message)


@inlined
def one_service_ns(cluster: ClusterView, job: int) -> int:
    """Return s_J of a job without a graph: with the all-reduce if it is on several servers."""
    record = cluster.jobs[job]
    service_ns = record.forward_ns + record.backward_ns
    if record.servers > 1:
        service_ns += all_reduce_alone_ns(cluster, job)
    return int(service_ns)
