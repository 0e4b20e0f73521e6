"""What a policy must not do, found in its code and in that of the functions that it calls.

A policy decides by the cluster and its parameter alone, so that equal runs have equal results.
"""

from __future__ import annotations

import dis
from types import FunctionType, ModuleType
from typing import Any

from headway.domain.errors import PolicyError
from headway.jit.dependencies import Use, all_uses, function_of, uses
from headway.policies.registry import Policy

_RANDOM = (
    "draws random numbers with {}, so equal runs would differ: compute them from "
    "cluster.system[0].seed, as the placement rand does."
)
_CLOCK = "reads the clock of this machine with {}: the simulated time is cluster.system[0].now_ns."
_OUTSIDE = (
    "uses {}, and may use nothing but the cluster and its parameter: read files and the "
    "environment outside of functions, into a global number, tuple or array."
)
_PROBLEMS = {
    **dict.fromkeys(("random", "numpy.random", "secrets", "uuid"), _RANDOM),
    **dict.fromkeys(("time", "datetime"), _CLOCK),
    **dict.fromkeys(
        (
            *("os", "posix", "sys", "io", "_io", "pathlib", "shutil", "glob", "tempfile"),
            *("socket", "subprocess", "threading", "multiprocessing", "platform", "gc"),
            *("ctypes", "_cffi_backend", "numba.core.withcontexts"),
        ),
        _OUTSIDE,
    ),
}
"""By module: what is wrong with using it."""

_BUILT_IN = ("open", "input", "eval", "exec", "globals", "vars", "id")
"""What is no better, of what needs no import."""


def check(policy: Policy) -> None:
    """Refuse a policy that does what a policy must not do.

    Raises:
        PolicyError: It says what, in which file and line.
    """
    function = function_of(policy.function)
    if function is not None and not policy.is_built_in:
        _check(policy, function, (), set())


def is_watched(policy: Policy) -> bool:
    """Whether somebody follows a policy's calls: it prints, or stops in a debugger."""
    return any(use.name in ("print", "breakpoint") for use in all_uses(policy.function))


def _check(
    policy: Policy, function: FunctionType, above: tuple[FunctionType, ...], done: set[FunctionType]
) -> None:
    """Check a function that those above call, each the next."""
    done.add(function)
    _check_steps(policy, function)
    above = (*above, function)
    for use in uses(function):
        called = function_of(use.value)
        if called in above:
            raise _error(
                policy,
                function,
                use.line,
                f"calls {use.name}, which calls itself: recursion is not compiled, write a loop.",
            )
        if called is None:
            if problem := _problem(use):
                raise _error(policy, function, use.line, problem.format(use.name))
        elif called not in done and not called.__module__.startswith("headway."):
            _check(policy, called, above, done)


def _check_steps(policy: Policy, function: FunctionType) -> None:
    """Refuse what a single instruction does."""
    outer = function.__code__.co_freevars
    for step in dis.get_instructions(function.__code__):
        problem = ""
        if step.opname == "STORE_GLOBAL" or (step.opname == "STORE_DEREF" and step.argval in outer):
            problem = f"sets {step.argval}, but keeps nothing from one call to the next."
        elif step.opname == "IMPORT_NAME":
            problem = f"imports {step.argval}: import it at the top of the file."
        if problem:
            raise _error(policy, function, step.positions and step.positions.lineno, problem)


def _problem(use: Use) -> str:
    """Return what is wrong with using a value, or nothing."""
    home = _home(use.value)
    if home == "builtins":
        return _OUTSIDE if use.name in _BUILT_IN else ""
    while home and home not in _PROBLEMS:
        home = home.rpartition(".")[0]
    return _PROBLEMS.get(home, "")


def _home(value: Any) -> str:
    """Return the module that a value is from."""
    if isinstance(value, ModuleType):
        return value.__name__
    for owner in (value, getattr(value, "__self__", None), type(value)):
        module = getattr(owner, "__module__", None)
        if owner is not None and isinstance(module, str):
            return module
    return ""


def _error(policy: Policy, function: FunctionType, line: int | None, problem: str) -> PolicyError:
    where = f"{function.__code__.co_filename}, line {line}"
    return PolicyError(f"{where}: {policy.kind} policy {policy.name} {problem}")
