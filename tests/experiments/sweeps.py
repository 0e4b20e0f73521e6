"""Small sweeps for the tests, and how to read their folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headway.experiments.sweep.store import LOG, RUNS

HEADER = "job_id,arrival_s,gpus,iterations,model\n"
ROWS = "a,0,4,8,resnet50\nb,0.1,2,6,vgg16\nc,0.3,3,6,lstm-ptb\n"
RECIPE: dict[str, Any] = {"recipe": "paper", "jobs": 4, "iterations": [2, 9], "mix": {"2": 1}}


def small_sweep(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a sweep of a file and a recipe: (1 + 3 seeds) x 2 clusters x 2 policies."""
    (folder / "a.csv").write_text(HEADER + ROWS)
    return {
        "seeds": "0:2",
        "workloads": [str(folder / "a.csv"), RECIPE],
        "clusters": ["3x2", "2x4"],
        "policies": ["paper", "rand+srsf:1"],
        **changes,
    }


def finished(folder: Path) -> list[str]:
    """Return the keys in a log in the order of finishing, twice if run twice."""
    lines = (folder / LOG).read_bytes().split(b"\n")[:-1]
    return [json.loads(line[9:])["run"] for line in lines]


def deterministic_bytes(folder: Path) -> dict[str, bytes]:
    """Return the files that must be the same to the bit however a sweep was run."""
    jobs = {path.name: path.read_bytes() for path in (folder / "jobs").glob("*.parquet")}
    return {RUNS: (folder / RUNS).read_bytes(), **jobs}
