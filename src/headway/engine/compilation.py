"""The machine code of the kernel, its rare steps and the policies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from headway import jit
from headway.engine import cycles, graphs, placement, solo
from headway.engine.kernel import advance
from headway.engine.state import RareSteps, Rule, State
from headway.jit.views import fields_of
from headway.policies.compilation import entry_point
from headway.policies.policy_set import Choices

_OPTIONS = {"_nrt": False}
_KERNEL = jit.EntryPoint(advance, jit.signature(int, State, int), "the engine", _OPTIONS)
_RARE = {
    step.__name__: jit.EntryPoint(step, fields_of(RareSteps)[step.__name__], "the engine", _OPTIONS)
    for step in (
        placement.arrive,
        placement.place,
        graphs.measure_iteration,
        solo.go_solo,
        solo.interrupt,
        cycles.look_at_sets,
        cycles.bring_back,
        cycles.bring_all_back,
        cycles.forget_sets_beside,
        cycles.stir,
        cycles.trust_again,
    )
}


@cache
def compiled_rare_steps() -> RareSteps:
    """Return the kernel's rare steps."""
    return RareSteps(**{name: jit.load(entry) for name, entry in _RARE.items()})


def compiled_policies(policies: Choices) -> list[Rule]:
    """Return the policies."""
    return [choice.compiled() for choice in policies]


_loaded: list[Callable[[State, int], int]] = []


def compiled_kernel(policies: Choices) -> Callable[[State, int], int]:
    """Return the kernel; if it must be compiled, so are its rare steps and these policies."""
    if not _loaded:
        others = [*_RARE.values(), *(entry_point(choice.policy) for choice in policies)]
        _loaded.append(jit.load(_KERNEL, meanwhile=others))
    return _loaded[0]
