"""k-way admission against the theorems it extends and against brute force over start times.

The brute force is a numerical simulation of messages as fluids, which knows the cost of a byte and
nothing of the rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from builders import DATA, make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.records import (
    GPU,
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
from headway.engine.run import simulate
from headway.network.contention import NetworkModel
from headway.network.cuts import sending_by_server
from headway.policies.registry import admits, choose

NETWORK = NetworkModel(a_ns=0)
FREE_SHARING = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.0)
DEAR_SHARING = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=1.5)
NETWORKS = (NETWORK, FREE_SHARING, DEAR_SHARING)

Decision = Callable[[float, Sequence[float]], bool]
"""Whether a message of some bytes starts beside others, given what each has left."""


def admitted(
    admission: str,
    new_bytes: int,
    running: Sequence[tuple[float, Sequence[int]]],
    network: NetworkModel = NETWORK,
    servers: int = 1,
) -> bool:
    """Ask a policy about a message on all servers; `running` is (bytes left, servers), in order."""
    view = ClusterView(
        system=zeros(1, SYSTEM),
        jobs=zeros(1, JOB),
        messages=zeros(len(running) + 1, MESSAGE),
        message_groups=zeros(0, MESSAGE_GROUP),
        ranks=np.zeros(0, np.int64),
        gpus=zeros(servers, GPU),
        servers=zeros(servers, SERVER),
        seats=zeros(1, SEAT),
        links=zeros(servers * (len(running) + 1), LINK),
        sending_ns=np.zeros(0, np.int64),
        shares=np.zeros(0),
        ports=zeros(servers, PORT),
        sending_by_server=sending_by_server,
    )
    view.system.a_ns[:] = network.a_ns
    view.system.b_ns_per_byte[:] = network.b_ns_per_byte
    view.system.eta_ns_per_byte[:] = network.eta_ns_per_byte
    view.ports.first_in_flight[:] = NOBODY
    messages = [*running, (float(new_bytes), range(servers))]
    for message, (left, used) in enumerate(messages):
        view.messages[message].first_link = message * servers
        view.messages[message].servers = view.messages[message].links = len(used)
        view.messages[message].bytes = round(left)
        view.messages[message].bytes_left = left
        for link, server in enumerate(used, start=message * servers):
            view.links[link].message = message
            view.links[link].port = server
            if message < len(running):
                view.links[link].next = view.ports[server].first_in_flight
                view.ports[server].first_in_flight = link
                view.ports[server].messages += 1
    choice = choose("admission", admission)
    decide = choice.compiled()
    if choice.policy.by_port:
        limits = [decide(view, port, choice.parameter) for port in range(servers)]
        return all(new_bytes < limit for limit in limits)
    return admits(decide(view, len(running), choice.parameter), 0)


def on_one_link(admission: str, network: NetworkModel) -> Decision:
    return lambda size, others: admitted(
        admission, round(size), [(left, [0]) for left in others], network
    )


def total_of_ends(
    messages: Sequence[tuple[float, float]], network: NetworkModel, a_ns: float = 0.0
) -> float:
    """Return the sum of the ends of messages (start, bytes) that share one link as fluids."""
    unborn = sorted(messages)
    flying: list[list[float]] = []  # [end of latency, bytes left]
    now = total = 0.0
    while unborn or flying:
        while unborn and unborn[0][0] <= now:
            start, size = unborn.pop(0)
            flying.append([start + a_ns, size])
        cost = network.cost_ns_per_byte(max(1, len(flying)))
        then = min(
            [start for start, _ in unborn[:1]]
            + [latency if latency > now else now + left * cost for latency, left in flying]
        )
        for message in flying:
            if message[0] <= now:
                message[1] -= (then - now) / cost
        now = then
        ended = [m for m in flying if m[0] <= now and m[1] <= 1e-9 * max(1.0, now)]
        total += now * len(ended)
        flying = [m for m in flying if m not in ended]
    return total


def starts_to_try(
    running: Sequence[float], network: NetworkModel, steps: int
) -> tuple[list[float], list[float]]:
    """Return the ends of the running messages among themselves, and a fine grid until the last."""
    now = sent = 0.0
    ends = []
    for place, left in enumerate(sorted(running)):
        now += (left - sent) * network.cost_ns_per_byte(len(running) - place)
        sent = left
        ends.append(now)
    return ends, [now * step / steps for step in range(steps + 1)]


def random_sizes(rng: random.Random, most_running: int) -> tuple[list[float], int]:
    """Draw what the running messages have left, and a new message's size."""
    running = [
        rng.choice([rng.uniform(1, 1e4), 10 ** rng.uniform(0, 4), 1e4])
        for _ in range(rng.randint(1, most_running))
    ]
    return running, round(10 ** rng.uniform(0, 4))


