"""A plain kernel to measure against: one event per task, no groups, nothing kept in order.

It simulates LWF-1 with SRSF(N) or Ada-SRSF as docs/model.md says, the way one would write it down
first: an indexed heap with a slot per GPU and per message; at each instant every GPU that was
touched looks through all the jobs it holds. It shares no code with the engine, and gives the same
results. On request it makes the mistake that double_counting.py describes and measures.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headway.domain.cluster import Cluster
from headway.domain.workload import Workload
from headway.network.contention import NetworkModel

WAITING, FORWARD_READY, FORWARD_RUNS, BACKWARD_READY, BACKWARD_RUNS = 0, 1, 2, 3, 4
MAX_HELD = 64

Column = NDArray[np.int64]


@njit(cache=True, nogil=True)
def _up(times: Column, slots: Column, where: Column, i: int) -> None:
    while i > 0 and times[slots[(i - 1) // 2]] > times[slots[i]]:
        p = (i - 1) // 2
        slots[i], slots[p] = slots[p], slots[i]
        where[slots[i]] = i
        where[slots[p]] = p
        i = p


@njit(cache=True, nogil=True)
def _down(times: Column, slots: Column, where: Column, size: int, i: int) -> None:
    while True:
        c = 2 * i + 1
        if c >= size:
            return
        if c + 1 < size and times[slots[c + 1]] < times[slots[c]]:
            c += 1
        if times[slots[i]] <= times[slots[c]]:
            return
        slots[i], slots[c] = slots[c], slots[i]
        where[slots[i]] = i
        where[slots[c]] = c
        i = c


@njit(cache=True, nogil=True)
def _set(times: Column, slots: Column, where: Column, size: int, slot: int, time_ns: int) -> int:
    times[slot] = time_ns
    if where[slot] < 0:
        slots[size] = slot
        where[slot] = size
        size += 1
    _up(times, slots, where, where[slot])
    _down(times, slots, where, size, where[slot])
    return size


@njit(cache=True, nogil=True)
def _pop(times: Column, slots: Column, where: Column, size: int) -> int:
    where[slots[0]] = -1
    size -= 1
    if size > 0:
        slots[0] = slots[size]
        where[slots[0]] = 0
        _down(times, slots, where, size, 0)
    return size


@njit(cache=True, nogil=True)
def _most(on: Column, spans: Column, on_server: Column, j: int) -> int:
    most = 0
    for i in range(spans[j]):
        most = max(most, on_server[on[j, i]])
    return most


# Inlined by Numba: as a call it costs Ada-SRSF a tenth of its speed.
@njit(cache=True, nogil=True, inline="always")
def _share(on: Column, spans: Column, j: int, o: int) -> bool:
    shared = False
    for i in range(spans[j]):
        for p in range(spans[o]):
            shared = shared or on[j, i] == on[o, p]
    return shared


@njit(cache=True, nogil=True)
def _simulate(
    arrival: Column,
    n: Column,
    iterations: Column,
    forward: Column,
    backward: Column,
    size_bytes: Column,
    memory: Column,
    per_server: int,
    servers: int,
    gpu_memory: int,
    a: int,
    b: float,
    eta: float,
    most_allowed: int,
    counts_twice: bool = False,
) -> tuple[Column, int, int]:
    jobs, gpus = len(n), per_server * servers
    first = np.zeros(jobs + 1, np.int64)
    first[1:] = np.cumsum(n)
    left, service = iterations.copy(), forward + backward
    load = iterations * service * n
    placed_on = np.zeros(first[-1], np.int64)
    state = np.zeros(first[-1], np.int64)
    on = np.zeros((jobs, servers), np.int64)
    spans = np.zeros(jobs, np.int64)
    to_do = np.zeros(jobs, np.int64)
    free = np.full(gpus, gpu_memory)
    held = np.zeros((gpus, MAX_HELD), np.int64)
    held_count = np.zeros(gpus, np.int64)
    owner = np.zeros(first[-1], np.int64)
    for j in range(jobs):
        owner[first[j] : first[j + 1]] = j
    on_gpu = np.full(gpus, -1)
    on_server = np.zeros(servers, np.int64)
    rest, since, k_of = np.zeros(jobs), np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    admitted = np.zeros(jobs, np.int64)
    asking, asked = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    times = np.zeros(gpus + jobs, np.int64)
    slots, where = np.zeros(gpus + jobs, np.int64), np.full(gpus + jobs, -1)
    finish = np.full(jobs, -1)
    queued = np.zeros(jobs, np.bool_)
    waiting, sending = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    by_arrival = np.argsort(arrival, kind="mergesort")
    touched = np.zeros(gpus, np.bool_)
    touched_list = np.zeros(gpus, np.int64)
    heap_size, arrived, done, queue_length, waits, sends = 0, 0, 0, 0, 0, 0
    messages, too_soon = 0, 0
    theta = b / (2 * (b + eta))
    while done < jobs:
        now = times[slots[0]] if heap_size > 0 else arrival[by_arrival[arrived]]
        if arrived < jobs:
            now = min(now, arrival[by_arrival[arrived]])
        touched_count = 0
        news, room = False, False
        while heap_size > 0 and times[slots[0]] == now:
            slot = slots[0]
            heap_size = _pop(times, slots, where, heap_size)
            ended = -1
            if slot < gpus:
                seat = on_gpu[slot]
                on_gpu[slot] = -1
                j = owner[seat]
                if not touched[slot]:
                    touched[slot] = True
                    touched_list[touched_count] = slot
                    touched_count += 1
                if state[seat] == FORWARD_RUNS:
                    state[seat] = BACKWARD_READY
                else:
                    state[seat] = WAITING
                    to_do[j] -= 1
                    if to_do[j] == 0:
                        if spans[j] == 1:
                            ended = j
                        else:
                            i = waits
                            while i > 0 and (load[waiting[i - 1]], waiting[i - 1]) > (load[j], j):
                                waiting[i] = waiting[i - 1]
                                i -= 1
                            waiting[i] = j
                            waits += 1
                            news = True
            else:
                ended = slot - gpus
                i = 0
                while sending[i] != ended:
                    i += 1
                sends -= 1
                sending[i] = sending[sends]
                for i in range(spans[ended]):
                    on_server[on[ended, i]] -= 1
                messages += 1
                if now - admitted[ended] < a + math.floor(b * size_bytes[ended]):
                    too_soon += 1
                news = True
            if ended >= 0:
                left[ended] -= 1
                to_do[ended] = n[ended]
                load[ended] -= service[ended] * n[ended]
                for seat in range(first[ended], first[ended + 1]):
                    g = placed_on[seat]
                    if left[ended] > 0:
                        state[seat] = FORWARD_READY
                        if not touched[g]:
                            touched[g] = True
                            touched_list[touched_count] = g
                            touched_count += 1
                    else:
                        free[g] += memory[ended]
                        i = 0
                        while held[g, i] != seat:
                            i += 1
                        held_count[g] -= 1
                        held[g, i] = held[g, held_count[g]]
                if left[ended] == 0:
                    finish[ended] = now
                    done += 1
                    room = True
        while arrived < jobs and arrival[by_arrival[arrived]] == now:
            queued[by_arrival[arrived]] = True
            queue_length += 1
            arrived += 1
            room = True
        if room and queue_length > 0:
            for j in np.argsort(load, kind="mergesort"):
                if not queued[j]:
                    continue
                gpu_load, server_load = np.zeros(gpus, np.int64), np.zeros(servers, np.int64)
                for g in range(gpus):
                    for i in range(held_count[g]):
                        gpu_load[g] += load[owner[held[g, i]]]
                    server_load[g // per_server] += gpu_load[g]
                chosen, found = np.zeros(n[j], np.int64), 0
                if n[j] == 1:
                    for g in np.argsort(gpu_load, kind="mergesort"):
                        if found < n[j] and free[g] >= memory[j]:
                            chosen[found] = g
                            found += 1
                else:
                    for s in np.argsort(server_load, kind="mergesort"):
                        own = gpu_load[s * per_server : (s + 1) * per_server]
                        for i in np.argsort(own, kind="mergesort"):
                            g = s * per_server + i
                            if found < n[j] and free[g] >= memory[j]:
                                chosen[found] = g
                                found += 1
                if found < n[j]:
                    continue
                queued[j] = False
                queue_length -= 1
                to_do[j] = n[j]
                for i in range(n[j]):
                    g, seat = chosen[i], first[j] + i
                    placed_on[seat] = g
                    free[g] -= memory[j]
                    held[g, held_count[g]] = seat
                    held_count[g] += 1
                    state[seat] = FORWARD_READY
                    if not touched[g]:
                        touched[g] = True
                        touched_list[touched_count] = g
                        touched_count += 1
                for s in range(servers):
                    for g in chosen:
                        if g // per_server == s:
                            on[j, spans[j]] = s
                            spans[j] += 1
                            break
                if spans[j] > 1:
                    service[j] += a + math.floor(b * size_bytes[j])
                    load[j] = left[j] * service[j] * n[j]
        if news:
            kept = 0
            for turn in range(waits):
                j = waiting[turn]
                most = _most(on, spans, on_server, j)
                admit = most < most_allowed
                if most_allowed == 0:
                    admit = most < 2
                    if most == 1:
                        for m in range(sends):
                            o = sending[m]
                            if _share(on, spans, j, o):
                                r = rest[o]
                                if k_of[o] > 0 and now > since[o]:
                                    cost = (k_of[o] * b + (k_of[o] - 1) * eta) / (1 + asked[o])
                                    r = max(0.0, r - (now - since[o]) / cost)
                                admit = admit and size_bytes[j] < theta * r
                if admit:
                    sending[sends] = j
                    sends += 1
                    for i in range(spans[j]):
                        on_server[on[j, i]] += 1
                    rest[j], since[j], k_of[j] = size_bytes[j], now + a, 0
                    admitted[j] = now
                else:
                    waiting[kept] = j
                    kept += 1
            waits = kept
            if counts_twice and most_allowed == 0:
                for m in range(sends):
                    asking[sending[m]] = 0
                for turn in range(waits):
                    j = waiting[turn]
                    if _most(on, spans, on_server, j) == 1:
                        for m in range(sends):
                            o = sending[m]
                            if _share(on, spans, j, o):
                                asking[o] += 1
            for m in range(sends):
                j = sending[m]
                k = _most(on, spans, on_server, j)
                if k == k_of[j] and asking[j] == asked[j]:
                    continue
                if k_of[j] > 0 and now > since[j]:
                    cost = (k_of[j] * b + (k_of[j] - 1) * eta) / (1 + asked[j])
                    rest[j] = max(0.0, rest[j] - (now - since[j]) / cost)
                    since[j] = now
                k_of[j], asked[j] = k, asking[j]
                cost = (k * b + (k - 1) * eta) / (1 + asked[j])
                end = max(now + 1, since[j] + int(np.ceil(rest[j] * cost)))
                heap_size = _set(times, slots, where, heap_size, gpus + j, end)
        for i in range(touched_count):
            g = touched_list[i]
            touched[g] = False
            if on_gpu[g] >= 0:
                continue
            best = -1
            for h in range(held_count[g]):
                seat = held[g, h]
                if state[seat] == FORWARD_READY or state[seat] == BACKWARD_READY:
                    j = owner[seat]
                    if (
                        best < 0
                        or load[j] < load[owner[best]]
                        or (load[j] == load[owner[best]] and j < owner[best])
                    ):
                        best = seat
            if best < 0:
                continue
            j = owner[best]
            on_gpu[g] = best
            end = now + (forward[j] if state[best] == FORWARD_READY else backward[j])
            state[best] += 1
            heap_size = _set(times, slots, where, heap_size, g, end)
    return finish, messages, too_soon


class BaselineRun(NamedTuple):
    """Every job's finish, and of the messages how many ended before a + b * M."""

    finish_ns: Column
    messages: int
    too_soon: int
    wall_s: float


def run_baseline(
    workload: Workload,
    cluster: Cluster,
    network: NetworkModel,
    scheduler: str,
    *,
    counts_twice: bool = False,
) -> BaselineRun:
    """Simulate; `counts_twice` makes the mistake of double_counting.py."""

    def column(name: str) -> Column:
        return np.array([getattr(job, name) for job in workload], np.int64)

    most_allowed = 0 if scheduler == "ada-srsf" else int(scheduler.removeprefix("srsf:"))
    # Left out, the switch is a constant of the compiled kernel, and what it guards is not there.
    switch = (True,) if counts_twice else ()
    began = time.perf_counter()
    outcome = _simulate(
        column("arrival_ns"),
        column("gpus"),
        column("iterations"),
        column("forward_ns"),
        column("backward_ns"),
        column("gradient_bytes"),
        column("memory_bytes"),
        cluster.gpus_per_server,
        cluster.servers,
        cluster.gpu_memory_bytes,
        network.a_ns,
        network.b_ns_per_byte,
        network.eta_ns_per_byte,
        most_allowed,
        *switch,
    )
    return BaselineRun(*outcome, time.perf_counter() - began)
