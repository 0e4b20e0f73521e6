"""The machine code of the kernel, its other steps and the policies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from headway import jit
from headway.engine import cycles, graphs, placement, solo
from headway.engine.kernel import advance
from headway.engine.state import GraphSteps, RareSteps, Rule, State
from headway.jit.views import View, fields_of
from headway.network import cuts
from headway.policies.compilation import entry_point
from headway.policies.policy_set import Choices

_OPTIONS = {"_nrt": False}
_KERNEL = jit.EntryPoint(advance, jit.signature(int, State, int), "the engine", _OPTIONS)


def _steps(view: type[View], *steps: Callable[..., Any]) -> dict[str, jit.EntryPoint]:
    """Return the entry points of a view's steps; those that take longest to compile come first."""
    fields = fields_of(view)
    return {
        step.__name__: jit.EntryPoint(step, fields[step.__name__], "the engine", _OPTIONS)
        for step in steps
    }


_RARE = _steps(
    RareSteps,
    cycles.look_at_sets,
    placement.place,
    cycles.skip_forward,
    cycles.return_set,
    solo.interrupt,
    solo.go_solo,
    cycles.forget_sets_beside,
    cycles.bring_back,
    placement.arrive,
    cycles.bring_all_back,
    cycles.stir,
    cycles.trust_again,
)
_GRAPH = _steps(
    GraphSteps,
    graphs.measure_iteration,
    graphs.start_iteration,
    graphs.end_tasks,
    graphs.start_task,
    graphs.follow_message,
    graphs.is_held_back,
    cuts.sending_by_server,
)


@cache
def compiled_rare_steps() -> RareSteps:
    """Return the kernel's rare steps."""
    return RareSteps(**{name: jit.load(entry) for name, entry in _RARE.items()})


@cache
def compiled_graph_steps(needed: bool) -> GraphSteps:
    """Return the steps for jobs with graphs, compiled if there are such jobs."""
    steps = {name: jit.load(entry) if needed else entry.function for name, entry in _GRAPH.items()}
    return GraphSteps(**steps)


def compiled_policies(policies: Choices) -> list[Rule]:
    """Return the policies."""
    return [choice.compiled() for choice in policies]


_loaded: list[Callable[[State, int], int]] = []


def compiled_kernel(policies: Choices, graphs: bool = False) -> Callable[[State, int], int]:
    """Return the kernel; if it must be compiled, so are its other steps and these policies."""
    if not _loaded:
        steps = [*_RARE.values(), *(_GRAPH.values() if graphs else ())]
        others = [*(entry_point(choice.policy) for choice in policies), *steps]
        _loaded.append(jit.load(_KERNEL, meanwhile=others))
    return _loaded[0]
