"""Counts a policy's failures and reports them to the operator, at most once a minute."""

from __future__ import annotations

import time

from headway.live import operator_log
from headway.live.core.core import Core
from headway.live.daemon.metrics import Metrics

REPORT_INTERVAL_S = 60.0


class PolicyMonitor:
    """Watches the failure count of the core's current policy."""

    def __init__(self, core: Core, metrics: Metrics) -> None:
        self._core, self._metrics = core, metrics
        self._failures = 0
        self._next_report_s = 0.0

    def check(self) -> None:
        """Count failures since the last call; cheap when there are none."""
        failures = self._core.rules.failures
        if failures != self._failures:
            self._failures_changed(failures)

    def _failures_changed(self, failures: int) -> None:
        rules, now_s = self._core.rules, time.monotonic()
        if failures < self._failures:  # A new policy starts counting at 0.
            self._failures, self._next_report_s = 0, now_s
        self._metrics.policy_failures.inc(failures - self._failures)
        self._failures = failures
        if failures and now_s >= self._next_report_s:
            self._next_report_s = now_s + REPORT_INTERVAL_S
            operator_log.warning(
                "policy failed", policy=rules.name, problem=rules.failure, failures=failures
            )
