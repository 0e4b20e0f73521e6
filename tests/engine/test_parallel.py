"""Runs in threads end together."""

from __future__ import annotations

import threading
import time

import pytest

from headway.engine.parallel import Checkpoint, run_in_threads
from headway.engine.progress import Progress
from waiting import PATIENCE_S

NOW = Progress(
    fraction=0, now_s=0, wall_s=0, tasks=0, skipped_tasks=0, estimated_tasks=0, instants=0
)


def test_runs_within_a_run_that_is_stopped_do_not_count_as_finished() -> None:
    inside = threading.Event()
    ends: list[str] = []

    def inner(_: str, checkpoint: Checkpoint, outer: Checkpoint) -> None:
        inside.set()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            checkpoint(NOW)
            outer(NOW)

    def work(task: str, outer: Checkpoint) -> None:
        if task == "fails":
            assert inside.wait(PATIENCE_S)
            raise ValueError(task)
        try:
            run_in_threads(
                ["a", "b"], lambda one, check: inner(one, check, outer), 2, lambda _: None
            )
            ends.append("finished")
        except Exception as error:
            ends.append(type(error).__name__)
            raise

    with pytest.raises(ValueError, match="fails"):
        run_in_threads(["fails", "nests"], work, 2, lambda _: None)
    assert ends == ["_StoppedError"]
