"""Settings for all tests, and the invariants that every small run must keep.

The Hypothesis profile `ci` repeats the same examples on every run; `fuzz` draws many more,
different each time. `quick` (`make check`) draws fewer than `ci`, and shows the first example that
fails as it is: looking for the smallest one takes minutes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, settings

from headway.domain.job import Job
from headway.engine import run
from headway.engine.setup import rows_of_an_instant
from headway.results.timeline.sinks import Timeline
from invariants import check_invariants

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=120)
settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    max_examples=20,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
settings.register_profile("fuzz", deadline=None, max_examples=20_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

MAX_TASKS = 2_000


def _nodes(job: Job) -> int:
    return 3 * job.gpus if job.graph is None else job.graph.expanded.nodes


@pytest.fixture(scope="session", autouse=True)
def _every_small_run_keeps_the_invariants() -> Iterator[None]:
    """Repeat every run that no test records itself, task by task; compare, and check it."""
    here = threading.local()
    engine: Any = run
    prepare, resume, drive, result_of = engine.prepare, engine.resume, engine.drive, engine.Result

    def prepare_twice(*arguments: Any) -> Any:
        *others, acceleration, rows, window, _accuracy, if_shared = arguments
        workload, cluster = others[0], others[1]
        small = sum(_nodes(job) * job.iterations for job in workload) <= MAX_TASKS
        here.shadow, here.timeline = None, Timeline()
        if small and rows == 0 and acceleration == "full" and window == 0:
            rows = 2 * rows_of_an_instant(workload, cluster)
            here.shadow = prepare(*others, acceleration, rows, buckets_if_shared=if_shared)
        return prepare(*arguments)

    def resume_once(*arguments: Any) -> int:
        here.shadow = None  # A run that is continued has only a part of the tasks.
        return int(resume(*arguments))

    def drive_twice(state: Any, policies: Any, timeline: Any, progress: Any) -> float:
        wall_s = float(drive(state, policies, timeline, progress))
        if here.shadow is not None:
            drive(here.shadow, policies, here.timeline, None)
            ours, theirs = state.cluster, here.shadow.cluster
            for name in ("start_ns", "finish_ns", "iterations_left"):
                assert ours.jobs[name].tolist() == theirs.jobs[name].tolist()
            assert ours.seats.gpu.tolist() == theirs.seats.gpu.tolist()
            for name in ("compute_tasks", "messages"):
                assert state.tally[0][name] == here.shadow.tally[0][name]
        return wall_s

    def checked_result(**fields: Any) -> Any:
        result = result_of(**fields)
        if here.shadow is not None:
            check_invariants(result, here.timeline.tasks())
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "prepare", prepare_twice)
        patch.setattr(engine, "resume", resume_once)
        patch.setattr(engine, "drive", drive_twice)
        patch.setattr(engine, "Result", checked_result)
        yield
