"""Schedulers: a priority and an admission under one name, as the paper combines them."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.errors import InputError, did_you_mean, shown
from headway.policies.registry import Choice, choose

SCHEDULERS = {
    "ada-srsf": ("srsf", "ada-dual"),
    "k-srsf": ("srsf", "k-way"),
    "srsf:1": ("srsf", "srsf:1"),
    "srsf:2": ("srsf", "srsf:2"),
    "srsf:3": ("srsf", "srsf:3"),
}
"""Name to (priority, admission). Any other `srsf:N` is understood too."""


@dataclass(frozen=True, slots=True)
class ChosenPolicies:
    """The three decisions of a run."""

    placement: Choice
    priority: Choice
    admission: Choice


def choose_policies(
    placement: str, scheduler: str, priority: str | None = None, admission: str | None = None
) -> ChosenPolicies:
    """Return the policies that these names stand for; the last two override the scheduler's."""
    if scheduler in SCHEDULERS:
        usual_priority, usual_admission = SCHEDULERS[scheduler]
    elif scheduler.startswith("srsf:"):
        usual_priority, usual_admission = "srsf", scheduler
    else:
        raise InputError(
            f"unknown scheduler {shown(scheduler)}.{did_you_mean(scheduler, SCHEDULERS)}"
        )
    return ChosenPolicies(
        choose("placement", placement),
        choose("priority", priority or usual_priority),
        choose("admission", admission or usual_admission),
    )
