"""Random small simulations, built to meet every branch of the model.

Numbers come from small sets so that ends, arrivals and priorities tie often; some are awkward, so
that rounding shows; a few are huge, so that messages last far longer than computing.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from hypothesis import strategies as st

import oracle
from builders import built_in
from graph_strategies import durations, gradients, graphs_of_jobs
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.compute_times import compute_times
from headway.domain.gpus import V100, GpuType
from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.moment import Moment
from headway.domain.tiers import Tier
from headway.domain.workload import Workload
from headway.engine import kernel
from headway.engine.compilation import compiled_kernel
from headway.engine.run import simulate
from headway.engine.setup import Acceleration, prepare
from headway.engine.state import State
from headway.network.contention import NetworkModel
from headway.network.laws.registry import LAWS
from headway.policies.policy_set import PolicySet
from headway.policies.registry import NEEDED_FIRST
from headway.results.schema import Result
from headway.results.timeline.sinks import Timeline

_Made = TypeVar("_Made")

PLACEMENTS = built_in("placement")
PRIORITIES = built_in("priority")
ADMISSIONS = built_in("admission")
OPTIONS = ("", NEEDED_FIRST)
"""Of every admission; they concern jobs with graphs."""

LAWS_THAT_MEET = [law.name for law in LAWS.values() if law.messages_meet]
NETWORKS = (
    NetworkModel(),
    NetworkModel(),
    NetworkModel(a_ns=0, eta_ns_per_byte=0.0),
    NetworkModel(a_ns=7, b_ns_per_byte=1.0, eta_ns_per_byte=0.5),
    NetworkModel(law="no-contention"),
)


@st.composite
def varied(draw: st.DrawFn, networks: tuple[NetworkModel, ...]) -> NetworkModel:
    """Draw one of these networks as it is, by another law, with a ring's size, or both."""
    network = draw(st.sampled_from(networks))
    if network.law == "busiest":
        network = replace(network, law=draw(st.sampled_from(LAWS_THAT_MEET)))
    return replace(network, ring_size=draw(st.sampled_from([None, None, 2, 3, 7])))


@dataclass(frozen=True)
class Case:
    """Everything one simulation needs."""

    workload: Workload
    cluster: Cluster
    network: NetworkModel
    placement: str
    priority: str
    admission: str
    seed: int
    bucket_bytes: int | None
    buckets_if_shared: bool = False

    @property
    def policies(self) -> PolicySet:
        return PolicySet(
            self.placement,
            self.priority,
            self.admission,
            self.bucket_bytes,
            self.buckets_if_shared and self.bucket_bytes is not None,
        )


def largest_message(job: Job) -> int:
    """Return the bytes of a job's largest message; an all-to-all may be larger, once placed."""
    if job.graph is None:
        return job.gradient_bytes
    return max((message.buffer_bytes for message in job.graph.messages), default=0)


