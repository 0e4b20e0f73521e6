"""The machine-level signatures of policies, and their compilation."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from headway import jit
from headway.domain.errors import PolicyError, did_you_mean, shown
from headway.domain.records import (
    GPU,
    JOB,
    LINK,
    MESSAGE,
    PORT,
    SEAT,
    SERVER,
    SYSTEM,
    ClusterView,
)
from headway.policies.checks import check
from headway.policies.registry import MODULES, Kind, Policy

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

_LIMIT = "a size in bytes, as a whole number"

_RECORDS = (SYSTEM, JOB, MESSAGE, GPU, SERVER, SEAT, LINK, PORT)


@cache
def entry_point(policy: Policy) -> jit.EntryPoint:
    """Return a policy as it is compiled: with indices checked, so that mistakes are errors.

    Raises:
        PolicyError: It does what a policy must not do.
    """
    check(policy)
    options = {"boundscheck": True, "_nrt": policy.allocates}
    title = f"{policy.kind} policy {policy.name}"
    signature = SIGNATURES[policy.kind]
    if not policy.is_built_in:
        signature = jit.signature(
            signature.returns, jit.ReadOnly(ClusterView), *signature.arguments[1:]
        )
    return jit.EntryPoint(policy.function, signature, title, options)


def _returns(policy: Policy) -> str:
    """Return what a policy must return, in words."""
    return _LIMIT if policy.by_port else _RETURNS[policy.kind]


def compiled(policy: Policy) -> Callable[..., Any]:
    """Return the policy's machine code, compiled now if there is none for what it depends on."""
    entry = entry_point(policy)
    try:
        code = jit.load(entry)
    except jit.ResultError as error:
        raise PolicyError(f"{entry.title} must return {_returns(policy)}.") from error
    except Exception as error:
        reason = _reason(error)
        advice = _advice(reason, policy)
        raise PolicyError(
            f"{entry.title} does not compile. {advice}Numba says: {reason}"
            if advice
            else f"{entry.title} does not compile: {reason}"
        ) from error
    return _uncompiled(policy) if code is policy.function else code


def _uncompiled(policy: Policy) -> Callable[..., Any]:
    """Return a policy that is not compiled, held to what holds for compiled ones."""
    if policy.function.__module__.startswith(MODULES):
        vars(sys.modules[policy.function.__module__]).setdefault("print", _print)

    def decide(cluster: ClusterView, *arguments: Any) -> Any:
        answer = policy.function(cluster.read_only, *arguments)
        if not isinstance(answer, _WHOLE):
            raise TypeError(f"it must return {_returns(policy)}, not {shown(answer)}")
        return answer

    return decide


def _print(*values: object) -> None:
    """Print on standard error, as compiled policies do."""
    print(*values, file=sys.stderr)


_WHOLE = (bool, int, np.bool_, np.integer)


_ADVICE = (
    (r"getitem\(Columns, ", "A column's name comes before the job: cluster.extra.NAME[job]."),
    (
        r"Cannot modify what is readonly|run_quicksort\(readonly",
        "It writes to the cluster, or to a global array, and may only read them: what it may write "
        "to are arrays that it makes and the candidates of a placement.",
    ),
    (
        r"Untyped global name '(\w+)': Cannot determine Numba type of <class 'function'>",
        r"It calls \1, which is plain Python: decorate \1 with headway.policies.routine, or with "
        "part if it makes no arrays.",
    ),
    (
        r"Untyped global name '(\w+)': Cannot determine Numba type of <class '(?:list|dict|set)'>|"
        r"type, assigned to variable '(\w+)' in globals",
        r"It reads the global \1\2: make it a tuple or a NumPy array, or pass a number as the "
        "policy's parameter.",
    ),
    (
        r"Untyped global name '(\w+)'",
        r"It uses the global \1, which cannot be compiled: a policy may use numbers, tuples, NumPy "
        "arrays and compiled functions.",
    ),
    (
        r"(?:freevar|closure|Cannot capture|make_function|op_MAKE_FUNCTION|inner function)",
        "It has a function or a lambda inside: write a function of its own, decorated with "
        "headway.policies.routine, or a loop.",
    ),
    (
        r"(?:list\(undefined\)|[Ll]ist\[|\blist\()",
        "It uses a list: use a NumPy array instead, such as np.zeros(n, np.int64).",
    ),
    (
        r"(?:DictType|[Dd]ict\[|\bdict\b|build_map)",
        "It uses a dict: use a NumPy array with an element for each job, GPU or server instead.",
    ),
    (r"(?:[Ss]et\(|build_set)", "It uses a set: use a NumPy array of True and False instead."),
    (
        r"NRT required|arrayobj|ol_np_|built-in function (?:zeros|empty|ones|full|arange)",
        "It makes an array or another object: register it with allocates=True.",
    ),
    (
        r"exception_match|try .*except|SETUP_FINALLY|SETUP_WITH",
        "It handles exceptions, which cannot be compiled: test the condition instead.",
    ),
    (
        r"Function\(<class 'str'>\)|unicode_type|Literal\[str\]",
        "It uses text, which policies cannot.",
    ),
)
"""The usual mistakes: what Numba says about them, and what to do."""


def _advice(reason: str, policy: Policy) -> str:
    """Return what to do about a usual mistake, or nothing."""
    if match := re.search(r"Unknown attribute '(\w+)' of type [^']*ClusterView", reason):
        return f"cluster has no '{match[1]}'.{did_you_mean(match[1], ClusterView.__annotations__)} "
    if re.search(r"No conversion from .* to (?:int64|bool)", reason):
        return f"It must return {_returns(policy)} on every path. "
    return next(
        (
            f"{match.expand(advice)} "
            for pattern, advice in _ADVICE
            if (match := re.search(pattern, reason))
        ),
        "",
    )


def _reason(error: Exception) -> str:
    """Return the telling lines of what Numba raised: what failed, and where."""
    if isinstance(error, KeyError):
        missing = str(error.args[0])
        fields = {name for dtype in _RECORDS for name in dtype.names or ()} - {missing}
        near = difflib.get_close_matches(missing, fields, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        return f"there is no field '{missing}' in this record.{hint}"
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Failed in", "During:", "<source"))]
    return " ".join(telling[:6])
