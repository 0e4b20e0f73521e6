"""GPU types: the time of kernels, and their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.configuration import network_from
from headway.domain.errors import InputError
from headway.llm.clusters import VTRAIN_NETWORK, usual_network
from headway.llm.gpu_file import gpu_from, gpu_names, read_gpu

A100 = gpu_from("a100")


def test_a_large_multiplication_reaches_the_efficiency_of_the_gpu() -> None:
    size = 2**14
    flops_per_s = 2 * size**3 / A100.gemm_ns(size, size, size) * 1e9
    share = flops_per_s / A100.peak_flops_per_s
    assert 0.9 * A100.gemm_efficiency < share < A100.gemm_efficiency


def test_one_tile_more_than_a_wave_takes_a_wave_more() -> None:
    gpu = replace(A100, multiprocessors=100, kernel_ns=0.0, memory_bytes_per_s=1e18)
    # 100 tiles of 256 x 128, which is the most efficient size.
    one = gpu.gemm_ns(25_600, 128, 4096)
    assert gpu.gemm_ns(25_600 + 256, 128, 4096) > 1.2 * one
    assert gpu.gemm_ns(25_600 - 256, 128, 4096) == one


def test_a_shallow_multiplication_takes_as_long_as_the_memory() -> None:
    m = n = 2**13
    moved = 2 * (m * 8 + 8 * n + m * n)
    assert A100.gemm_ns(m, n, 8) == A100.elementwise_ns(moved)


def test_rows_that_are_not_aligned_are_slow() -> None:
    assert A100.gemm_ns(4096, 50_257, 4096) > 2 * A100.gemm_ns(4096, 50_304, 4096)


def test_precisions_have_their_own_peak() -> None:
    h100 = gpu_from("h100")
    size = 2**13
    times = [h100.gemm_ns(size, size, size, one) for one in ("fp8", "bf16", "fp32")]
    assert times[0] < 0.6 * times[1] < 0.36 * times[2]


def test_an_all_reduce_takes_the_link_of_its_gpus_or_the_next_larger_one() -> None:
    gpu = replace(A100, server_links=(A100.server_links[0], A100.server_links[-1]))
    assert gpu.all_reduce_ns(2, 2**20) < gpu.all_reduce_ns(3, 2**20)
    assert gpu.all_reduce_ns(3, 2**20) == gpu.all_reduce_ns(16, 2**20)


def test_shipped_types_say_whether_they_are_estimates() -> None:
    assert {"a100", "h100", "v100"} <= set(gpu_names())
    assert [gpu_from(name).estimate for name in ("a100", "h100", "v100")] == [False, True, True]
    for name in gpu_names():
        gpu = gpu_from(name)
        assert gpu.name == name
        assert 0 < gpu.gemm_efficiency <= 1
        assert 0 < gpu.memory_efficiency <= 1


def test_what_was_not_measured_of_a_measured_type_is_named() -> None:
    h200 = gpu_from("h200")
    assert not h200.estimate
    assert set(h200.estimates) >= {"server_links", "collective_ns"}
    assert gpu_from("a100").estimates == ()


def test_faster_memory_makes_a_gpu_no_slower() -> None:
    slower, faster = gpu_from("h100"), gpu_from("h200")
    for m, n, k in ((4096, 4096, 4096), (64, 8192, 8192), (8192, 64, 128)):
        assert faster.gemm_ns(m, n, k) <= slower.gemm_ns(m, n, k)
    assert faster.elementwise_ns(2**30) < slower.elementwise_ns(2**30)
    assert faster.all_reduce_ns(8, 2**26) == slower.all_reduce_ns(8, 2**26)
    assert faster.collective_ns == slower.collective_ns


def test_the_start_and_end_of_a_tile_take_the_same_time_in_every_precision() -> None:
    gpu = replace(gpu_from("h100"), memory_bytes_per_s=1e18, kernel_ns=0.0)
    # Half as long for the depth itself, and as long for the rest.
    deep, shallow = (
        [gpu.gemm_ns(8192, 8192, k, kind) for kind in ("bf16", "fp8")] for k in (2**14, 2**7)
    )
    assert deep[0] / deep[1] > 1.95
    assert shallow[0] / shallow[1] < 1.3


def test_a_file_may_have_only_what_differs_from_another_type(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'like = "h200"\nname = "mine"\nsource = "x"\nestimate = true\nkernel_ns = 9.0\n'
    )
    expected = replace(
        gpu_from("h200"), name="mine", source="x", estimate=True, kernel_ns=9.0, estimates=()
    )
    assert gpu_from(str(path)) == expected
    path.write_text('like = "h2000"\n')
    with pytest.raises(InputError, match=r"line 1, column 1 \(like\): unknown GPU 'h2000'"):
        gpu_from(str(path))


@pytest.mark.parametrize(
    ("gpu", "gbit_per_s"), [("a100", 800), ("h100", 3200), ("h200", 3200), ("v100", 400)]
)
def test_each_type_has_its_usual_network(gpu: str, gbit_per_s: int) -> None:
    network = network_from(usual_network(gpu))
    # A ring sends each byte about twice.
    share = 2 * 8 / (network.b_ns_per_byte * gbit_per_s)
    assert 0.3 < share < 0.95


def test_an_unknown_type_has_the_network_of_the_a100() -> None:
    assert usual_network("mine") == usual_network("a100") == str(VTRAIN_NETWORK)


def _text() -> str:
    from importlib import resources

    return (resources.files("headway.llm") / "data" / "a100.toml").read_text()


def test_a_file_is_read_as_it_ships(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(_text())
    assert gpu_from(str(path)) == A100


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kernel_ns", "kernl_ns", r", line \d+, column 1 \(kernl_ns\): unknown key\. Did you mean"),
        ("multiprocessors = 108\n", "", "'multiprocessors' is missing"),
        ("multiprocessors = 108", "multiprocessors = 1.5", "must be a whole number, not 1.5"),
        ("gemm_efficiency = ", "gemm_efficiency = -", "must be greater than 0, and finite"),
        ("estimate = false", 'estimate = "no"', "must be true or false"),
        ('name = "a100"', "name = 1", "must be a non-empty string"),
        ("gpus = 2\n", "gpus = 9\n", "must be in ascending order"),
        ("estimate = false", "estimate =", "not TOML"),
        ("estimate = false", "estimate = false\nestimates = 1", "must be a list of keys, not 1"),
        ("memory_efficiency = ", "memory_efficiency = 1e18 #", "must be at most 2, not 1e[+]18"),
        ("estimate = false", 'estimate = false\nestimates = ["x"]', "unknown key 'x'"),
        ("launch_ns = ", "launch_ns = inf #", "must be 0 or more, and finite, not inf"),
        ("launch_ns = ", "launch_ns = nan #", "must be 0 or more, and finite, not nan"),
        ("launch_ns = ", f"launch_ns = {10**400} #", "must be from 1e-30 to 1e[+]30, not 1000"),
        ("memory_efficiency = ", "memory_efficiency = 1e-200 #", "must be from 1e-30 to 1e[+]30"),
        ("launch_ns = ", f"launch_ns = {'1' * 5000} #", "not TOML: Exceeds the limit"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(
    old: str, new: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    assert old in _text()
    path.write_text(_text().replace(old, new, 1))
    with pytest.raises(InputError, match=problem) as caught:
        read_gpu(str(path))
    assert str(caught.value).startswith(str(path))


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown GPU 'a1000'.*Did you mean 'a100'"):
        gpu_from("a1000")
