"""Which GPUs a job may have, which it holds, and the loads that follow from it. Compiled."""

from __future__ import annotations

from headway.domain.records import NOBODY, ClusterView, Integers
from headway.jit import inlined, part


@inlined
def has_room(cluster: ClusterView, job: int, gpu: int) -> bool:
    """Whether a GPU could hold a job beside the jobs that it holds."""
    jobs, gpus = cluster.jobs, cluster.gpus
    if gpus[gpu].free_bytes < jobs[job].memory_bytes:
        return False
    if gpus[gpu].held == NOBODY:
        return True
    # A job that needs no memory would fit beside one that has the GPU to itself.
    return bool(jobs[job].exclusive == 0 and jobs[cluster.seats[gpus[gpu].held].job].exclusive == 0)


@inlined
def fits(cluster: ClusterView, job: int, gpu: int) -> bool:
    """Whether a job may be placed on a GPU."""
    record = cluster.gpus[gpu]
    if record.closed != 0 or record.memory_bytes >= cluster.system[0].reserved_bytes:
        return False
    return has_room(cluster, job, gpu)


@part
def could_hold(cluster: ClusterView, gpus: int, memory_bytes: int) -> bool:
    """Whether a job could be placed if the cluster held no other."""
    count = 0
    for gpu in range(len(cluster.gpus)):
        if cluster.gpus[gpu].closed == 0 and cluster.gpus[gpu].memory_bytes >= memory_bytes:
            count += 1
    return count >= gpus


@part
def list_candidates(cluster: ClusterView, job: int, candidates: Integers) -> int:
    """List the GPUs that a job may be placed on, ascending; return how many there are."""
    count = 0
    for gpu in range(len(cluster.gpus)):
        if fits(cluster, job, gpu):
            candidates[count] = gpu
            count += 1
    return count


@part
def _sort(values: Integers, count: int) -> None:
    """Sort by insertion: a policy's first n are often in order already."""
    for end in range(1, count):
        value = values[end]
        index = end
        while index > 0 and values[index - 1] > value:
            values[index] = values[index - 1]
            index -= 1
        values[index] = value


@part
def assign_first(cluster: ClusterView, job: int, candidates: Integers) -> bool:
    """Assign a job's seats to the first n candidates, ascending.

    Return False, with nothing changed but the order of the candidates, if these are not n distinct
    GPUs that the job may be placed on.
    """
    gpus, seats = cluster.gpus, cluster.seats
    first, count = cluster.jobs[job].first_seat, cluster.jobs[job].gpus
    if count > len(candidates):
        return False
    _sort(candidates, count)
    for i in range(count):
        gpu = candidates[i]
        if gpu < 0 or gpu >= len(gpus) or (i > 0 and candidates[i - 1] == gpu):
            return False
        if not fits(cluster, job, gpu):
            return False
    for i in range(count):
        seats[first + i].gpu = candidates[i]
    return True


@inlined
def _taken_bytes(cluster: ClusterView, job: int, gpu: int) -> int:
    """Return the memory that a job takes of a GPU: all of it, if it is exclusive."""
    if cluster.jobs[job].exclusive != 0:
        return int(cluster.gpus[gpu].memory_bytes)
    return int(cluster.jobs[job].memory_bytes)


@part
def hold(cluster: ClusterView, job: int) -> None:
    """Give a job the GPUs of its seats: reserve its memory there and add it to their lists."""
    jobs, gpus, seats = cluster.jobs, cluster.gpus, cluster.seats
    first, count = jobs[job].first_seat, jobs[job].gpus
    for seat in range(first, first + count):
        gpu = seats[seat].gpu
        gpus[gpu].free_bytes -= _taken_bytes(cluster, job, gpu)
        seats[seat].job = job
        seats[seat].beside = gpus[gpu].held
        gpus[gpu].held = seat


@part
def release(cluster: ClusterView, job: int) -> None:
    """Give back what `hold` took."""
    jobs, gpus, seats = cluster.jobs, cluster.gpus, cluster.seats
    first, count = jobs[job].first_seat, jobs[job].gpus
    for seat in range(first, first + count):
        gpu = seats[seat].gpu
        gpus[gpu].free_bytes += _taken_bytes(cluster, job, gpu)
        before = gpus[gpu].held
        if before == seat:
            gpus[gpu].held = seats[seat].beside
        else:
            while seats[before].beside != seat:
                before = seats[before].beside
            seats[before].beside = seats[seat].beside


@part
def add_load(cluster: ClusterView, job: int) -> None:
    """Add a job's L_J to the loads of its GPUs and servers."""
    gpus, servers, seats = cluster.gpus, cluster.servers, cluster.seats
    remaining_ns = cluster.jobs[job].remaining_service_ns
    first = cluster.jobs[job].first_seat
    for seat in range(first, first + cluster.jobs[job].gpus):
        gpu = seats[seat].gpu
        gpus[gpu].load_ns += remaining_ns
        servers[gpus[gpu].server].load_ns += remaining_ns


@part
def add_up_loads(cluster: ClusterView) -> None:
    """Bring L_g and L_S up to date with the L_J of the jobs that GPUs hold."""
    jobs, gpus, servers, seats = cluster.jobs, cluster.gpus, cluster.servers, cluster.seats
    for server in range(len(servers)):
        servers[server].load_ns = 0
    for gpu in range(len(gpus)):
        load_ns = 0
        seat = gpus[gpu].held
        while seat != NOBODY:
            load_ns += jobs[seats[seat].job].remaining_service_ns
            seat = seats[seat].beside
        gpus[gpu].load_ns = load_ns
        servers[gpus[gpu].server].load_ns += load_ns
