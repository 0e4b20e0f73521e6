"""The machine-level signatures of policies, and their compilation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numba
from numba import types

from headway import jit
from headway.domain.errors import PolicyError
from headway.domain.records import GPU, JOB, LINK, SEAT, SERVER, SYSTEM, ClusterView
from headway.policies.registry import Kind, Policy


def records_type(dtype: Any) -> Any:
    """Return the Numba type of an array of these records."""
    return types.Array(numba.from_dtype(dtype), 1, "C")


INTEGERS = types.Array(types.int64, 1, "C")
CLUSTER = types.NamedTuple(
    [records_type(dtype) for dtype in (SYSTEM, JOB, GPU, SERVER, SEAT, LINK)], ClusterView
)

SIGNATURES: dict[Kind, Any] = {
    "placement": types.boolean(CLUSTER, types.int64, INTEGERS, types.float64),
    "priority": types.int64(CLUSTER, types.int64, types.float64),
    "admission": types.boolean(CLUSTER, types.int64, types.float64),
}

_compiled: dict[Policy, Callable[..., Any]] = {}
_lock = threading.Lock()


def compiled(policy: Policy) -> Callable[..., Any]:
    """Return the policy's machine code; the same for every run of this process."""
    with _lock:
        if policy not in _compiled:
            try:
                _compiled[policy] = jit.entry_point(policy.function, SIGNATURES[policy.kind], allocates=True)
            except numba.core.errors.NumbaError as error:
                raise PolicyError(
                    f"{policy.kind} policy '{policy.name}' does not compile: {_reason(error)}"
                ) from error
        return _compiled[policy]


def _reason(error: Exception) -> str:
    """Return the telling lines of a Numba error: what failed, and where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Failed in", "During:", "<source"))]
    return " ".join(told[:6])
