"""A job's times on each type of GPU: measured, else estimated by t = lambda * B / P."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import make_job, make_workload
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.compute_times import compute_times, compute_times_ns, estimated_pairs
from headway.domain.errors import InputError
from headway.domain.gpus import V100, GpuType, gpu_type
from headway.domain.job import Job
from headway.domain.profiles import Profile
from headway.domain.workload import Workload
from headway.workload.generate import generate_workload

TWICE = GpuType("twice", 2**34, 31.4, 0, 0)
MIXED = [ServerGroup(1, 1, V100), ServerGroup(1, 1, TWICE)]


def on_twice(job: Job, *profiles: Profile) -> tuple[tuple[int, int], bool]:
    found = compute_times(make_workload(job), Cluster.of(MIXED, profiles=profiles))
    forward, backward = found.times_ns[0, 1].tolist()
    return (forward, backward), bool(found.estimated[0, 1])


def test_on_a_uniform_cluster_every_job_keeps_its_own_times() -> None:
    workload = generate_workload("paper", seed=0)
    for cluster in (Cluster(), Cluster(4, 2, 2**40, 50, 400), Cluster(servers_per_rack=4)):
        found = compute_times(workload, cluster)
        own = [[[job.forward_ns, job.backward_ns]] for job in workload]
        assert found.times_ns.tolist() == own
        assert not found.estimated.any()
        assert estimated_pairs(workload, cluster) == []


def test_times_on_another_type_follow_from_its_performance() -> None:
    assert on_twice(make_job(forward_ns=1001, backward_ns=7)) == ((500, 4), True)
    a100 = Cluster.of([ServerGroup(1, 1, gpu_type("a100"))])
    times = compute_times_ns(make_workload(make_job(forward_ns=35_800_000)), a100)
    assert times.shape == (1, 1, 2)
    assert times[0, 0, 0] == round(35_800_000 * 15.7 / 19.5)


def test_no_time_is_less_than_a_nanosecond() -> None:
    assert on_twice(make_job(forward_ns=1, backward_ns=1)) == ((1, 1), True)


def test_a_type_of_equal_performance_has_exactly_the_same_times() -> None:
    twin = replace(TWICE, name="twin", performance=V100.performance)
    cluster = Cluster.of([ServerGroup(1, 1, twin)])
    long = make_job(forward_ns=2**60 + 1)
    assert compute_times(make_workload(long), cluster).times_ns[0, 0, 0] == 2**60 + 1
    assert compute_times(make_workload(long), cluster).estimated.all()


def test_a_measured_profile_wins_over_an_estimate() -> None:
    job = Job.of_model("resnet50", job_id="a", arrival_ns=0, gpus=1, iterations=1)
    assert on_twice(job, Profile("resnet50", "twice", 5, 6)) == ((5, 6), False)
    assert on_twice(job, Profile("resnet50", "twice", 5, 6, 16)) == ((5, 6), False)
    assert on_twice(job, Profile("vgg16", "twice", 5, 6)) == ((12_500_000, 18_700_000), True)
    assert on_twice(replace(job, batch_size=16), Profile("resnet50", "twice", 5, 6))[1] is False


def test_a_profile_at_another_batch_size_is_scaled_from_the_nearest() -> None:
    job = Job.of_model("resnet50", job_id="a", arrival_ns=0, gpus=1, iterations=1)
    far, near = Profile("resnet50", "twice", 5, 6, 128), Profile("resnet50", "twice", 100, 150, 32)
    assert on_twice(job, far, near) == ((50, 75), True)
    assert on_twice(replace(job, batch_size=128), far, near) == ((5, 6), False)
    assert on_twice(replace(job, batch_size=64), far, near) == ((200, 300), True)


def test_a_custom_model_is_scaled_only_if_job_and_profile_give_a_batch_size() -> None:
    job = make_job(model="bert", forward_ns=1000, backward_ns=2000)
    unknown, known = Profile("bert", "twice", 3, 4), Profile("bert", "twice", 30, 40, 8)
    assert on_twice(job, unknown, known) == ((3, 4), False)
    assert on_twice(job, known) == ((500, 1000), True)
    assert on_twice(replace(job, batch_size=4), unknown) == ((500, 1000), True)
    assert on_twice(replace(job, batch_size=4), unknown, known) == ((15, 20), True)


def test_on_the_reference_type_a_measurement_replaces_only_what_was_estimated() -> None:
    job = make_job(model="vgg16", batch_size=32, forward_ns=1000, backward_ns=2000)
    profile = Profile("vgg16", V100.name, 5, 6, 32)
    cluster = Cluster.of(MIXED, profiles=[profile])
    own = compute_times(make_workload(job), cluster)
    assert own.times_ns[0, 0].tolist() == [1000, 2000]
    assert not own.estimated[0, 0]
    scaled = compute_times(make_workload(replace(job, estimated=True)), cluster)
    assert scaled.times_ns[0, 0].tolist() == [5, 6]
    assert not scaled.estimated[0, 0]
    assert compute_times(make_workload(replace(job, estimated=True)), Cluster()).estimated[0, 0]


def test_estimates_are_listed_by_model_and_type() -> None:
    jobs = [
        Job.of_model(model, job_id=str(index), arrival_ns=0, gpus=1, iterations=1)
        for index, model in enumerate(["vgg16", "resnet50", "vgg16"])
    ]
    cluster = Cluster.of(MIXED, profiles=[Profile("resnet50", "twice", 5, 6)])
    assert estimated_pairs(make_workload(*jobs), cluster) == [("vgg16", "twice")]


def test_a_type_on_which_a_job_ends_after_the_last_instant_is_refused() -> None:
    slow = Cluster.of([ServerGroup(1, 1, replace(TWICE, performance=1e-9))])
    with pytest.raises(InputError, match="on twice computation alone would end after"):
        compute_times(make_workload(make_job(forward_ns=2**50)), slow)
    with pytest.raises(InputError, match="on twice computation alone would end after"):
        compute_times(make_workload(make_job(iterations=10**6)), slow)


def test_times_measured_on_another_type_are_used_there_and_estimated_elsewhere() -> None:
    job = make_job(forward_ns=1001, backward_ns=7, measured_on="twice")
    assert on_twice(job) == ((1001, 7), False)
    found = compute_times(make_workload(job), Cluster.of(MIXED))
    assert found.times_ns[0, 0].tolist() == [2002, 14]
    assert found.estimated[0].tolist() == [True, False]


def test_times_on_a_type_of_unknown_performance_cannot_be_scaled() -> None:
    job = make_job(model="bert", batch_size=8, measured_on="mystery")
    with pytest.raises(InputError, match="measured on 'mystery', whose performance is unknown"):
        compute_times(make_workload(job), Cluster.of(MIXED))
    profiles = [Profile("bert", V100.name, 3, 4, 8), Profile("bert", "twice", 5, 6, 4)]
    found = compute_times(make_workload(job), Cluster.of(MIXED, profiles=profiles))
    assert found.times_ns[0].tolist() == [[3, 4], [10, 12]]
    assert compute_times(make_workload(job), Cluster()).times_ns[0, 0].tolist() == [
        1_000_000,
        2_000_000,
    ]


def test_a_clusters_profile_wins_over_a_workloads() -> None:
    job = make_job(model="bert", batch_size=8)
    general, own = Profile("bert", "twice", 3, 4, 8), Profile("bert", "twice", 5, 6, 8)
    workload = Workload([job], profiles=[general])
    assert compute_times(workload, Cluster.of(MIXED)).times_ns[0, 1].tolist() == [3, 4]
    assert compute_times(workload, Cluster.of(MIXED, profiles=[own])).times_ns[0, 1].tolist() == [
        5,
        6,
    ]


def test_an_estimate_on_the_reference_type_may_end_after_the_last_instant_too() -> None:
    job = make_job(forward_ns=2**60, measured_on="fast")
    fast = GpuType("fast", 2**34, 1e6, 0, 0)
    groups = [ServerGroup(1, 1, V100), ServerGroup(1, 1, fast)]
    with pytest.raises(InputError, match="on v100-sxm2 computation alone would end after"):
        compute_times(make_workload(job), Cluster.of(groups))
