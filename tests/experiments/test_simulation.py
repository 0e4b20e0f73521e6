"""What a user hands to `headway.simulate` and `headway.compare`: names, files and functions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import headway
from builders import make_job, make_workload
from headway.policies import Integers
from headway.policies.compilation import compiled
from headway.policies.registry import Policy, policies

JOBS = "job_id,arrival_s,gpus,iterations,model\na,0,4,30,vgg16\nb,0,4,20,resnet50\nc,1,2,9,vgg16\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(JOBS)


def test_a_workload_is_a_file_a_name_or_a_recipe() -> None:
    expected = headway.simulate(headway.read_workload("jobs.csv"), "4x2").finish_ns.tolist()
    assert headway.simulate("jobs.csv", "4x2").finish_ns.tolist() == expected
    assert headway.simulate(Path("jobs.csv"), "4x2").finish_ns.tolist() == expected
    drawn = headway.generate_workload("paper", seed=3)
    assert headway.simulate("paper", seed=3).workload == drawn


def test_a_file_with_the_name_of_a_recipe_is_ambiguous() -> None:
    Path("paper").write_text(JOBS)
    with pytest.raises(headway.InputError, match=r"paper: is a recipe and a file .* ./paper"):
        headway.simulate("paper")
    assert len(headway.simulate("./paper", "4x2").workload) == 3


def test_a_comparison_takes_the_same() -> None:
    found = headway.compare("jobs.csv", ["paper", "ff+srsf:1"], "4x2")
    assert found.workloads == ("jobs.csv",)
    found = headway.compare("paper", ["paper", "headway"], seeds=[4, 5])
    assert found.workloads == ("generated workload, seed 4", "generated workload, seed 5")
    assert repr(found) == "<Comparison of paper, headway on 2 workloads>"
    assert "headway" in str(found)
    assert found._repr_html_().count("<tr>") == 3


def test_an_unknown_name_in_a_comparison_gets_a_hint() -> None:
    found = headway.compare("jobs.csv", ["paper", "ff+srsf:1"], "4x2")
    with pytest.raises(headway.InputError, match="'papr' was compared"):
        found.mean("papr")
    with pytest.raises(headway.InputError, match=r"unknown metric .* Did you mean 'average_jct_s'"):
        found.ratio("paper", "averag_jct_s")


def test_a_policy_can_be_a_function() -> None:
    def reversed_order(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
        candidates[:] = candidates[::-1].copy()
        return True

    def longest(cluster: Any, job: int, parameter: float) -> int:
        return -cluster.jobs[job].iterations  # type: ignore[no-any-return]

    result = headway.simulate("jobs.csv", "4x2", placement=reversed_order, priority=longest)
    assert result.gpus[0] == (4, 5, 6, 7)
    assert (result.settings.placement, result.settings.priority) == ("reversed_order", "longest")
    mine = headway.PolicySet.parse("paper").override(placement=reversed_order)
    assert headway.compare("jobs.csv", ["paper", mine], "4x2").policies[1] == str(mine)


def test_a_policy_that_is_no_named_function_is_refused() -> None:
    with pytest.raises(headway.PolicyError, match="needs a name: write it with `def`"):
        headway.simulate("jobs.csv", priority=lambda cluster, job, parameter: job)
    with pytest.raises(headway.PolicyError, match="must be a text or a function, not 3"):
        headway.simulate("jobs.csv", priority=3)  # type: ignore[arg-type]


CELL = """
def chosen(cluster, job, candidates, parameter):
    candidates[:] = candidates[::{step}].copy()
    return True