sizes = st.one_of(st.integers(0, 2**40), st.integers(0, 1000))
lefts = st.one_of(st.floats(0, 2**40), st.integers(0, 1000).map(float))
networks = st.sampled_from(
    [*NETWORKS, NetworkModel(), NetworkModel(a_ns=10**9), NetworkModel(0, 1.0, 1.0)]
)


@given(sizes, lefts, networks)
def test_beside_one_message_it_is_ada_duals_rule(
    size: int, left: float, network: NetworkModel
) -> None:
    b, eta = network.b_ns_per_byte, network.eta_ns_per_byte
    boundary = round(b / (2 * (b + eta)) * left)
    for new in (size, boundary, boundary + 1, max(0, boundary - 1)):
        decisions = {
            name: admitted(name, new, [(left, [0])], network) for name in ("ada-dual", "k-way")
        }
        assert decisions["k-way"] == decisions["ada-dual"], new


def test_exactly_on_the_boundary_a_message_waits() -> None:
    quarter = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=1.0)
    for name in ("ada-dual", "k-way"):
        assert not admitted(name, 100, [(400.0, [0])], quarter)
        assert admitted(name, 99, [(400.0, [0])], quarter)


@given(st.lists(lefts, min_size=1, max_size=4), sizes, networks)
def test_with_one_message_at_most_on_each_server_it_is_ada_duals_rule(
    running: list[float], size: int, network: NetworkModel
) -> None:
    messages = [(left, [server]) for server, left in enumerate(running)]
    servers = len(running) + 1
    assert admitted("k-way", size, messages, network, servers) == admitted(
        "ada-dual", size, messages, network, servers
    )


def single_starts(cases: int, seed: int) -> Iterator[tuple[float, float, float, float]]:
    """Yield totals for random cases: started now, at the best end, at any time, as k-way says."""
    rng = random.Random(seed)
    for _ in range(cases):
        network = rng.choice(NETWORKS)
        running, new = random_sizes(rng, most_running=4)
        old = [(0.0, left) for left in running]
        ends, grid = starts_to_try(running, network, steps=100)
        now, at_end, at_any = (
            min(total_of_ends([*old, (start, new)], network) for start in starts)
            for starts in ([0.0], ends, [*grid, *ends])
        )
        decide = on_one_link("k-way", network)
        yield now, at_end, at_any, as_decided(decide, running, [new], network)


def test_on_one_link_no_start_is_better_than_now_or_an_end_of_another() -> None:
    for now, at_end, at_any, _ in single_starts(400, seed=1):
        assert min(now, at_end) <= at_any * (1 + 1e-9)


def test_on_one_link_it_starts_when_no_later_start_is_better() -> None:
    for _, _, best, chosen in single_starts(400, seed=2):
        assert chosen <= best * (1 + 1e-9)


def test_that_the_rule_neglects_the_latency_costs_little_for_messages_of_megabytes() -> None:
    rng = random.Random(6)
    a_ns = float(NetworkModel().a_ns)
    ratios = []
    for _ in range(200):
        running = [10 ** rng.uniform(6, 9) for _ in range(rng.randint(1, 4))]
        new = round(10 ** rng.uniform(6, 9))
        old = [(-a_ns, left) for left in running]
        ends, grid = starts_to_try(running, NETWORK, steps=40)
        now, later = (
            min(total_of_ends([*old, (start, new)], NETWORK, a_ns) for start in starts)
            for starts in ([0.0], [*ends, *grid[1:]])
        )
        joins = on_one_link("k-way", NETWORK)(new, running)
        ratios.append((now if joins else later) / min(now, later))
    assert max(ratios) < 1.03
    assert sum(ratios) / len(ratios) < 1.001


