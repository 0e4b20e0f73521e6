"""The machine-level signatures of policies, and their compilation."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, cast

import numba
from numba import types

from headway import jit
from headway.domain.errors import PolicyError
from headway.domain.records import VIEW_DTYPES, ClusterView
from headway.policies.registry import Kind, Policy

_CANDIDATES = types.Array(types.int64, 1, "C")
_CLUSTER = types.NamedTuple(
    [types.Array(numba.from_dtype(dtype), 1, "C") for dtype in VIEW_DTYPES], ClusterView
)

SIGNATURES: dict[Kind, Any] = {
    "placement": types.boolean(_CLUSTER, types.int64, _CANDIDATES, types.float64),
    "priority": types.int64(_CLUSTER, types.int64, types.float64),
    "admission": types.int64(_CLUSTER, types.int64, types.float64),
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
            _compiled[policy] = _compile(policy)
        return _compiled[policy]


def _compile(policy: Policy) -> Callable[..., Any]:
    """Compile a policy with indices checked, so that a mistake is an error and not a crash."""
    title = f"{policy.kind} policy {policy.name}"
    signature = SIGNATURES[policy.kind]
    options = {"boundscheck": True, "_nrt": policy.allocates}
    try:
        code: Any = jit.entry_point(policy.function, signature, title, **options)
    except Exception as error:
        hint = "" if policy.allocates else " (If it makes arrays: register it with allocates=True.)"
        raise PolicyError(f"{title} does not compile: {_reason(error)}{hint}") from error
    for overload in getattr(code, "nopython_signatures", ()):
        if overload.return_type != signature.return_type:
            raise PolicyError(f"{title} must return {_RETURNS[policy.kind]}.")
    return cast(Callable[..., Any], code)


def _reason(error: Exception) -> str:
    """Return the telling lines of what Numba raised: what failed, and where."""
    if isinstance(error, KeyError):
        return f"there is no field {error}."
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Failed in", "During:", "<source"))]
    return " ".join(telling[:6])