def buckets(jobs: list[Job]) -> st.SearchStrategy[int | None]:
    """Draw no bucket size, or one that makes a few buckets of the largest messages."""
    largest = max(map(largest_message, jobs))
    return st.one_of(
        st.none(),
        st.sampled_from(jobs).map(lambda job: max(1, largest_message(job), largest // 6)),
        st.builds(
            lambda n, more: max(1, largest // n + more), st.integers(1, 5), st.integers(0, 1)
        ),
    )


def with_graph(job: Job, graph: Graph) -> Job:
    """Return the job with a graph in place of its times and its gradient."""
    return replace(job, forward_ns=0, backward_ns=0, gradient_bytes=0, graph=graph)


MOST_NODES = 80
"""Tasks and messages of a job with a graph in all its iterations, unless one has more."""

TYPES = [
    GpuType(name, memory_bytes, performance, 10.0, 100.0)
    for name, performance in (
        (V100.name, V100.performance),
        ("same", V100.performance),
        ("double", 2 * V100.performance),
        ("half", V100.performance / 2),
        ("odd", 9.3),
    )
    for memory_bytes in (4, 10, 16, 40)
]


@st.composite
def uniform_clusters(draw: st.DrawFn, crowded: bool) -> Cluster:
    return Cluster(
        servers=draw(st.integers(2, 4) if crowded else st.integers(1, 8)),
        gpus_per_server=draw(st.integers(1, 2) if crowded else st.integers(1, 8)),
        gpu_memory_bytes=draw(st.sampled_from([10, 16, 40])),
    )


@st.composite
def mixed_clusters(draw: st.DrawFn, crowded: bool) -> Cluster:
    """Draw servers of unequal size and type, in one rack or several."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    racks = draw(st.sampled_from([("",), ("a", "b"), ("a", "b"), ("a", "b", "c")]))
    groups = [
        ServerGroup(
            servers=draw(st.integers(1, 2 if crowded else 3)),
            gpus_per_server=draw(st.integers(1, 2) if crowded else st.integers(1, 5)),
            gpu=draw(st.sampled_from(types)),
            rack=draw(st.sampled_from(racks)),
        )
        for _ in range(draw(st.integers(2, 4)))
    ]
    return Cluster.of(
        groups,
        servers_per_rack=draw(st.sampled_from([None, 1, 2, 3])) if racks == ("",) else None,
        oversubscription=draw(st.sampled_from([1, 1.7, 2, 4, 10])),
    )


FACTORS = (1, 1.7, 2, 4, 10)
"""Oversubscriptions."""


@st.composite
def fabrics(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """Draw tiers and rails for a cluster; those of groups are named, others filled in order."""
    factors = draw(st.lists(st.sampled_from(FACTORS), min_size=1, max_size=3))
    names = [f"tier {index}" for index in range(len(factors))]
    if not cluster.groups:
        steps = [draw(st.integers(1, 3)) for _ in factors]
        sizes = itertools.accumulate(steps, operator.mul)
        tiers = map(Tier, names, factors, sizes)
        rails = draw(st.integers(1, cluster.gpus_per_server))
        return replace(cluster, rails=rails, tiers=tuple(tiers))
    groups = []
    for group in cluster.groups:
        path = ""
        switches: list[str] = []
        for _ in factors:
            path += draw(st.sampled_from("ab"))
            switches.insert(0, path)
        rails = draw(st.integers(1, group.gpus_per_server))
        groups.append(replace(group, rack="", rails=rails, switches=tuple(switches)))
    return Cluster.of(groups, tiers=list(map(Tier, names, factors)))


@st.composite
def cases(
    draw: st.DrawFn, general: bool = False, graphs: bool = False, fabric: bool = False
) -> Case:
    """Draw a case; every other one is crowded: many jobs across few servers.

    In half of them jobs share GPUs, in a quarter only some do, and in a quarter none. In general,
    two of three clusters are mixed; else all are uniform. With graphs, two of three jobs of a few
    GPUs have one, some of them from a builder. With a fabric, there are tiers and rails.
    """
    crowded = draw(st.booleans())
    mixed = general and draw(st.sampled_from([True, True, False]))
    cluster = draw(mixed_clusters(crowded) if mixed else uniform_clusters(crowded))
    alone = draw(st.sampled_from(["none", "none", "some jobs", "cluster"]))
    if fabric:
        cluster = draw(fabrics(cluster))
    cluster = replace(cluster, exclusive=alone == "cluster")
    memories = [cluster.gpu_types[kind].memory_bytes for kind in cluster.type_of_gpu]
    profiles = draw(
        st.lists(
            st.tuples(durations(), durations(), gradients(), st.integers(0, 10)),
            min_size=1,
            max_size=3,
        )
    )
    arrivals = st.one_of(st.sampled_from([0, 0, 1, 1_000_000]), st.integers(0, 20_000_000))
    most_gpus = min(cluster.gpus, draw(st.sampled_from([4, 8, 64])))
    priorities = draw(st.sampled_from([(0,), (0,), (0, 1), (-1, 0, 5, 7), (1, 2)]))
    jobs = []
    for index in range(draw(st.integers(4 if crowded else 1, 10))):
        forward, backward, gradient, memory = draw(st.sampled_from(profiles))
        memory = min(memory, max(memories))
        most = min(most_gpus, sum(memory <= other for other in memories))
        job = Job(
            job_id=str(index),
            arrival_ns=draw(arrivals),
            gpus=draw(st.integers(min(most, 2) if crowded else 1, most)),
            iterations=draw(st.integers(1, 6)),
            forward_ns=forward,
            backward_ns=backward,
            gradient_bytes=gradient,
            memory_bytes=memory,
            priority=draw(st.sampled_from(priorities)),
            exclusive=alone == "some jobs" and draw(st.booleans()),
        )
        graph = draw(graphs_of_jobs(job.gpus)) if graphs else None
        if graph is not None:
            most = max(1, MOST_NODES // graph.expanded.nodes)
            job = replace(with_graph(job, graph), iterations=min(job.iterations, most))
        jobs.append(job)
    return Case(
        workload=Workload(jobs),
        cluster=cluster,
        network=_for_rails(draw(varied(NETWORKS)), cluster),
        placement=draw(st.sampled_from(PLACEMENTS)),
        priority=draw(st.sampled_from(PRIORITIES)),
        admission=draw(st.sampled_from(ADMISSIONS))
        + draw(st.sampled_from(OPTIONS if graphs else OPTIONS[:1])),
        seed=draw(st.integers(0, 3)),
        bucket_bytes=draw(buckets(jobs)),
        buckets_if_shared=draw(st.booleans()),
    )


def _for_rails(network: NetworkModel, cluster: Cluster) -> NetworkModel:
    """Return the network, by the paper's law if the cluster has rails and it shares fairly."""
    if max(cluster.server_rails) > 1 and network.law == "max-min":
        return replace(network, law="busiest")
    return network


def run_engine(
    case: Case,
    timeline: Timeline | None = None,
    acceleration: Acceleration = "full",
    accuracy: float | None = None,
    initial: Moment | None = None,
) -> Result:
    return simulate(
        case.workload,
        case.cluster,
        network=case.network,
        policy=case.policies,
        seed=case.seed,
        acceleration=acceleration,
        accuracy=accuracy,
        initial=initial,
        timeline=timeline,
    )


def prepare_state(case: Case, acceleration: Acceleration) -> State:
    """Return the engine's own bookkeeping before a case's first instant."""
    return prepare(
        case.workload,
        case.cluster,
        case.network,
        case.policies.choices,
        compute_times(case.workload, case.cluster),
        case.seed,
        case.bucket_bytes,
        acceleration,
        0,
        buckets_if_shared=case.policies.buckets_if_shared,
    )


def run_state(case: Case, acceleration: Acceleration) -> State:
    """Run a case and return the engine's own bookkeeping."""
    state = prepare_state(case, acceleration)
    advance = compiled_kernel()
    while advance(state, 1000) != kernel.FINISHED:
        pass
    return state


def run_oracle(case: Case) -> oracle.OracleOutcome:
    """Return what the oracle makes of a case."""
    return _with_oracle(oracle.run, case)


def oracle_before(case: Case) -> oracle.Simulation:
    """Return the oracle before a case's first instant."""
    return _with_oracle(oracle.make, case)


def _with_oracle(do: Callable[..., _Made], case: Case) -> _Made:
    times = compute_times(case.workload, case.cluster)
    return do(
        [
            oracle.OracleJob(
                job.arrival_ns,
                job.gpus,
                job.iterations,
                job.forward_ns,
                job.backward_ns,
                job.gradient_bytes,
                job.memory_bytes,
                job.graph,
                job.priority,
                job.exclusive,
            )
            for job in case.workload
        ],
        server_gpus=case.cluster.server_gpus,
        memory_bytes=[gpu.memory_bytes for gpu in case.cluster.gpu_types],
        exclusive=case.cluster.exclusive,
        server_type=case.cluster.server_type,
        times_ns=[
            [tuple(times) for times in (plain if graph is None else graph).tolist()]
            for plain, graph in zip(times.times_ns, times.graph_times_ns, strict=True)
        ],
        rails=case.cluster.server_rails,
        tiers=[
            (switches, tier.oversubscription)
            for switches, tier in zip(
                case.cluster.server_switches, case.cluster.all_tiers, strict=True
            )
        ],
        a_ns=case.network.a_ns,
        b=case.network.b_ns_per_byte,
        eta=case.network.eta_ns_per_byte,
        contends=case.network.messages_meet,
        sharing="max-min" if case.network.law == "max-min" else "busiest",
        ring=case.network.ring_size,
        placement=case.placement,
        priority=case.priority,
        admission=case.admission,
        seed=case.seed,
        bucket_bytes=case.bucket_bytes,
        buckets_if_shared=case.buckets_if_shared,
    )
