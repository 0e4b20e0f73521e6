"""The engine and the oracle on one case: they agree on every task, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace

import oracle
from headway.results.timeline.sinks import Timeline
from invariants import check_invariants
from strategies import Case, run_engine, run_oracle

KINDS = ("forward", "backward", "message", "task")


def check(case: Case) -> None:
    """Run both and compare everything, then what acceleration gives."""
    timeline = Timeline()
    result = run_engine(case, timeline)
    expected = run_oracle(case)
    assert result.start_ns.tolist() == expected.start_ns
    assert result.finish_ns.tolist() == expected.finish_ns
    assert list(result.gpus) == expected.gpus
    tasks = sorted(
        oracle.OracleTask(
            int(task.start_ns),
            int(task.end_ns),
            KINDS[task.kind],
            int(task.job),
            int(task.iteration),
            int(task.gpu),
            int(task.node),
        )
        for task in timeline.tasks()
    )
    assert tasks == expected.tasks
    assert result.summary.simulated_tasks == len(tasks)
    assert result.summary.skipped_tasks == 0
    check_invariants(result, timeline.tasks())
    quick = run_engine(case)
    assert quick.start_ns.tolist() == expected.start_ns
    assert quick.finish_ns.tolist() == expected.finish_ns
    assert list(quick.gpus) == expected.gpus
    assert 0 <= quick.summary.skipped_tasks < len(tasks)
    assert replace(quick.summary, wall_s=0, skipped_tasks=0) == replace(result.summary, wall_s=0)
