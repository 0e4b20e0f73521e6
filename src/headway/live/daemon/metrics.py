"""The scheduler's metrics for Prometheus, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headway.live.core.core import Core
from headway.live.core.job_state import JobState

GATE_LATENCY_S = (25e-6, 50e-6, 100e-6, 150e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 100e-3)
ADMISSION_WAIT_S = (1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
JCT_S = (1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86400.0, 7 * 86400.0)
"""Upper bounds of the histograms' buckets, in seconds."""
FORECAST_ERROR = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
"""The same, as shares of the time that was left."""


class Metrics:
    """What the scheduler counts as it runs; `StateCollector` adds what is read on request."""

    def __init__(self) -> None:
        # Without an extra `_created` series for every counter and histogram.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.gate_latency = Histogram(
            "headway_gate_latency_seconds",
            "Time inside the scheduler from a request granted immediately to its grant.",
            buckets=GATE_LATENCY_S,
            registry=self.registry,
        )
        self.admission_wait = Histogram(
            "headway_admission_wait_seconds",
            "Time from a request that had to wait to its grant.",
            buckets=ADMISSION_WAIT_S,
            registry=self.registry,
        )
        self.policy_failures = Counter(
            "headway_policy_failures_total",
            "Policy calls that raised an error or returned an invalid answer.",
            registry=self.registry,
        )
        self._jct = Histogram(
            "headway_jct_seconds",
            "Time from a job's submission to its end.",
            buckets=JCT_S,
            registry=self.registry,
        )
        self._jobs_ended = Counter(
            "headway_jobs_ended_total",
            "Jobs that ended since the scheduler started, by final state.",
            ["state"],
            registry=self.registry,
        )
        self.forecast_error = Histogram(
            "headway_forecast_error_ratio",
            "Error of a predicted finish as a share of the time left then, by when it was made.",
            ["made"],
            buckets=FORECAST_ERROR,
            registry=self.registry,
        )
        for made in ("first", "half"):
            self.forecast_error.labels(made)
        self.forecasts = Counter(
            "headway_forecasts_total",
            "Forecasts of the present, and answers to what-if requests.",
            registry=self.registry,
        )
        self.forecast_cpu = Counter(
            "headway_forecast_cpu_seconds_total",
            "CPU time of the forecasting process, with its start and compilation.",
            registry=self.registry,
        )

    def job_ended(self, state: str, jct_s: float) -> None:
        """Count a job that ended in this state, and its completion time."""
        self._jct.observe(jct_s)
        self._jobs_ended.labels(state).inc()


class StateCollector(Collector):
    """Reads gauges and totals from the scheduler's state whenever they are requested."""

    def __init__(
        self,
        core: Core,
        job_counts: Callable[[], Mapping[str, int]],
        ungated: Callable[[], int],
        storage_works: Callable[[], bool],
    ) -> None:
        self._core, self._job_counts, self._ungated = core, job_counts, ungated
        self._storage_works = storage_works

    def collect(self) -> Iterable[Metric]:
        """Return the metrics that follow from the current state."""
        nodes, counts, jobs = self._core.nodes(), self._core.counts, self._job_counts()
        yield GaugeMetricFamily(
            "headway_queue_length", "Jobs waiting to be placed.", jobs.get(JobState.QUEUED, 0)
        )
        yield _gauge("headway_jobs", "Remembered jobs, by state.", "state", jobs)
        yield GaugeMetricFamily(
            "headway_jobs_stuck",
            "Running jobs that make no progress.",
            len(self._core.state.stuck),
        )
        yield GaugeMetricFamily(
            "headway_jobs_ungated",
            "Running jobs on several nodes that do not ask the gate.",
            self._ungated(),
        )
        slots = [(slot, node.draining) for node in nodes for slot in node.slots]
        yield GaugeMetricFamily("headway_slots", "Slots of all nodes.", len(slots))
        yield GaugeMetricFamily(
            "headway_slots_free",
            "Slots without a job, on nodes that take jobs.",
            sum(not (slot.jobs or draining) for slot, draining in slots),
        )
        yield _gauge(
            "headway_node_messages",
            "All-reduces in flight on a node's network.",
            "node",
            {node.node: len(node.messages) for node in nodes},
        )
        yield _gauge(
            "headway_node_waiting",
            "All-reduces waiting for admission on a node.",
            "node",
            {node.node: len(node.waiting) for node in nodes},
        )
        for name, help_text, total in (
            ("events", "Events handled.", counts.events),
            ("ignored_events", "Late, duplicate or unknown events, ignored.", counts.ignored),
            ("grants", "All-reduces granted.", counts.grants),
            ("turns", "Compute turns given.", counts.turns),
        ):
            yield CounterMetricFamily(f"headway_{name}", help_text, total)
        yield GaugeMetricFamily(
            "headway_storage_works",
            "1 if the state can be written to disk, else 0.",
            int(self._storage_works()),
        )


def _gauge(name: str, help_text: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family
