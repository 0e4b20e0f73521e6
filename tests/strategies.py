"""Random small simulations, built to meet every branch of the model.

Numbers come from small sets so that ends, arrivals and priorities tie often; some are awkward, so
that rounding shows; a few are huge, so that messages last far longer than computing.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from headway.domain.cluster import Cluster
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.network.contention import NetworkModel

PLACEMENTS = (
    "rand",
    "ff",
    "ls",
    "lwf:1",
    "lwf:2",
    "lwf:4",
    "lwf:8",
    "spread",
    "least-delay",
    "consolidate",
    "tiresias",
    "apart",
)
PRIORITIES = ("srsf", "srtf", "fifo", "smallest", "las", "2d-las:0.004", "gpu-intensity")
ADMISSIONS = ("ada-dual", "k-way", "interleave", "srsf:1", "srsf:2", "srsf:3")
NETWORKS = (
    NetworkModel(),
    NetworkModel(),
    NetworkModel(a_ns=0, eta_ns_per_byte=0.0),
    NetworkModel(a_ns=7, b_ns_per_byte=1.0, eta_ns_per_byte=0.5),
    NetworkModel(contends=False),
)


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


def durations() -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from([1, 2, 3, 10, 1_000, 1_000_000]), st.integers(1, 3_000_000))


def gradients() -> st.SearchStrategy[int]:
    return st.one_of(
        st.sampled_from([0, 1, 1_000, 10_000, 1_000_000, 3_000_000]),
        st.integers(0, 5_000_000),
        st.integers(0, 2**40),
    )


def buckets(jobs: list[Job]) -> st.SearchStrategy[int | None]:
    """Draw no bucket size, or one that makes a few buckets of the largest gradients."""
    largest = max(job.gradient_bytes for job in jobs)
    return st.one_of(
        st.none(),
        st.sampled_from(jobs).map(lambda job: max(1, job.gradient_bytes, largest // 6)),
        st.builds(
            lambda n, more: max(1, largest // n + more), st.integers(1, 5), st.integers(0, 1)
        ),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a case; every other one is crowded: many jobs across few servers."""
    crowded = draw(st.booleans())
    cluster = Cluster(
        servers=draw(st.integers(2, 4) if crowded else st.integers(1, 8)),
        gpus_per_server=draw(st.integers(1, 2) if crowded else st.integers(1, 8)),
        gpu_memory_bytes=draw(st.sampled_from([10, 16, 40])),
    )
    profiles = draw(
        st.lists(
            st.tuples(durations(), durations(), gradients(), st.integers(0, 10)),
            min_size=1,
            max_size=3,
        )
    )
    arrivals = st.one_of(st.sampled_from([0, 0, 1, 1_000_000]), st.integers(0, 20_000_000))
    most_gpus = min(cluster.gpus, draw(st.sampled_from([4, 8, 64])))
    jobs = []
    for index in range(draw(st.integers(4 if crowded else 1, 10))):
        forward, backward, gradient, memory = draw(st.sampled_from(profiles))
        jobs.append(
            Job(
                job_id=str(index),
                arrival_ns=draw(arrivals),
                gpus=draw(st.integers(2 if crowded else 1, most_gpus)),
                iterations=draw(st.integers(1, 6)),
                forward_ns=forward,
                backward_ns=backward,
                gradient_bytes=gradient,
                memory_bytes=memory,
            )
        )
    return Case(
        workload=Workload(jobs),
        cluster=cluster,
        network=draw(st.sampled_from(NETWORKS)),
        placement=draw(st.sampled_from(PLACEMENTS)),
        priority=draw(st.sampled_from(PRIORITIES)),
        admission=draw(st.sampled_from(ADMISSIONS)),
        seed=draw(st.integers(0, 3)),
        bucket_bytes=draw(buckets(jobs)),
    )
