"""What a policy may do: read the cluster, and decide by that alone, compiled or not."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import make_job, make_workload, paper_with
from headway.domain.errors import PolicyError
from headway.engine.run import simulate
from headway.policies import Integers, part, routine, stable_sort
from headway.policies.registry import choose

COMPILED = not os.environ.get("NUMBA_DISABLE_JIT")
TWO_JOBS = make_workload(make_job(gpus=2), make_job(gpus=1))


@routine
def _free(gpus: Any) -> None:
    gpus[0].free_bytes = 2**40


def _writes_a_field(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    cluster.gpus[0].held = 10**9
    return True


def _writes_by_name(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    record = cluster.jobs[job]
    record["gpus"] = 2**40
    return True


def _writes_a_column(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    jobs = cluster.jobs
    jobs.gpus[:] = 0
    return True


def _writes_a_record(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    cluster.jobs[0] = cluster.jobs[1]
    return True


def _writes_numbers(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    cluster.gpus.load_ns[0] += 1
    return True


def _has_it_written(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    _free(cluster.gpus)
    return True


def _sorts_a_column(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    stable_sort(cluster.gpus.load_ns, cluster.gpus.load_ns)
    return True


def _sorts_in_place(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    cluster.gpus.load_ns.sort()
    return True


@pytest.mark.parametrize(
    "function",
    [
        _writes_a_field,
        _writes_by_name,
        _writes_a_column,
        _writes_a_record,
        _writes_numbers,
        _has_it_written,
        _sorts_a_column,
        _sorts_in_place,
    ],
)
def test_the_cluster_is_read_only(function: Callable[..., Any]) -> None:
    expected = "does not compile. It writes to the cluster" if COMPILED else "read-only"
    with pytest.raises(PolicyError, match=expected):
        simulate(TWO_JOBS, "2x2", policy=paper_with(placement=function))


def _writes_to_its_own(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    free, loads = cluster.gpus.free_bytes[candidates], cluster.gpus.load_ns.copy()
    free[0], loads[0] = 0, 1
    keys = loads if len(free) > 2 else cluster.gpus.load_ns
    stable_sort(candidates, keys)
    candidates[:] = candidates[::-1].copy()
    return True


def test_a_placement_may_write_to_the_candidates_and_to_arrays_that_it_makes() -> None:
    result = simulate(TWO_JOBS, "2x2", policy=paper_with(placement=_writes_to_its_own))
    assert result.gpus[0] == (0, 3)


REFUSED = {
    "np.random.randint(0, 9)": "draws random numbers with np.random.randint, so equal runs would",
    "int(9 * random.random())": "draws random numbers with random.random, so equal runs would",
    "randint(0, 9)": "draws random numbers with randint, so equal runs would differ",
    "GENERATOR.integers(9)": "draws random numbers with GENERATOR, so equal runs would differ",
    "hidden()": "draws random numbers with random.randint, so equal runs would differ",
    "time.time_ns()": "reads the clock of this machine with time.time_ns: the simulated time is",
    "datetime.now().day": "reads the clock of this machine with datetime: the simulated time is",
    "int(os.environ['X'])": "uses os.environ, and may use nothing but the cluster and its",
    "len(open('x').read())": "uses open, and may use nothing but the cluster and its parameter",
    "from_c()": "uses from_c, and may use nothing but the cluster and its parameter",
    "deep(job)": "calls deep, which calls itself: recursion is not compiled, write a loop.",
    "even(job)": "calls even, which calls itself: recursion is not compiled, write a loop.",
    "counted()": "sets COUNT, but keeps nothing from one call to the next.",
    "imported()": "imports math: import it at the top of the file.",
}
ELSEWHERE = {
    "hidden()": "return random.randint(0, 9)",
    "deep(job)": "return deep(n - 1) + 1",
    "even(job)": "return even(n - 1)",
    "counted()": "COUNT += 1",
    "imported()": "import math",
}
"""What the line says that the error names, if it is not the policy's."""

