"""Made-up raw results, in which every job of a case takes the given time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import polars

from headway.experiments.reproduction import paper
from headway.experiments.reproduction.evaluation import Evaluation
from headway.experiments.reproduction.paper import Case
from headway.experiments.reproduction.runs import RawResults

SEEDS = (4, 8, 15, 16, 23)


def crafted(jct_s: Mapping[Case, float], utilization: Mapping[Case, float] = {}) -> Evaluation:
    """Return an evaluation where a case has this average JCT and utilization, 1000 s and 20% else.

    Seeds differ by far more than cases do, and cases differ a little by seed.
    """
    runs, jobs, gpus = [], [], []
    draw = np.random.default_rng(0)
    for case in paper.cases():
        for seed in SEEDS:
            settings = {**asdict(case), "seed": seed}
            jct = jct_s.get(case, 1000.0) * (1 + seed / 5) * draw.uniform(0.999, 1.001)
            use = utilization.get(case, 0.2) * draw.uniform(0.999, 1.001)
            runs.append(
                {
                    **settings,
                    "average_jct_s": jct,
                    "median_jct_s": jct / 2,
                    "p95_jct_s": jct * 4,
                    "average_gpu_utilization": use,
                }
            )
            jobs.append(
                {
                    **settings,
                    "iterations": 1600 + seed % 2,
                    "arrival_ns": 0,
                    "finish_ns": round(jct * 1e9),
                    "gpus": [0] * (4 + seed % 3),
                }
            )
            gpus.append({**settings, "gpu": 0, "utilization": use})
    return Evaluation(RawResults(*(polars.DataFrame(rows) for rows in (runs, jobs, gpus))), SEEDS)
