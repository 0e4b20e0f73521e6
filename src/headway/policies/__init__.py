"""The decisions: where a job goes, who comes first, whose message may start."""

from headway.policies.registry import Parameter, admission, placement, priority

__all__ = ["Parameter", "admission", "placement", "priority"]
