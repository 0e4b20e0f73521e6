"""What simulate returns and refuses, by hand-computed cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import DATA, MB, make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError, PolicyError
from headway.domain.limits import HORIZON_NS, LONGEST_NS
from headway.domain.workload import Workload
from headway.engine.progress import Progress
from headway.engine.run import simulate
from headway.network.contention import NetworkModel
from headway.workload.generate import Recipe, generate_workload


def test_one_job_on_one_server_takes_its_compute_time() -> None:
    workload = make_workload(make_job(gpus=2, iterations=5, arrival_ns=7))
    result = simulate(workload, "1x2")
    assert result.start_ns.tolist() == [7]
    assert result.finish_ns.tolist() == [7 + 5 * 3_000_000]
    assert result.gpus == ((0, 1),)
    assert result.summary.simulated_tasks == 5 * 2 * 2
    assert result.summary.skipped_tasks == 4 * 2 * 2
    assert result.summary.average_gpu_utilization == 1.0
    assert result.summary.makespan_s == 0.015


def test_a_job_across_servers_pays_for_its_messages() -> None:
    workload = make_workload(make_job(gpus=2, iterations=2, gradient_bytes=1000))
    result = simulate(workload, "2x1")
    message_ns = 669_000 + 853
    assert result.finish_ns.tolist() == [2 * (3_000_000 + message_ns)]
    assert result.summary.simulated_tasks == 2 * (2 * 2 + 1)
    assert result.summary.skipped_tasks == (2 * 2 + 1) + 1


@pytest.mark.parametrize(
    ("priority", "starts"),
    [
        # The large job waits while small ones come and go; all last 3 ms.
        (0, [0, 7, 1, 3, 4]),
        (-1, [0, 7, 1, 3, 4]),
        # Both GPUs are kept for it, but from jobs of lower priority only.
        (1, [0, 3, 6, 6, 9]),
    ],
)
def test_a_job_of_a_priority_above_0_does_not_wait_for_those_behind_it(
    priority: int, starts: list[int]
) -> None:
    ms = 1_000_000
    jobs = [make_job(memory_bytes=16 << 30, arrival_ns=n * ms) for n in (0, 1, 1, 2, 4)]
    jobs[1] = replace(jobs[1], gpus=2, priority=priority)
    result = simulate(make_workload(*jobs), "1x2", policy="ff+fifo+srsf:1")
    assert [ns / ms for ns in result.start_ns.tolist()] == starts


def test_two_messages_share_a_server_and_both_slow_down() -> None:
    network = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.5)
    # Two jobs on GPUs of their own; messages of 100 bytes start together at 20 and cost 2.5 a byte.
    job = make_job(gpus=2, forward_ns=10, backward_ns=10, gradient_bytes=100, memory_bytes=10)
    cluster = Cluster(servers=2, gpus_per_server=2, gpu_memory_bytes=10)
    workload, spread = make_workload(job, job), f"{DATA}/spread.py:spread"
    both = simulate(workload, cluster, network=network, policy=f"{spread}+srsf:2")
    assert both.finish_ns.tolist() == [270, 270]
    one = simulate(workload, cluster, network=network, policy=f"{spread}+srsf:1")
    assert one.finish_ns.tolist() == [120, 220]


def test_without_contention_nothing_waits_and_nothing_slows_down() -> None:
    workload = generate_workload(Recipe(20, 5, {2: 1, 4: 1}, (5, 9), ["vgg16"]), seed=1)
    free = NetworkModel().without_contention()
    results = [
        simulate(workload, "4x2", network=free, policy=f"lwf:1+{name}").finish_ns.tolist()
        for name in ("ada-srsf", "srsf:1", "srsf:3")
    ]
    assert results[0] == results[1] == results[2]
    contended = simulate(workload, "4x2", policy="lwf:1+srsf:1")
    assert sum(results[0]) < sum(contended.finish_ns.tolist())


def test_progress_goes_up_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.engine.run._FIRST_SLICE", 1)
    monkeypatch.setattr("headway.engine.run._SLICE_S", 0.0)
    seen: list[Progress] = []
    workload = make_workload(make_job(gpus=2, iterations=9), make_job(iterations=4))
    simulate(workload, "2x1", acceleration="none", progress=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert len(fractions) > 5
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert seen[-1].tasks == 9 * 5 + 4 * 2


@pytest.mark.parametrize(
    ("jobs", "shape", "message"),
    [
        (
            [make_job(gpus=9)],
            "2x4",
            "gpus: job '0': 9 GPUs, but the cluster has 8 in all.",
        ),
        (
            [make_job(), make_job(memory_bytes=16385 * MB)],
            "2x4",
            "memory_mb: job '1': needs 16,385 MB on each GPU, but a GPU has 16,384 MB.",
        ),
        (
            [make_job(), make_job(iterations=10**12, forward_ns=10**6, backward_ns=10**6, gpus=8)],
            "2x4",
            "iterations: job '1': too many: with the other jobs that its GPUs may hold at once, "
            "more work on a server (1.03e+08 GPU hours) than the engine can add up (2.56e+06).",
        ),
        (
            [make_job(gpus=2**24)] * 9,
            "4096x4096",
            "the jobs ask for 150,994,944 GPUs in all; the engine can count 134,217,728.",
        ),
        (
            [make_job(gradient_bytes=2**53, gpus=2)] * 300,
            "2x4",
            "gradient_mb: job '0': a message of 9,007,199,254,740,992 bytes among 300 messages "
            "could take over 73 years.",
        ),
    ],
)
def test_a_workload_that_cannot_run_is_refused(
    jobs: list[object], shape: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        simulate(make_workload(*jobs), shape)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_run_past_the_last_instant_stops_with_an_error() -> None:
    # Each job alone ends in time; one after the other on one GPU they do not.
    job = make_job(forward_ns=LONGEST_NS // 2, backward_ns=LONGEST_NS // 2, memory_bytes=16384 * MB)
    workload = make_workload(*[job] * 3)
    with pytest.raises(InputError, match="the simulated time passes"):
        simulate(workload, "1x1")
    assert simulate(make_workload(job), "1x1").finish_ns[0] < HORIZON_NS


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True])
def test_a_seed_must_be_a_whole_number_in_range(seed: int) -> None:
    with pytest.raises(InputError, match="seed"):
        simulate(make_workload(make_job()), "1x1", seed=seed)


def test_policies_that_leave_everything_waiting_are_named() -> None:
    workload = make_workload(make_job(gpus=2))
    with pytest.raises(PolicyError) as caught:
        simulate(workload, "2x1", policy=f"{DATA}/faulty.py:never_place+ada-srsf")
    assert str(caught.value) == (
        "placement policy 'never_place' leaves jobs queued for ever: nothing is running and "
        "nothing more will arrive."
    )
    with pytest.raises(PolicyError, match="'never_admit' leaves messages waiting for ever"):
        simulate(workload, "2x1", policy=f"lwf:1+srsf+{DATA}/faulty.py:never_admit")


def test_one_job_without_memory_does_not_limit_the_others() -> None:
    jobs = [make_job(memory_bytes=0)] + [make_job()] * 200
    large = make_job(gpus=4, iterations=600_000, forward_ns=10**8, backward_ns=2 * 10**8)
    assert simulate(make_workload(*jobs, large), "1x4").finish_ns.max() > 18 * 10**13


def test_a_single_gpu_job_sends_nothing_so_its_gradient_may_be_huge() -> None:
    slow = NetworkModel(b_ns_per_byte=1e9)
    job = make_job(gradient_bytes=2**53)
    assert simulate(make_workload(job, job), "1x1", network=slow).finish_ns[0] == 3_000_000


def test_clusters_and_networks_may_be_named_as_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        "[cluster]\nservers = 2\ngpus_per_server = 1\n[network]\na_ns = 5\nb_ns_per_byte = 1.0\n"
    )
    workload = make_workload(make_job(gpus=2, gradient_bytes=100))
    result = simulate(workload, str(file), network=str(file))
    assert result.finish_ns.tolist() == [3_000_105]
    assert not simulate(workload, "2x1", network="no-contention").settings.network.messages_meet


def test_a_long_queue_is_not_searched_in_vain() -> None:
    """Jobs of every size and memory that cannot fit all at once still come in the right order."""
    jobs = [
        make_job(gpus=1 + index % 4, memory_bytes=(1 + index % 23) * 700 * MB, iterations=2)
        for index in range(120)
    ]
    result = simulate(make_workload(*jobs), "2x2")
    assert (result.finish_ns > 0).all()


@pytest.mark.parametrize("name", ["same_twice", "out_of_range", "no_room"])
def test_a_placement_outside_the_candidates_is_refused(name: str) -> None:
    full = make_job(gpus=1, memory_bytes=16384 * MB)
    with pytest.raises(PolicyError, match=f"'{name}' gave the job with index"):
        simulate(
            make_workload(full, make_job(gpus=2)), "3x1", policy=f"{DATA}/faulty.py:{name}+ada-srsf"
        )


def test_an_error_inside_a_policy_is_reported_with_its_line() -> None:
    for name, cluster, line, error in (
        ("beyond", "1x1", r"'beyond' \(line 36\)", "IndexError: index "),
        ("short_keys", "2x4", r"'short_keys' \((in stable_sort, )?line", "IndexError: index "),
        ("raises", "1x1", r"'raises' \(line 41\)", "ValueError: too many"),
    ):
        with pytest.raises(PolicyError, match=f"placement policy {line}.* raised {error}"):
            simulate(make_workload(make_job()), cluster, policy=f"{DATA}/faulty.py:{name}+ada-srsf")


def test_an_empty_workload_is_refused() -> None:
    with pytest.raises(InputError, match="there are no jobs"):
        Workload([])
