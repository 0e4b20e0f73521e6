"""Workloads of clusters that develop large language models."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.workload.files import read_workload, write_workload
from headway.workload.llm import KINDS, LONGEST_S, SHORTEST_S, generate_llm_workload


def kind(job: Job) -> str:
    return job.job_id.rpartition("-")[0]


def test_jobs_have_the_documented_shares_and_sizes() -> None:
    workload = generate_llm_workload(0)
    counts = Counter(map(kind, workload))
    assert counts == {"pretraining": 16, "fine-tuning": 50, "small": 434}
    sizes: dict[str, set[int]] = {}
    for job in workload:
        sizes.setdefault(kind(job), set()).add(job.gpus)
    assert sizes == {
        "pretraining": {64, 128, 256},
        "fine-tuning": {8, 16, 32},
        "small": {1, 2, 4, 8},
    }
    # Seren's jobs have 5.68 GPUs on average, and half of them have one.
    assert statistics.fmean(job.gpus for job in workload) == pytest.approx(5.68, rel=0.1)
    assert statistics.median(job.gpus for job in workload) == 1


def test_pretraining_takes_almost_all_gpu_time() -> None:
    hours: Counter[str] = Counter()
    for seed in range(3):
        for job in generate_llm_workload(seed):
            hours[kind(job)] += job.iterations * job.compute_ns * job.gpus
    assert 0.8 < hours["pretraining"] / hours.total() < 0.97


def test_durations_have_the_documented_median_and_bounds() -> None:
    jobs = generate_llm_workload(3, jobs=1000).jobs
    durations = [job.iterations * job.compute_ns / 1e9 for job in jobs if kind(job) == "small"]
    assert statistics.median(durations) == pytest.approx(122, rel=0.25)
    assert min(durations) >= SHORTEST_S - 1
    assert max(durations) <= LONGEST_S + 1


def test_a_seed_gives_the_same_jobs_in_arrival_order() -> None:
    workload = generate_llm_workload(7, jobs=60, span_s=3600)
    assert workload.jobs == generate_llm_workload(7, jobs=60, span_s=3600).jobs
    assert workload.jobs != generate_llm_workload(8, jobs=60, span_s=3600).jobs
    arrivals = [job.arrival_ns for job in workload]
    assert arrivals == sorted(arrivals)
    assert max(arrivals) <= 3600 * 10**9


def test_jobs_of_one_shape_share_one_graph_file(tmp_path: Path) -> None:
    workload = generate_llm_workload(0, jobs=100)
    write_workload(workload, tmp_path / "llm.csv")
    files = list((tmp_path / "llm.graphs").iterdir())
    assert len(files) <= sum(len(one.shapes) for one in KINDS)
    assert read_workload(tmp_path / "llm.csv").jobs == workload.jobs


def test_messages_remain_where_a_placement_may_split_a_group() -> None:
    """Groups of tensor parallelism have messages, which take no time on one server."""
    job = next(job for job in generate_llm_workload(0) if kind(job) == "fine-tuning")
    assert job.graph is not None
    assert job.graph.message_count > 0


@pytest.mark.parametrize(("jobs", "span_s"), [(0, None), (1, 0)])
def test_bad_numbers_are_refused(jobs: int, span_s: int | None) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        generate_llm_workload(0, jobs=jobs, span_s=span_s)
