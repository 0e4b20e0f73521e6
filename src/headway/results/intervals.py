"""How far a sampled run may be from the exact one: 95% intervals from runs with other windows.

Runs that sample differently differ by what sampling estimates wrongly, and by all that follows from
it: a job that finishes a little earlier lets another in, elsewhere. The exact run is taken for one
more of the same kind. With n runs, a figure of mean x and standard deviation s, it is with 95%
probability within t * s * sqrt(1 + 1/n) of x, with Student's t of n - 1 degrees of freedom: a
prediction interval. The margin is at least the error of measuring.

Three runs can agree on the average or the makespan by luck, but hardly on all jobs. The variance of
a job's completion time, averaged over the jobs, is known well. So the makespan, which is when one
job finishes, has at least the margin that this variance gives, and the average JCT at least that
divided by the root of the number of jobs, as if they were independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from headway.results.schema import Result

Floats = NDArray[np.float64]

_STUDENT_T = 4.303
"""P(|T| < t) = 0.95 for 2 degrees of freedom: for three runs."""

_QUANTILE = 1.96
"""Standard deviations that 95% of a normal distribution are within."""


def with_measuring_error(run: Result, deviation_s: Floats) -> Result:
    """Return a run with the margins that the standard deviations of its jobs' progress give."""
    margin_s = _QUANTILE * deviation_s
    summary = replace(
        run.summary,
        average_jct_margin_s=math.sqrt(float((margin_s * margin_s).sum())) / len(margin_s),
        makespan_margin_s=float(margin_s[run.finish_ns.argmax()]),
    )
    return replace(run, summary=summary, jct_margin_s=margin_s)


def margins(values: Floats, reported: Floats) -> Floats:
    """Return half the widths of intervals around the reported figures.

    `values` has a row for each of three runs. The intervals contain the prediction intervals, whose
    middle is the mean and not the reported figure.
    """
    offsets = values - values[0]  # Runs that agree must have no spread, not a rounding error.
    spread = _STUDENT_T * math.sqrt(1 + 1 / len(values)) * offsets.std(axis=0, ddof=1)
    found: Floats = np.abs(reported - values[0] - offsets.mean(axis=0)) + spread
    return found


def median_run(runs: Sequence[Result]) -> Result:
    """Return the run with the median of the average JCTs, with intervals from all of them."""
    ranked = sorted(runs, key=lambda run: run.summary.average_jct_s)
    middle = ranked[len(ranked) // 2]
    jct_s = np.array([run.jct_s for run in runs])
    totals = np.array([[run.summary.average_jct_s, run.summary.makespan_s] for run in runs])
    average_s, makespan_s = margins(
        totals, np.array([middle.summary.average_jct_s, middle.summary.makespan_s])
    ).tolist()
    pooled_s = _pooled_margin_s(jct_s)
    summary = replace(
        middle.summary,
        average_jct_margin_s=max(
            average_s, pooled_s / math.sqrt(jct_s.shape[1]), middle.summary.average_jct_margin_s
        ),
        makespan_margin_s=max(makespan_s, pooled_s, middle.summary.makespan_margin_s),
    )
    margin_s = np.maximum(margins(jct_s, middle.jct_s), middle.jct_margin_s)
    return replace(middle, summary=summary, jct_margin_s=margin_s)


def _pooled_margin_s(jct_s: Floats) -> float:
    """Return the margin that the jobs' mean variance gives, for 95% of a normal distribution."""
    variance = (jct_s - jct_s[0]).var(axis=0, ddof=1)
    return _QUANTILE * math.sqrt((1 + 1 / len(jct_s)) * float(variance.mean()))
