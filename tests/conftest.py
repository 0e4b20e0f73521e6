"""Settings for all tests, and the invariants that every small run must keep.

`ci` repeats the same examples on every run; `HYPOTHESIS_PROFILE=fuzz` draws many more, anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from headway.engine import run
from headway.engine.timeline import Timeline
from invariants import check_invariants

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=300)
settings.register_profile("fuzz", deadline=None, max_examples=20_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

MOST_TASKS = 5_000


@pytest.fixture(scope="session", autouse=True)
def _every_small_run_keeps_the_invariants() -> Iterator[None]:
    """Record every run that no test records itself, and check it."""
    here = threading.local()
    engine: Any = run
    prepare, drive, result_of = engine.prepare, engine._run, engine.Result

    def prepare_recording(*arguments: Any) -> Any:
        *others, rows = arguments
        workload, cluster = others[0], others[1]
        small = sum(3 * job.gpus * job.iterations for job in workload) <= MOST_TASKS
        here.timeline = Timeline() if small and rows == 0 else None
        if here.timeline is not None:
            rows = 2 * (cluster.gpus + len(workload))
        return prepare(*others, rows)

    def drive_recording(state: Any, policies: Any, timeline: Any, progress: Any) -> float:
        return float(drive(state, policies, timeline or here.timeline, progress))

    def checked_result(**fields: Any) -> Any:
        result = result_of(**fields)
        if here.timeline is not None:
            check_invariants(result, here.timeline.tasks())
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "prepare", prepare_recording)
        patch.setattr(engine, "_run", drive_recording)
        patch.setattr(engine, "Result", checked_result)
        yield