def test_it_is_neither_always_nor_never_that_three_may_share() -> None:
    rng = random.Random(3)
    decide = on_one_link("k-way", NETWORK)
    for others in (2, 3, 4):
        answers = set()
        for _ in range(200):
            running = [rng.uniform(1, 1e4) for _ in range(others)]
            answers.add(decide(round(10 ** rng.uniform(0, 4)), running))
        assert answers == {True, False}


def test_beside_equal_messages_the_threshold_rises_to_a_half_of_what_they_have_left() -> None:
    b, eta = NETWORK.b_ns_per_byte, NETWORK.eta_ns_per_byte
    for others in range(1, 9):
        threshold = (0.5 - eta / (2 * others * (b + eta))) * 1e6
        decide = on_one_link("k-way", NETWORK)
        assert decide(round(threshold - 2), [1e6] * others)
        assert not decide(round(threshold + 2), [1e6] * others)


def test_a_refusal_may_turn_when_messages_advance_unequally() -> None:
    """This is why the policy does not promise to be steady; on one link all advance equally."""
    decide = on_one_link("k-way", NETWORK)
    assert not decide(8, [33.0, 8.0, 13.0])
    assert decide(8, [33.0, 1.0, 13.0])


@given(st.lists(st.floats(1, 1e4), min_size=1, max_size=4), st.integers(1, 10_000), st.floats(0, 1))
def test_on_one_link_a_refusal_stands_until_a_message_ends(
    running: list[float], new: int, part: float
) -> None:
    sent = min(running) * part * 0.999
    decide = on_one_link("k-way", DEAR_SHARING)
    later = decide(new, [left - sent for left in running])
    assert decide(new, running) or not later or _tied(new, running, DEAR_SHARING)


def _tied(new: float, running: Sequence[float], network: NetworkModel) -> bool:
    """Whether now and the best later start are equally good, but for rounding."""
    old = [(0.0, left) for left in running]
    ends, _ = starts_to_try(running, network, steps=1)
    now = total_of_ends([*old, (0.0, new)], network)
    return now == pytest.approx(
        min(total_of_ends([*old, (end, new)], network) for end in ends), rel=1e-9
    )


def as_decided(
    decide: Decision, running: Sequence[float], new: Sequence[int], network: NetworkModel
) -> float:
    """Return the sum of ends if a policy is asked, in order, now and whenever a message ends."""
    flying, waiting = list(running), list(new)
    now = total = 0.0
    while flying or waiting:
        for size in list(waiting):
            if not flying or decide(size, flying):
                flying.append(float(size))
                waiting.remove(size)
        cost, least = network.cost_ns_per_byte(len(flying)), min(flying)
        now += least * cost
        total += now * sum(left - least <= 1e-9 * now for left in flying)
        flying = [left - least for left in flying if left - least > 1e-9 * now]
    return total


def best_of_all(
    flying: Sequence[float], waiting: Sequence[float], network: NetworkModel, tick_ns: float
) -> float:
    """Return the least sum of ends over all starts at ends of messages and at ticks in between."""
    totals = []
    for count in range(len(waiting) + 1):
        for chosen in combinations(range(len(waiting)), count):
            on = [*flying, *(waiting[i] for i in chosen)]
            if not on:
                continue
            off = [size for i, size in enumerate(waiting) if i not in chosen]
            cost = network.cost_ns_per_byte(len(on))
            step = min(on) * cost
            if off:
                step = min(step, tick_ns)
            left = [m - step / cost for m in on]
            left = [m for m in left if m > 1e-9]
            # Until the next instant all of them are unfinished, the waiting ones too.
            total = step * (len(on) + len(off))
            totals.append(
                total + (best_of_all(left, off, network, tick_ns) if left or off else 0.0)
            )
    return min(totals)


