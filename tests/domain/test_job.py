"""Jobs and their graphs."""

from __future__ import annotations

import pytest

from builders import make_job
from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.models import MODELS
from headway.domain.unrolled import UnrolledJob, UnrolledTask


def test_the_papers_models_are_as_in_its_table() -> None:
    vgg = MODELS["vgg16"]
    assert vgg.gradient_bytes == round(526.4 * 2**20)
    assert vgg.memory_bytes == 4527 * 2**20
    assert (vgg.forward_ns, vgg.backward_ns) == (35_800_000, 53_700_000)
    assert [(m.forward_ns, m.backward_ns) for m in MODELS.values()][1:] == [
        (25_000_000, 37_400_000),
        (34_900_000, 52_400_000),
        (31_500_000, 47_300_000),
    ]


def test_a_job_of_a_model_has_its_profile() -> None:
    job = Job.of_model("resnet50", job_id="a", arrival_ns=5, gpus=8, iterations=10)
    assert job.memory_bytes == 3213 * 2**20
    assert job.model == "resnet50"
    with pytest.raises(InputError, match="Did you mean 'resnet50'"):
        Job.of_model("resnet", job_id="a", arrival_ns=0, gpus=1, iterations=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 0}, "gpus: must be at least 1, not 0."),
        ({"iterations": 0}, "iterations: must be at least 1, not 0."),
        ({"forward_ns": 0}, "forward_ns: must be at least 1, not 0."),
        ({"backward_ns": -3}, "backward_ns: must be at least 1, not -3."),
        ({"gradient_bytes": -1}, "gradient_bytes: must be at least 0, not -1."),
        ({"arrival_ns": 1.5}, "arrival_ns: must be a whole number, not 1.5."),
        ({"gpus": True}, "gpus: must be a whole number, not True."),
        ({"job_id": ""}, "job_id: must not be empty."),
    ],
)
def test_an_impossible_job_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make_job(**({"job_id": "j"} | changes))  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_the_graph_is_a_chain_of_iterations_between_entry_and_exit() -> None:
    graph = UnrolledJob(make_job(gpus=3, iterations=5), iterations=2)
    tasks, edges = list(graph.tasks()), list(graph.edges())
    assert len(tasks) == 2 + 2 * (3 + 3 + 2)
    assert set(tasks) == {task for edge in edges for task in edge}
    assert [after for before, after in edges if before == UnrolledTask("entry")] == [
        UnrolledTask("forward", 0, worker) for worker in range(3)
    ]
    assert [before for before, after in edges if after == UnrolledTask("barrier", 1)] == [
        UnrolledTask("backward", 1, worker) for worker in range(3)
    ]
    assert (UnrolledTask("barrier", 0), UnrolledTask("all-reduce", 0)) in edges
    assert (UnrolledTask("all-reduce", 0), UnrolledTask("forward", 1, 2)) in edges
    assert edges[-1] == (UnrolledTask("all-reduce", 1), UnrolledTask("exit"))


def test_tasks_come_after_their_predecessors() -> None:
    graph = UnrolledJob(make_job(gpus=2, iterations=3), iterations=3)
    order = {task: place for place, task in enumerate(graph.tasks())}
    assert all(order[before] < order[after] for before, after in graph.edges())


def test_a_graph_renders_as_text_and_dot() -> None:
    graph = UnrolledJob(make_job("j", gpus=3, iterations=9), iterations=1)
    assert graph.to_text() == (
        "job j: GPUs 3, iterations 9\n"
        "GPU 0          ─[forward 1 ms]─[backward 2 ms]─┤\n"
        "GPU 1   (entry)─[forward 1 ms]─[backward 2 ms]─┤─[all-reduce 10 MB]─ … 8 more … (exit)\n"
        "GPU 2          ─[forward 1 ms]─[backward 2 ms]─┤\n"
    )
    dot = graph.to_dot()
    assert dot.startswith("digraph job {")
    assert dot.count("->") == len(list(graph.edges()))
    assert '"all-reduce 0" -> "exit";' in dot
