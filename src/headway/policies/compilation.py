"""The machine-level signatures of policies, and their compilation."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from headway import jit
from headway.domain.errors import PolicyError
from headway.domain.records import ClusterView
from headway.policies.registry import Kind, Policy

SIGNATURES: dict[Kind, jit.Signature] = {
    "placement": jit.signature(bool, ClusterView, int, np.dtype(np.int64), float),
    "priority": jit.signature(int, ClusterView, int, float),
    "admission": jit.signature(int, ClusterView, int, float),
}

_RETURNS: dict[Kind, str] = {
    "placement": "True or False",
    "priority": "a whole number",
    "admission": "True, False or a time in nanoseconds",
}

_compiled: dict[Policy, Callable[..., Any]] = {}
_lock = threading.Lock()


def compiled(policy: Policy) -> Callable[..., Any]:
    """Return the policy's machine code; the same for every run of this process."""
    with _lock:
        if policy not in _compiled:
            _compiled[policy] = _load(policy)
        return _compiled[policy]


def entry_point(policy: Policy) -> jit.EntryPoint:
    """Return a policy as it is compiled: with indices checked, so that mistakes are errors."""
    options = {"boundscheck": True, "_nrt": policy.allocates}
    title = f"{policy.kind} policy {policy.name}"
    return jit.EntryPoint(policy.function, SIGNATURES[policy.kind], title, options)


def _load(policy: Policy) -> Callable[..., Any]:
    entry = entry_point(policy)
    try:
        return jit.load(entry)
    except jit.ResultError as error:
        raise PolicyError(f"{entry.title} must return {_RETURNS[policy.kind]}.") from error
    except Exception as error:
        hint = "" if policy.allocates else " (If it makes arrays: register it with allocates=True.)"
        raise PolicyError(f"{entry.title} does not compile: {_reason(error)}{hint}") from error


def _reason(error: Exception) -> str:
    """Return the telling lines of what Numba raised: what failed, and where."""
    if isinstance(error, KeyError):
        return f"there is no field {error}."
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Failed in", "During:", "<source"))]
    return " ".join(telling[:6])
