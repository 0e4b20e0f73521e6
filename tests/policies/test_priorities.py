"""Priorities decide which job goes first where two want the same thing."""

from __future__ import annotations

from builders import MB, make_job, make_workload
from headway.domain.job import Job
from headway.engine.run import simulate

MS = 1_000_000


def finishes_ms(*jobs: Job, priority: str, cluster: str = "1x1") -> list[float]:
    """Return when jobs finish; each computes 1 ms forward and 2 ms backward, unless it says."""
    result = simulate(make_workload(*jobs), cluster, policy=f"ff+{priority}+srsf:1")
    return [finish / MS for finish in result.finish_ns.tolist()]


def test_las_lets_a_new_job_catch_up_and_then_they_take_turns() -> None:
    old, new = make_job(iterations=4), make_job(iterations=4, arrival_ns=5 * MS)
    # At 6 ms the old job has done two iterations; the new one now does two, then each one in turn.
    assert finishes_ms(old, new, priority="las") == [21, 24]
    assert finishes_ms(old, new, priority="fifo") == [12, 24]


def test_las_counts_every_gpu() -> None:
    wide, narrow = make_job(gpus=2, iterations=3), make_job(iterations=3)
    # Two iterations of the narrow job are as much service as one of the wide job.
    assert finishes_ms(wide, narrow, priority="las", cluster="1x2") == [18, 15]


def test_2d_las_is_first_in_first_out_within_a_quantum() -> None:
    old, new = make_job(iterations=4), make_job(iterations=2, arrival_ns=5 * MS)
    assert finishes_ms(old, new, priority="2d-las:1") == [12, 18]


def test_2d_las_passes_over_a_job_that_has_used_its_quantum() -> None:
    old, new = make_job(iterations=4), make_job(iterations=2, arrival_ns=5 * MS)
    # 6 ms of GPU time are the bound: the old job has them when its second iteration ends.
    assert finishes_ms(old, new, priority="2d-las:0.006") == [18, 12]
    # With a bound of 9 ms it does a third iteration first.
    assert finishes_ms(old, new, priority="2d-las:0.009") == [18, 15]


def test_the_queues_of_2d_las_end_at_one_two_and_five_quanta() -> None:
    # Bounds of 3, 6 and 15 ms. At 9 ms the old job is in the third queue, which the new one enters
    # with its second iteration; the old one was placed before it.
    old, new = make_job(iterations=5), make_job(iterations=3, arrival_ns=8 * MS)
    assert finishes_ms(old, new, priority="2d-las:0.003") == [21, 24]
    # At 21 ms the old job is in the fourth, which the new one enters with its fifth iteration.
    old, new = make_job(iterations=8), make_job(iterations=8, arrival_ns=20 * MS)
    assert finishes_ms(old, new, priority="2d-las:0.003") == [39, 48]


def test_gpu_intensity_prefers_much_computation_and_little_communication() -> None:
    chatty = make_job(gpus=2, gradient_bytes=100 * MB)
    quiet = make_job(gpus=2, gradient_bytes=1 * MB)
    # One GPU in each server: the first in the order computes and sends first.
    first = finishes_ms(chatty, quiet, priority="gpu-intensity", cluster="2x1")
    assert first[1] < first[0]
    assert finishes_ms(chatty, quiet, priority="fifo", cluster="2x1")[1] > first[1]


def test_gpu_intensity_counts_the_computation_of_all_gpus() -> None:
    small, large = make_job(gpus=2), make_job(gpus=4)
    finish = finishes_ms(small, large, priority="gpu-intensity", cluster="4x1")
    assert finish[1] < finish[0]


def test_a_job_that_never_communicates_has_the_highest_gpu_intensity() -> None:
    across, inside = make_job(gpus=3), make_job(gpus=1)
    finish = finishes_ms(across, inside, priority="gpu-intensity", cluster="2x2")
    assert finish[1] == 3
