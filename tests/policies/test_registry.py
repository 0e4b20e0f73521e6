"""Policies are found by name, in files, and from Python."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builders import EXAMPLES, built_in, make_job, make_workload, paper_with
from headway.domain.errors import InputError, PolicyError
from headway.engine.run import simulate
from headway.policies import (
    NO_LIMIT,
    Integers,
    Parameter,
    admission_policy,
    placement_policy,
    priority_policy,
)
from headway.policies.registry import Kind, choose
from headway.workload.generate import Recipe, generate_workload

WORKLOAD = generate_workload(Recipe(30, 20, {1: 2, 2: 1, 4: 1, 8: 1}, (3, 9), ["vgg16"]), seed=5)
PAPERS: dict[Kind, set[str]] = {
    "placement": {"rand", "ff", "ls", "lwf:1"},
    "priority": {"srsf"},
    "admission": {"srsf:1", "srsf:2", "srsf:3", "ada-dual"},
}


@pytest.mark.parametrize("kind", PAPERS)
def test_the_papers_policies_are_built_in_and_every_policy_is_documented(kind: Kind) -> None:
    assert PAPERS[kind] <= set(built_in(kind))
    for text in built_in(kind):
        policy = choose(kind, text).policy
        assert policy.summary.endswith("."), policy.name
        assert policy.function.__module__.startswith(f"headway.policies.{kind}."), policy.name


def test_a_parameter_is_shown_as_it_is_meant() -> None:
    assert choose("placement", "lwf:04").name == "lwf:4"
    assert choose("placement", "lwf:4.0").parameter == 4


def test_a_registered_policy_is_used_by_name() -> None:
    @priority_policy("test-largest", parameter=Parameter("scale"))
    def largest(cluster: Any, job: int, scale: float) -> int:
        return int(-cluster.jobs[job].gpus * scale)

    small, large = make_job(gpus=1), make_job(gpus=2)
    full = make_workload(small, large)
    usual = simulate(full, "1x2")
    other = simulate(full, "1x2", policy=paper_with(priority="test-largest:1.5"))
    assert usual.finish_ns.tolist() == [3_000_000, 6_000_000]
    assert other.finish_ns.tolist() == [6_000_000, 3_000_000]
    assert other.settings.priority == "test-largest:1.5"


def test_a_name_is_taken_once() -> None:
    @admission_policy("test-taken")
    def first(cluster: Any, job: int, parameter: float) -> bool:
        return True

    def second(cluster: Any, job: int, parameter: float) -> bool:
        return False

    admission_policy("test-taken")(first)
    with pytest.raises(PolicyError, match="there is already a policy named 'test-taken'"):
        admission_policy("test-taken")(second)


@pytest.mark.parametrize("name", ["", "a:b"])
def test_a_name_that_could_not_be_written_is_refused(name: str) -> None:
    with pytest.raises(PolicyError, match="must not be empty or hold a colon"):
        placement_policy(name)


@pytest.mark.slow
def test_a_copy_of_a_built_in_policy_gives_the_same_result(tmp_path: Path) -> None:
    source = Path(sys.modules["headway.policies.placement.lwf"].__file__ or "").read_text()
    (tmp_path / "mine.py").write_text(source.replace('"lwf"', '"mine"'))
    usual = simulate(WORKLOAD, "4x2", policy=paper_with(placement="lwf:1"))
    mine = simulate(WORKLOAD, "4x2", policy=paper_with(placement=f"{tmp_path}/mine.py:mine:1"))
    assert mine.finish_ns.tolist() == usual.finish_ns.tolist()
    by_function = simulate(
        WORKLOAD, "4x2", policy=paper_with(placement=f"{tmp_path}/mine.py:least_workload_first:1")
    )
    assert by_function.finish_ns.tolist() == usual.finish_ns.tolist()


def test_promising_to_be_steady_changes_no_result_of_the_built_ins() -> None:
    """The engine may ask a steady policy less often; asked every time, it answers the same."""
    policy = choose("placement", "lwf:1").policy
    assert policy.steady
    usual = simulate(WORKLOAD, "4x2", policy=paper_with(placement="lwf:1"))
    object.__setattr__(policy, "steady", False)
    try:
        restless = simulate(WORKLOAD, "4x2", policy=paper_with(placement="lwf:1"))
    finally:
        object.__setattr__(policy, "steady", True)
    assert restless.finish_ns.tolist() == usual.finish_ns.tolist()
    assert restless.gpus == usual.gpus


def test_an_admission_by_port_is_steady() -> None:
    @admission_policy("test-by-port", by_port=True)
    def by_port(cluster: Any, port: int, parameter: float) -> int:
        return NO_LIMIT

    assert choose("admission", "test-by-port").policy.steady


def test_an_admission_by_port_that_lets_no_message_start_is_named() -> None:
    @admission_policy("test-never", by_port=True)
    def never(cluster: Any, port: int, parameter: float) -> int:
        return 0

    with pytest.raises(PolicyError, match="'test-never' leaves messages waiting for ever"):
        simulate(WORKLOAD, "4x2", policy=paper_with(admission="test-never"))


def test_a_restless_placement_is_asked_again_and_again() -> None:
    @placement_policy("test-later", parameter=Parameter("not_before"))
    def later(cluster: Any, job: int, candidates: Integers, not_before: float) -> bool:
        return bool(cluster.system[0].now_ns >= not_before)

    workload = make_workload(make_job(iterations=5), make_job(arrival_ns=7_500_000))
    result = simulate(workload, "1x2", policy=paper_with(placement="test-later:4000000"))
    # The only instants are arrivals and ends of tasks; the first from 4 ms on is at 7.5 ms.
    assert result.start_ns.tolist() == [7_500_000, 7_500_000]


def test_the_example_policies_run_and_do_what_they_say() -> None:
    file = EXAMPLES / "my_policies.py"
    packed = simulate(WORKLOAD, "4x2", policy=paper_with(placement=f"{file}:packed"))
    assert packed.settings.placement == "packed"
    # Packing fills one server before it opens the next.
    two = make_workload(make_job(gpus=1), make_job(gpus=1), make_job(gpus=2))
    first = simulate(two, "2x2", policy=paper_with(placement=f"{file}:packed"))
    assert first.gpus == ((0,), (1,), (0, 1))
    strict = simulate(WORKLOAD, "4x2", policy=paper_with(admission=f"{file}:patient:0"))
    alone = simulate(WORKLOAD, "4x2", policy=paper_with(admission="srsf:1"))
    assert strict.finish_ns.tolist() == alone.finish_ns.tolist()


def test_a_policy_may_make_arrays_if_it_says_so() -> None:
    import numpy as np

    @admission_policy("test-array", allocates=True)
    def with_array(cluster: Any, job: int, parameter: float) -> bool:
        return bool(np.ones(2).sum() == 2)

    workload = make_workload(make_job(gpus=2))
    assert simulate(workload, "2x1", policy=paper_with(admission="test-array")).finish_ns[0] > 0


def test_a_policy_typed_at_a_prompt_works_too() -> None:
    """Without a file there is no disk cache, and none is needed."""
    code = (
        "import headway\n"
        "from headway.policies import admission_policy\n"
        "exec('''\n"
        "@admission_policy('typed')\n"
        "def typed(cluster, job, parameter):\n"
        "    return True\n"
        "''')\n"
        "w = headway.generate_workload(headway.Recipe(3, 1, {2: 1}, (1, 2), ['vgg16']))\n"
        "print(len(headway.simulate(w, '2x1', policy='lwf:1+srsf+typed').gpus))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


@pytest.mark.slow
def test_own_policies_come_from_the_disk_cache_next_time(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def mine(cluster, job, candidates, parameter):\n"
        f"    'Unlike any before: {uuid.uuid4()}.'\n"
        "    return True\n"
    )
    command = [
        *(sys.executable, "-m", "headway", "simulate", "-", "-q"),
        *("--placement", f"{tmp_path}/mine.py:mine"),
    ]
    workload = b"job_id,arrival_s,gpus,iterations,model\na,0,1,1,vgg16\n"
    said = [
        subprocess.run(command, input=workload, capture_output=True, check=True).stderr.decode()
        for _ in range(2)
    ]
    assert "Compiling placement policy mine for this machine, once" in said[0]
    assert said[1] == ""


@pytest.mark.slow
def test_a_file_can_be_named_by_path_and_imported_as_a_module(tmp_path: Path) -> None:
    """What one way has compiled does not get in the way of the other."""
    (tmp_path / "mine.py").write_text(
        "from headway.policies import admission_policy\n"
        "@admission_policy('mine')\n"
        "def mine(cluster, job, parameter):\n    return True\n"
    )
    start = (
        "import headway\n"
        "w = headway.generate_workload(headway.Recipe(3, 1, {2: 1}, (1, 2), ['vgg16']))\n"
    )
    by_path = f"headway.simulate(w, '2x1', policy='lwf:1+srsf+{tmp_path}/mine.py:mine')"
    by_name = "import mine; headway.simulate(w, '2x1', policy='lwf:1+srsf+mine')"
    for code in (by_path, by_name, by_path, by_name):
        subprocess.run(
            [sys.executable, "-c", start + code],
            check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )


def test_a_file_may_be_loaded_by_several_threads_at_once(tmp_path: Path) -> None:
    file = tmp_path / "slow_to_load.py"
    file.write_text(
        "import time\ntime.sleep(0.1)\n"
        "def slow(cluster, job, candidates, parameter):\n    return True\n"
    )
    with ThreadPoolExecutor(4) as pool:
        names = pool.map(lambda _: choose("placement", f"{file}:slow").name, range(4))
    assert list(names) == ["slow"] * 4


@pytest.mark.slow
def test_an_edited_policy_is_compiled_anew(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    command = [
        *(sys.executable, "-m", "headway", "simulate", "-", "-q", "--cluster", "1x2"),
        *("--placement", f"{file}:mine", "--json", "-"),
    ]
    workload = b"job_id,arrival_s,gpus,iterations,model\na,0,1,1,vgg16\n"
    for gpu in (0, 1):
        file.write_text(
            f"def mine(cluster, job, candidates, parameter):\n    candidates[0] = {gpu}\n"
            "    return True\n"
        )
        os.utime(file, (gpu, gpu))
        done = subprocess.run(command, input=workload, capture_output=True, check=True)
        assert f'"gpus": [{gpu}]'.encode() in done.stdout


def test_an_unknown_policy_lists_or_suggests() -> None:
    with pytest.raises(InputError, match="Did you mean 'rand'"):
        choose("placement", "random")