FILE = """
import ctypes, os, random, time
from datetime import datetime
from random import randint
import numpy as np
from headway.policies import part, priority_policy, routine

COUNT, GENERATOR, from_c = 0, np.random.default_rng(), ctypes.CDLL(None).rand

@routine
def hidden():
    return random.randint(0, 9)

@routine
def deep(n):
    return deep(n - 1) + 1 if n > 0 else 0

@part
def even(n):
    return odd(n - 1)

@part
def odd(n):
    return even(n - 1)

def counted():
    global COUNT
    COUNT += 1
    return COUNT

def imported():
    import math
    return math.e

@priority_policy("refused-{number}")
def refused(cluster, job, parameter):
    return {expression}
"""


@pytest.mark.parametrize("expression", REFUSED)
def test_what_a_policy_must_not_use_is_refused_with_its_line(
    expression: str, tmp_path: Path
) -> None:
    file, number = tmp_path / "refused.py", [*REFUSED].index(expression)
    file.write_text(FILE.format(expression=expression, number=number))
    with pytest.raises(PolicyError) as caught:
        choose("priority", f"{file}:refused").compiled()
    where, _, problem = str(caught.value).partition(f": priority policy refused-{number} ")
    assert problem.startswith(REFUSED[expression])
    path, _, line = where.partition(", line ")
    assert path == str(file)
    text = file.read_text().splitlines()[int(line) - 1]
    assert ELSEWHERE.get(expression, f"return {expression}") in text


def _depends_on_an_address(cluster: Any, job: int, parameter: float) -> int:
    return int(cluster.jobs.ctypes.data)


def test_a_policy_that_decides_otherwise_in_an_equal_run_is_refused() -> None:
    with pytest.raises(PolicyError, match="_depends_on_an_address' decides otherwise"):
        simulate(TWO_JOBS, "2x2", policy=paper_with(priority=_depends_on_an_address))


def _too_large(cluster: Any, job: int, parameter: float) -> int:
    return 2**63


def _nan(cluster: Any, job: int, parameter: float) -> int:
    return int(parameter - math.nan)


def _infinite(cluster: Any, job: int, parameter: float) -> int:
    return int(1e300 * (job + 1))


def _fraction(cluster: Any, job: int, parameter: float) -> float:
    return 0.5 * job


def _text(cluster: Any, job: int, parameter: float) -> str:
    return "first"


@part
def _last_but(candidates: Integers, count: int) -> int:
    return int(candidates[len(candidates) + count])


def _beyond_in_a_part(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    return bool(_last_but(candidates, 10**12) > 0)


def test_indices_are_checked_in_the_parts_of_users() -> None:
    with pytest.raises(PolicyError, match=r"_beyond_in_a_part'.* raised IndexError"):
        simulate(TWO_JOBS, "2x2", policy=paper_with(placement=_beyond_in_a_part))


@pytest.mark.parametrize("function", [_too_large, _nan, _infinite, _fraction, _text])
def test_a_priority_is_a_whole_number_of_64_bits(function: Callable[..., Any]) -> None:
    with pytest.raises(PolicyError):
        simulate(TWO_JOBS, "2x2", policy=paper_with(priority=function))


PRINTS = """
print("loaded")

def talkative(cluster, job, parameter):
    print("job", job)
    return job
"""


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_what_a_policy_prints_goes_to_standard_error(disabled: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PRINTS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "headway", "simulate", "-", "-q", "--json", "-"),
            *("--priority", "mine.py:talkative"),
        ],
        input="job_id,arrival_s,gpus,iterations,model\na,0,1,2,vgg16\n",
        env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["jobs"]
    said = [line for line in done.stderr.splitlines() if not line.startswith("Compiling")]
    assert said[:2] == ["loaded", "job 0"]
    assert {*said} == {"loaded", "job 0"}