"""


def test_a_cell_of_a_notebook_can_be_edited_and_run_again() -> None:
    for step, gpus in ((1, (0, 1, 2, 3)), (-1, (4, 5, 6, 7))):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(CELL.format(step=step), f"<cell {step}>", "exec"), names)
        result = headway.simulate("jobs.csv", "4x2", placement=names["chosen"])
        assert result.gpus[0] == gpus


def test_a_file_that_was_edited_is_loaded_again() -> None:
    for step, gpus in ((1, (0, 1, 2, 3)), (-1, (4, 5, 6, 7))):
        text = CELL.format(step=step)
        Path("edited.py").write_text(text)
        # An edit within the resolution of the clock must be noticed too.
        os.utime("edited.py", (1_600_000_000, 1_600_000_000 + step))
        result = headway.simulate("jobs.csv", "4x2", placement="edited.py:chosen")
        assert result.gpus[0] == gpus


def test_a_recipe_can_be_changed_in_part() -> None:
    drawn = headway.generate_workload("paper", 1, jobs=50, span_s=60, iterations=(2, 3))
    assert len(drawn) == 50
    assert max(job.arrival_ns for job in drawn) <= 60e9
    assert {job.iterations for job in drawn} == {2, 3}
    assert repr(drawn) == (
        "<Workload: 50 jobs from generated workload, seed 1, with 1 to 32 GPUs each>"
    )


TABLE = {1: 2}
NUMBERS = [1, 2]


def helper(value: int) -> int:
    return value + 1


def calls_helper(cluster: Any, job: int, parameter: float) -> int:
    return helper(job)


def reads_dict(cluster: Any, job: int, parameter: float) -> int:
    return TABLE[job]


def reads_list(cluster: Any, job: int, parameter: float) -> int:
    return NUMBERS[job]


def has_lambda(cluster: Any, job: int, parameter: float) -> int:
    key = lambda value: value + parameter  # noqa: E731
    return int(sorted([1, 2, job], key=key)[0])


def makes_list(cluster: Any, job: int, parameter: float) -> int:
    empty: list[int] = []
    return len(empty)


def makes_dict(cluster: Any, job: int, parameter: float) -> int:
    found = {}
    found[job] = 1
    return found[job]


def handles(cluster: Any, job: int, parameter: float) -> int:
    try:
        return int(cluster.jobs[job].gpus)
    except IndexError:
        return 0


def misspells(cluster: Any, job: int, parameter: float) -> int:
    return int(cluster.job[job].gpus)


def swaps_column_and_job(cluster: Any, job: int, parameter: float) -> int:
    return int(cluster.extra[job].weight)


def returns_nothing(cluster: Any, job: int, parameter: float) -> None:
    pass


ADVICE = {
    calls_helper: "It calls helper, which is plain Python: decorate helper with headway.policies",
    reads_dict: "It reads the global TABLE: make it a tuple or a NumPy array",
    reads_list: "It reads the global NUMBERS: make it a tuple or a NumPy array",
    has_lambda: "It has a function or a lambda inside",
    makes_list: "It uses a list: use a NumPy array instead",
    makes_dict: "It uses a dict: use a NumPy array",
    handles: "It handles exceptions, which cannot be compiled",
    misspells: "cluster has no 'job'. Did you mean 'jobs'?",
    swaps_column_and_job: "A column's name comes before the job: cluster.extra.NAME[job].",
    returns_nothing: "It must return a whole number on every path.",
}


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")
@pytest.mark.parametrize("function", ADVICE)
def test_a_usual_mistake_in_a_policy_is_explained(function: Any) -> None:
    with pytest.raises(headway.PolicyError) as caught:
        compiled(Policy("priority", function.__name__, function))
    start = f"priority policy {function.__name__} does not compile. {ADVICE[function]}"
    assert str(caught.value).startswith(start)
    assert " Numba says: " in str(caught.value)
    assert function not in {policy.function for policy in policies("priority")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workload": b"x"}, "workload: must be a workload, or the path or name of one, not b'x'."),
        ({"workload": 5}, "workload: must be a workload, or the path or name of one, not 5."),
        ({"cluster": 5}, "cluster: must be a Cluster, not 5."),
        ({"cluster": None}, "cluster: must be a Cluster, not None."),
        ({"network": 5}, "network: must be a NetworkModel, not 5."),
        ({"policy": 5}, "policy: must be a text or a PolicySet, not 5."),
    ],
)
def test_an_argument_of_another_kind_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(headway.InputError) as caught:
        headway.simulate(**({"workload": make_workload(make_job())} | arguments))
    assert str(caught.value) == message


def test_the_arrays_of_a_result_are_read_only() -> None:
    result = headway.simulate(make_workload(make_job()))
    for name in ("start_ns", "finish_ns", "gpu_busy_ns", "jct_margin_s"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(result, name)[0] = 7


@pytest.mark.parametrize("field", ["job_id", "model", "measured_on", "parallel"])
def test_a_jobs_texts_are_text(field: str) -> None:
    values: list[Any] = [5, None, b"x"]
    for value in values:
        with pytest.raises(headway.InputError, match=f"{field}: must be a string, not {value!r}"):
            make_job(**{field: value})
    with pytest.raises(headway.InputError, match=f"{field}: is no Unicode text: 'half"):
        make_job(**{field: "half \ud83d"})
