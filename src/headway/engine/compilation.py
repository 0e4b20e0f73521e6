"""The machine code of the kernel, its other steps and the policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

_TITLE = "the engine"
_OPTIONS = {"_nrt": False}
_KERNEL = jit.EntryPoint(advance, jit.signature(int, State, int), _TITLE, _OPTIONS)


def _steps(view: type[View], *steps: Callable[..., Any]) -> dict[str, jit.EntryPoint]:
    """Return the entry points of a view's steps; those that take longest to compile come first."""
    fields = fields_of(view)
    return {
        step.__name__: jit.EntryPoint(step, fields[step.__name__], _TITLE, _OPTIONS)
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
    cycles.wake,
    cycles.trust_again,
)
_GRAPH = _steps(
    GraphSteps,
    graphs.measure_iteration,
    graphs.alone_ns,
    graphs.start_iteration,
    graphs.end_tasks,
    graphs.start_task,
    graphs.follow_message,
    graphs.is_held_back,
    graphs.unslowed_ns,
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


_looked_for: set[jit.EntryPoint] = set()
"""The entry points that `compile_ahead` has handled in this process."""


def compile_ahead(sets: Iterable[Choices], graphs: bool) -> None:
    """Compile the kernel, its other steps and these policies side by side, if they are not on disk.

    It is called before threads are started: only then can another process help.
    """
    steps = [_KERNEL, *_RARE.values(), *(_GRAPH.values() if graphs else ())]
    policies = [entry_point(choice.policy) for policies in sets for choice in policies]
    wanted = dict.fromkeys([_KERNEL, *policies, *steps])
    new = [entry for entry in wanted if entry not in _looked_for]
    if new:
        jit.compile_missing(new, _described)
        _looked_for.update(new)


def _described(entries: Sequence[jit.EntryPoint]) -> str:
    policies = [entry.title for entry in entries if entry.title != _TITLE]
    engine = [_TITLE] if len(policies) < len(entries) else []
    if len(engine + policies) > 2:
        policies = [f"{len(policies)} policies"]
    return " and ".join(engine + policies)


def compiled_kernel() -> Callable[[State, int], int]:
    """Return the kernel."""
    return jit.load(_KERNEL)
