"""Figures for Prometheus, in its text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

GATE_S = (25e-6, 50e-6, 100e-6, 150e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 100e-3)
WAIT_S = (1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
JCT_S = (1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86400.0, 7 * 86400.0)


class Histogram:
    """Counts of values up to each bound, their sum and their number."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterable[str]:
        """Return the lines of this histogram under a name."""
        total = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            total += count
            label = "+Inf" if bound is None else f"{bound:g}"
            yield f'{name}_bucket{{le="{label}"}} {total}'
        yield f"{name}_sum {self._sum:.9g}"
        yield f"{name}_count {total}"


class Metrics:
    """What the scheduler counts as it goes; the rest is read from its state when asked."""

    def __init__(self) -> None:
        self.gate = Histogram(GATE_S)
        self.wait = Histogram(WAIT_S)
        self.jct = Histogram(JCT_S)
        self.ended: Counter[str] = Counter()
        self.policy_failures = 0


def text_of(
    metrics: Metrics,
    *,
    jobs: Mapping[str, int],
    messages: Mapping[str, int],
    waiting: Mapping[str, int],
    totals: Mapping[str, int],
    storage_works: bool,
) -> str:
    """Return all figures; `jobs` by state, `messages` and `waiting` by node."""
    lines = [
        *_head("headway_queue_length", "gauge", "Jobs that wait to be placed."),
        f"headway_queue_length {jobs.get('queued', 0)}",
        *_head("headway_jobs", "gauge", "Jobs that are remembered, by state."),
        *_labelled("headway_jobs", "state", jobs),
        *_head("headway_jobs_ended_total", "counter", "Jobs that ended since the start."),
        *_labelled("headway_jobs_ended_total", "state", metrics.ended),
        *_head("headway_jct_seconds", "histogram", "From a job's submission to its end."),
        *metrics.jct.lines("headway_jct_seconds"),
        *_head("headway_node_messages", "gauge", "All-reduces that use a node's network."),
        *_labelled("headway_node_messages", "node", messages),
        *_head("headway_node_waiting", "gauge", "All-reduces that wait for admission on a node."),
        *_labelled("headway_node_waiting", "node", waiting),
    ]
    for name, count in totals.items():
        lines += [
            *_head(f"headway_{name}_total", "counter", _TOTALS[name]),
            f"headway_{name}_total {count}",
        ]
    lines += [
        *_head(
            "headway_gate_latency_seconds",
            "histogram",
            "From a request that is granted at once to its grant, inside the scheduler.",
        ),
        *metrics.gate.lines("headway_gate_latency_seconds"),
        *_head(
            "headway_admission_wait_seconds", "histogram", "Waits of requests not granted at once."
        ),
        *metrics.wait.lines("headway_admission_wait_seconds"),
        *_head(
            "headway_policy_failures_total",
            "counter",
            "Questions that a policy answered with an error or nonsense.",
        ),
        f"headway_policy_failures_total {metrics.policy_failures}",
        *_head("headway_storage_works", "gauge", "1 if the state can be written to the disk."),
        f"headway_storage_works {int(storage_works)}",
    ]
    return "\n".join(lines) + "\n"


_TOTALS = {
    "events": "Events that the scheduler has handled.",
    "ignored_events": "Events that came late, twice or for nobody, and changed nothing.",
    "grants": "All-reduces that were granted.",
    "turns": "Turns to compute that were given.",
}


def _head(name: str, kind: str, what: str) -> tuple[str, str]:
    return f"# HELP {name} {what}", f"# TYPE {name} {kind}"


def _labelled(name: str, label: str, values: Mapping[str, int]) -> Iterable[str]:
    for value, count in sorted(values.items()):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        yield f'{name}{{{label}="{quoted}"}} {count}'
