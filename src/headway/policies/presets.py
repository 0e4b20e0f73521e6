"""Policies under one name: schedulers, and presets of everything that is decided."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import MOST_BYTES, scaled
from headway.policies.registry import Choice, choose

SCHEDULERS = {
    "ada-srsf": ("srsf", "ada-dual"),
    "k-srsf": ("srsf", "k-way"),
    "srsf:1": ("srsf", "srsf:1"),
    "srsf:2": ("srsf", "srsf:2"),
    "srsf:3": ("srsf", "srsf:3"),
}
"""Name to (priority, admission). Any other `srsf:N` is understood too."""

POLICIES = {
    "paper": "lwf:1+ada-srsf",
    "headway": "least-delay+srtf+ada-dual@50",
}
"""Presets, as `policy_of` reads them: the paper's own combination, and the best we know."""


@dataclass(frozen=True, slots=True)
class ChosenPolicies:
    """The three decisions of a run."""

    placement: Choice
    priority: Choice
    admission: Choice

    @property
    def may_be_skipped(self) -> bool:
        """Whether their promises allow to skip what repeats."""
        chosen = (self.placement.policy, self.priority.policy, self.admission.policy)
        return all(policy.steady and policy.timeless for policy in chosen)


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


@dataclass(frozen=True, slots=True)
class PolicyNames:
    """What a run decides by, under the name that the user gave it."""

    name: str
    placement: str
    scheduler: str = "ada-srsf"
    priority: str | None = None
    admission: str | None = None
    bucket_mb: float | None = None


def policy_of(text: str) -> PolicyNames:
    """Return the policies that a text names.

    It is a preset (`paper`, `headway`), or `placement+scheduler` or `placement+priority+admission`,
    such as `lwf:1+ada-srsf` or `ff+fifo+srsf:1`. An `@25` at the end sends all-reduces in buckets
    of 25 MB; `@0` sends them whole.
    """
    name, bucket_mb = text, None
    if match := re.search(r"@([^@+:/]*)$", text):
        name = text[: match.start()]
        try:
            bucket_mb = float(match[1])
        except ValueError:
            raise InputError(
                f"the bucket size after @ must be a number of MB, not {shown(match[1])}.",
                field=f"policy {text}",
            ) from None
        scaled(bucket_mb, 2**20, f"bucket size of policy {text}", 0, MOST_BYTES, "MB")
    if name in POLICIES:
        preset = policy_of(POLICIES[name])
        kept = preset.bucket_mb if bucket_mb is None else bucket_mb
        return replace(preset, name=text, bucket_mb=kept)
    parts = name.split("+")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise InputError(
            f"unknown policy {shown(text)}.{did_you_mean(name, POLICIES)} Or write "
            "placement+scheduler, such as lwf:1+ada-srsf, or placement+priority+admission."
        )
    if len(parts) == 2:
        names = PolicyNames(text, parts[0], scheduler=parts[1], bucket_mb=bucket_mb)
    else:
        names = PolicyNames(
            text, parts[0], priority=parts[1], admission=parts[2], bucket_mb=bucket_mb
        )
    choose_policies(names.placement, names.scheduler, names.priority, names.admission)
    return names
