"""What a client does before it submits a job: check its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.domain.errors import InputError


def check_size(about: Mapping[str, Any], gpus: int, option: str) -> str:
    """Refuse a job that can never start; on Ray and Slurm, where nodes may join, return a warning.

    `about` is the scheduler's status.
    """
    slots = about["slots"]
    if gpus <= slots:
        return ""
    problem = f"{gpus:,} GPUs, but the scheduler has {slots:,} slot{'s' * (slots != 1)}"
    if about["executor"] not in ("ray", "slurm"):
        raise InputError(f"{problem}; the job could never start.", field=option)
    return f"{problem}; the job waits until more nodes join."
