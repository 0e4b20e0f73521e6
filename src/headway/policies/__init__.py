"""The decisions: where a job goes, who comes first, whose message may start."""

from headway.policies.registry import (
    Parameter,
    admission_policy,
    placement_policy,
    priority_policy,
)

__all__ = ["Parameter", "admission_policy", "placement_policy", "priority_policy"]
