"""Same inputs, same bits: with the JIT off, in another process, in one thread or four."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headway.engine.run import simulate
from headway.workload.generate import Recipe, generate_workload

COMBINATIONS = [
    ("4x2", "rand", "srsf", "ada-dual"),
    ("4x2", "ff", "srtf", "srsf:1"),
    ("4x2", "ls", "fifo", "srsf:2"),
    ("4x2", "lwf:1", "srsf", "ada-dual"),
    ("4x2", "lwf:4", "smallest", "srsf:3"),
    ("70x1", "rand", "srsf", "srsf:1"),
]

RECIPE = Recipe(
    jobs=14, span_s=1, mix={1: 4, 2: 3, 4: 4, 8: 3}, iterations=(2, 5), models=["vgg16", "resnet50"]
)


def outcomes() -> list[list[Any]]:
    """Return everything that a run decides, for each combination of policies."""
    workload = generate_workload(RECIPE, seed=7)
    rows: list[list[Any]] = []
    for shape, placement, priority, admission in COMBINATIONS:
        result = simulate(workload, shape, policy=f"{placement}+{priority}+{admission}", seed=3)
        summary = {
            name: value for name, value in result.to_dict()["summary"].items() if name != "wall_s"
        }
        rows.append(
            [summary, result.start_ns.tolist(), result.finish_ns.tolist(), list(result.gpus)]
        )
    return rows


def in_another_process(**environment: str) -> Any:
    here = Path(__file__)
    code = f"import {here.stem} as t, json; print(json.dumps(t.outcomes()))"
    paths = os.pathsep.join([str(here.parent), str(here.parent.parent)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_another_process_gives_the_same_bits() -> None:
    assert in_another_process() == json.loads(json.dumps(outcomes()))


def test_plain_python_gives_the_same_bits_as_machine_code() -> None:
    assert in_another_process(NUMBA_DISABLE_JIT="1") == json.loads(json.dumps(outcomes()))


def test_four_threads_give_the_same_bits_as_one() -> None:
    alone = outcomes()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: outcomes(), range(8)))
    assert all(rows == alone for rows in together)


def test_where_the_kernel_pauses_changes_nothing(monkeypatch: Any) -> None:
    alone = outcomes()
    monkeypatch.setattr("headway.engine.run._FIRST_SLICE", 1)
    monkeypatch.setattr("headway.engine.run._SLICE_S", 0.0)
    assert outcomes() == alone
