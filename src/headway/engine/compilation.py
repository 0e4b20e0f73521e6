"""The machine code of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from headway import jit
from headway.engine.kernel import advance
from headway.engine.state import Rule, State
from headway.policies.compilation import entry_point
from headway.policies.policy_set import Choices

_KERNEL = jit.EntryPoint(advance, jit.signature(int, State, int), "the engine", {"_nrt": False})


@cache
def compiled_kernel() -> Callable[[State, int], int]:
    """Return the kernel."""
    return jit.load(_KERNEL)


def compiled_policies(policies: Choices) -> list[Rule]:
    """Return the policies; what is not compiled yet is compiled now, the kernel beside them."""
    missing = [entry_point(choice.policy) for choice in policies]
    if not jit.is_disabled() and _KERNEL.is_missing():
        jit.load(_KERNEL, meanwhile=missing)
    return [choice.compiled() for choice in policies]
