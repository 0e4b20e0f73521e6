"""Schedulers: a priority and an admission under one name, as the paper combines them."""

from __future__ import annotations

from headway.domain.errors import InputError, did_you_mean, shown
from headway.policies.registry import Choice, choose

SCHEDULERS = {
    "ada-srsf": ("srsf", "ada-dual"),
    "srsf:1": ("srsf", "srsf:1"),
    "srsf:2": ("srsf", "srsf:2"),
    "srsf:3": ("srsf", "srsf:3"),
}
"""Name to (priority, admission). Any other `srsf:N` is understood too."""


def choose_scheduler(name: str) -> tuple[Choice, Choice]:
    """Return the priority and the admission that a scheduler's name stands for."""
    if name in SCHEDULERS:
        priority, admission = SCHEDULERS[name]
    elif name.startswith("srsf:"):
        priority, admission = "srsf", name
    else:
        raise InputError(
            f"unknown scheduler {shown(name)}.{did_you_mean(name, SCHEDULERS)}", field="scheduler"
        )
    return choose("priority", priority), choose("admission", admission)