def sequences(cases: int, seed: int) -> Iterator[dict[str, float]]:
    """Yield, for random cases of 2 or 3 new messages, each policy's total over the best one."""
    rng = random.Random(seed)
    for _ in range(cases):
        network = rng.choice(NETWORKS)
        running, _ = random_sizes(rng, most_running=3)
        new = sorted(random_sizes(rng, 1)[1] for _ in range(rng.randint(2, 3)))
        span = (sum(running) + sum(new)) * network.cost_ns_per_byte(1)
        best = best_of_all(running, new, network, tick_ns=span / 10)
        yield {
            name: as_decided(on_one_link(name, network), running, new, network) / best
            for name in ("k-way", "ada-dual", "srsf:1", "srsf:2")
        }


def test_messages_decided_one_by_one_end_nearly_as_soon_as_the_best_schedule() -> None:
    ratios = list(sequences(60, seed=4))
    mean = {name: sum(case[name] for case in ratios) / len(ratios) for name in ratios[0]}
    assert all(case["k-way"] > 1 - 1e-6 for case in ratios)
    assert mean["k-way"] < 1.02
    assert mean["k-way"] < mean["ada-dual"] < mean["srsf:1"]
    assert max(case["k-way"] for case in ratios) < 1.2


def test_in_the_engine_a_third_message_joins_two_and_all_end_sooner_on_average() -> None:
    jobs = [
        make_job(arrival_ns=arrival, gpus=2, gradient_bytes=size, memory_bytes=1000)
        for arrival, size in ((0, 100_000_000), (1, 30_000_000), (2, 10_000_000))
    ]
    ends = {
        name: simulate(
            make_workload(*jobs),
            Cluster(servers=2, gpus_per_server=3, gpu_memory_bytes=1000),
            network=NETWORK,
            policy=f"{DATA}/spread.py:spread+srsf+{name}",
        ).finish_ns.tolist()
        for name in ("k-way", "ada-dual", "srsf:1")
    }
    assert sum(ends["k-way"]) < sum(ends["ada-dual"]) < sum(ends["srsf:1"])
    assert ends["k-way"][2] < ends["k-way"][1] < ends["k-way"][0]


def test_the_engine_agrees_with_the_oracle_where_many_messages_share() -> None:
    """Sizes of every magnitude, so that four and five at a time are common."""
    rng = random.Random(5)
    widest = []
    for _ in range(150):
        servers = rng.randint(2, 4)
        specs = [
            oracle.OracleJob(
                arrival_ns=rng.choice([0, rng.randint(0, 10**7)]),
                gpus=rng.randint(2, servers),
                iterations=rng.randint(1, 4),
                forward_ns=rng.randint(1, 10**6),
                backward_ns=rng.randint(1, 10**6),
                gradient_bytes=round(10 ** rng.uniform(3, 9)),
                memory_bytes=1,
            )
            for _ in range(rng.randint(6, 9))
        ]
        network = NetworkModel(a_ns=rng.choice([0, 7, 669_000]))
        result = simulate(
            make_workload(*(make_job(**asdict(spec)) for spec in specs)),
            Cluster(servers=servers, gpus_per_server=9, gpu_memory_bytes=9),
            network=network,
            policy="spread+srsf+k-way",
        )
        expected = oracle.run(
            specs,
            server_gpus=[9] * servers,
            memory_bytes=[9],
            a_ns=network.a_ns,
            b=network.b_ns_per_byte,
            eta=network.eta_ns_per_byte,
            placement="spread",
            admission="k-way",
        )
        assert result.finish_ns.tolist() == expected.finish_ns
        widest.append(most_on_a_server(expected, gpus_per_server=9))
    assert sum(most >= 4 for most in widest) > 20


def most_on_a_server(outcome: oracle.OracleOutcome, gpus_per_server: int) -> int:
    """Return the largest number of messages on a server at a time."""
    messages = [task for task in outcome.tasks if task.kind == "message"]
    servers = [{gpu // gpus_per_server for gpu in gpus} for gpus in outcome.gpus]
    return max(
        sum(
            server in servers[other.job] and other.start_ns <= message.start_ns < other.end_ns
            for other in messages
        )
        for message in messages
        for server in servers[message.job]
    )
