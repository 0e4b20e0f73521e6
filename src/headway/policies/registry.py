"""Policies by name: what a policy is, how one is registered, chosen and compiled.

A policy is a Python function, compiled by Numba for a fixed signature:

    placement(cluster, job, candidates, parameter) -> bool
    priority(cluster, job, parameter) -> int
    admission(cluster, message, parameter) -> bool, or the time in ns before which it must not start
        or, by port, admission(cluster, port, parameter) -> the least size in bytes that must wait

`parameter` is the number after the colon in a name such as `lwf:1`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from headway.domain.errors import HeadwayError, InputError, PolicyError, did_you_mean, shown
from headway.domain.limits import number_from
from headway.interrupts import uninterruptible
from headway.user_files import load_file

Kind = Literal["placement", "priority", "admission"]
Function = TypeVar("Function", bound=Callable[..., Any])

WAIT, ADMIT = 0, 1
"""What an admission answers; any larger number is the time in ns before which it must not start."""


NEEDED_FIRST = "/needed-first"
"""The end of an admission's name: of a job's messages, the one that is needed first goes first."""

NO_LIMIT = 2**63 - 1
"""What an admission by port answers where all messages may start: more bytes than one can have."""


def admits(answer: int, now_ns: int) -> bool:
    """Whether an admission's answer lets a message start now."""
    return answer == ADMIT or WAIT < answer <= now_ns


_ARGUMENTS: dict[Kind, int] = {"placement": 4, "priority": 3, "admission": 3}
KIND_NAMES: dict[Kind, str] = {
    "placement": "a placement",
    "priority": "a priority",
    "admission": "an admission",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """What the number after the colon means, and what it may be."""

    name: str
    least: float = -math.inf
    integer: bool = False

    def __post_init__(self) -> None:
        """Refuse values of other types."""
        for field, kinds in (("name", str), ("least", int | float), ("integer", bool)):
            value = getattr(self, field)
            if not isinstance(value, kinds):
                raise PolicyError(f"a Parameter's {field} must not be {shown(value)}.")


@dataclass(frozen=True, eq=False)
class Policy:
    """A registered policy.

    `steady` promises that a refusal stands until something leaves: a job that a placement left
    queued would be left again until some job finishes; a message that an admission left waiting,
    until a message ends on one of its ports. The engine then skips redundant calls.

    `by_port` says that an admission judges each port by itself: it is asked about a port, not about
    a message, and answers with a limit in bytes. A message starts if it is smaller than the limits
    of all its ports. It promises that a limit depends on the messages on that port alone and does
    not rise until one of them ends; so it is steady. The engine then asks once per change of a
    port, however many messages wait there.

    `timeless` promises that it does not look at the clock, nor at anything else that would let it
    decide otherwise when the same happens again later. A priority's key then depends on the job's
    own record alone and, while the job is placed, only falls or only rises as iterations end. An
    admission then depends on the message and those on its links alone, names no time, and lets a
    message start if there is no other. A placement then looks at jobs, their iterations and keys,
    memory, loads and which GPUs hold which jobs, but not at messages in flight. What repeats is
    then skipped; if one of the three policies does not promise it, nothing is.

    `allocates` allows it to make arrays, at the price of Numba's reference counting, which costs
    about as much as a decision. A placement, asked far less often than the others, always may.
    """

    kind: Kind
    name: str
    function: Callable[..., Any]
    parameter: Parameter | None = None
    steady: bool = False
    allocates: bool = False
    timeless: bool = False
    by_port: bool = False

    @property
    def is_built_in(self) -> bool:
        """Whether Headway ships it."""
        return self.function.__module__.startswith("headway.")

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def usage(self) -> str:
        """The name as users write it, such as `lwf:KAPPA`."""
        return self.name if self.parameter is None else f"{self.name}:{self.parameter.name.upper()}"

    def bind(self, text: str | None) -> Choice:
        """Return the policy with its parameter, given as text."""
        given = self.name if text is None else f"{self.name}:{text}"
        if self.parameter is None:
            if text is not None:
                raise InputError(
                    f"{self.kind} policy '{self.name}' takes no parameter: {shown(given)}."
                )
            return Choice(self, 0.0, self.name)
        try:
            value = math.nan if text is None else number_from(text)
        except ValueError:
            value = math.nan
        whole = not self.parameter.integer or value.is_integer()
        if not (math.isfinite(value) and whole and self.parameter.least <= value <= 2**53):
            sort = "a whole number" if self.parameter.integer else "a number"
            least = (
                ""
                if self.parameter.least == -math.inf
                else f" of at least {self.parameter.least:g}"
            )
            raise InputError(
                f"{self.kind} policy '{self.usage}' needs {sort}{least} after the colon, "
                f"not {shown(given)}."
            )
        number = str(int(value)) if value.is_integer() else repr(value)
        return Choice(self, value, f"{self.name}:{number}")


@dataclass(frozen=True, eq=False)
class Choice:
    """A policy with the value of its parameter.

    With `needed_first`, an option of any admission, a message of a graph waits for those of its own
    job that are needed before it and share one of its ports; see `headway.engine.graphs`.
    """

    policy: Policy
    parameter: float
    name: str
    needed_first: bool = False

    def compiled(self) -> Callable[..., Any]:
        """Return the policy's machine code, compiled now if this is its first use."""
        from headway.policies.compilation import compiled

        return compiled(self.policy)


_loading = threading.RLock()
_REGISTRY: dict[tuple[Kind, str], Policy] = {}

_BUILT_IN = (
    "headway.policies.placement.rand",
    "headway.policies.placement.ff",
    "headway.policies.placement.ls",
    "headway.policies.placement.lwf",
    "headway.policies.placement.least_delay",
    "headway.policies.placement.spread",
    "headway.policies.placement.consolidate",
    "headway.policies.placement.tiresias",
    "headway.policies.placement.apart",
    "headway.policies.priority.srsf",
    "headway.policies.priority.srtf",
    "headway.policies.priority.fifo",
    "headway.policies.priority.smallest",
    "headway.policies.priority.las",
    "headway.policies.priority.two_d_las",
    "headway.policies.priority.gpu_intensity",
    "headway.policies.admission.srsf",
    "headway.policies.admission.ada_dual",
    "headway.policies.admission.interleave",
    "headway.policies.admission.k_way",
)
"""A new policy is one file and one line here."""


def _load_built_in() -> None:
    for module in _BUILT_IN:
        importlib.import_module(module)


def register(policy: Policy) -> None:
    """Add a policy; the same function may be registered again, another may not take its name."""
    if policy.function.__module__ not in _BUILT_IN:
        _load_built_in()
    known = _REGISTRY.get((policy.kind, policy.name))
    if known is not None and _origin(known.function) != _origin(policy.function):
        raise PolicyError(
            f"there is already a policy named '{policy.name}' for {policy.kind}, from "
            f"{_origin(known.function)[0]}; choose another name."
        )
    _REGISTRY[policy.kind, policy.name] = policy


def _origin(function: Callable[..., Any]) -> tuple[str, str]:
    """Return where a function was written; a cell of a notebook that is edited stays the same."""
    place = function.__code__.co_filename
    return "__main__" if function.__module__ == "__main__" else place, function.__qualname__


def _decorator(
    kind: Kind,
    name: str,
    parameter: Parameter | None,
    steady: bool,
    allocates: bool,
    timeless: bool,
    by_port: bool = False,
) -> Callable[[Function], Function]:
    if not isinstance(name, str) or not name or ":" in name:
        raise PolicyError(f"a policy's name must not be empty or hold a colon, not {shown(name)}.")

    if parameter is not None and not isinstance(parameter, Parameter):
        raise PolicyError(
            f"parameter must be such as Parameter('share', least=0), not {shown(parameter)}."
        )
    promises = {
        "steady": steady,
        "allocates": allocates,
        "timeless": timeless,
        "by_port": by_port,
    }
    for promise, value in promises.items():
        if not isinstance(value, bool):
            raise PolicyError(f"{promise} must be True or False, not {shown(value)}.")

    def decorate(function: Function) -> Function:
        policy = Policy(
            kind, name, function, parameter, steady or by_port, allocates, timeless, by_port
        )
        register(_checked(policy))
        return function

    return decorate


def placement_policy(
    name: str,
    *,
    parameter: Parameter | None = None,
    steady: bool = False,
    timeless: bool = False,
) -> Callable[[Function], Function]:
    """Register a placement: it puts `candidates` in order; the job gets the first n.

    It returns True, or False to leave the job queued.
    """
    return _decorator("placement", name, parameter, steady, True, timeless)


def priority_policy(
    name: str,
    *,
    parameter: Parameter | None = None,
    allocates: bool = False,
    timeless: bool = False,
) -> Callable[[Function], Function]:
    """Register a priority: it returns a job's key; the lowest (key, index) comes first.

    The engine asks when the job arrives, when it is placed and when one of its iterations ends.
    """
    return _decorator("priority", name, parameter, True, allocates, timeless)


def admission_policy(
    name: str,
    *,
    parameter: Parameter | None = None,
    steady: bool = False,
    allocates: bool = False,
    timeless: bool = False,
    by_port: bool = False,
) -> Callable[[Function], Function]:
    """Register an admission: it returns whether a message that is ready starts now.

    Or the time, in ns and later than now, before which it must not start: it is asked again then,
    unless it gave another answer in between. By port, it returns the least size in bytes of a
    message that must not join that port now, or NO_LIMIT.
    """
    return _decorator("admission", name, parameter, steady, allocates, timeless, by_port)


def _checked(policy: Policy) -> Policy:
    count = len(inspect.signature(policy.function).parameters)
    wanted = _ARGUMENTS[policy.kind]
    if count != wanted:
        subject = "message" if policy.kind == "admission" else "job"
        subject = "port" if policy.by_port else subject
        names = ["cluster", subject, *(["candidates"] if wanted == 4 else []), "parameter"]
        raise PolicyError(
            f"{policy.kind} policy '{policy.name}' must take {wanted} arguments "
            f"({', '.join(names)}), not {count}."
        )
    return policy


def policies(kind: Kind) -> list[Policy]:
    """Return the registered policies of a kind."""
    _load_built_in()
    return [policy for (its_kind, _), policy in _REGISTRY.items() if its_kind == kind]


def choose(kind: Kind, text: str) -> Choice:
    """Return the policy that a text such as `lwf:1` or `my_policies.py:packed` names."""
    if text.endswith(NEEDED_FIRST):
        if kind != "admission":
            raise InputError(f"only admissions have the option {NEEDED_FIRST}, not {shown(text)}.")
        base = text.removesuffix(NEEDED_FIRST)
        if base.endswith(NEEDED_FIRST):
            raise InputError(f"{shown(text)} has the option {NEEDED_FIRST} twice.")
        choice = choose(kind, base)
        return replace(choice, name=choice.name + NEEDED_FIRST, needed_first=True)
    path, found, rest = text.partition(".py:")
    if found:
        name, _, parameter = rest.partition(":")
        with _loading, uninterruptible():
            policy = _from_file(kind, Path(path + ".py"), name)
        return policy.bind(parameter or None)
    name, colon, parameter = text.partition(":")
    known = {policy.name: policy for policy in policies(kind)}
    if name not in known:
        other = next((other for other in _ARGUMENTS if (other, name) in _REGISTRY), None)
        problem = f"unknown {kind} policy {shown(text)}."
        if other is not None:
            problem = f"{shown(text)} is {KIND_NAMES[other]} policy, not {KIND_NAMES[kind]} policy."
        raise InputError(f"{problem}{did_you_mean(name, known)}")
    return known[name].bind(parameter if colon else None)


def registered(kind: Kind, function: Callable[..., Any]) -> Policy:
    """Return the policy of a function; without a decorator it is registered by its own name."""
    if not inspect.isfunction(function):
        raise PolicyError(f"a {kind} policy must be a text or a function, not {shown(function)}.")
    for policy in policies(kind):
        if policy.function is function:
            return policy
    if function.__name__ == "<lambda>":
        raise PolicyError(
            f"a {kind} policy needs a name: write it with `def` instead of as a lambda."
        )
    allocates = kind == "placement"
    register(_checked(Policy(kind, function.__name__, function, allocates=allocates)))
    return _REGISTRY[kind, function.__name__]


MODULES = "headway_policies"
"""How the names of the modules of users' files begin."""


def _from_file(kind: Kind, path: Path, name: str) -> Policy:
    """Load a user's file and return its policy: registered there, or a plain function."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Standard output is for results.
            module = load_file(path, MODULES)
        path = path.resolve()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        path = path.resolve()
        where = error.lineno if isinstance(error, SyntaxError) else _last_line(error, path)
        problem = str(error)
        if not isinstance(error, HeadwayError):
            problem = f"{type(error).__name__}: {' '.join(problem.split())}"
        raise InputError(problem, source=str(path), line=where) from error
    function = getattr(module, name, None)
    known = list(_REGISTRY.values())
    here = [policy for policy in known if _origin(policy.function)[0] == str(path)]
    found = {policy.kind: policy for policy in known if policy.function is function}
    found |= {policy.kind: policy for policy in here if policy.name == name}
    if kind in found:
        return found[kind]
    for other in found:
        raise InputError(
            f"{shown(name)} is {KIND_NAMES[other]} policy, not {KIND_NAMES[kind]} policy.",
            source=str(path),
        )
    if not inspect.isfunction(function):
        offered = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise InputError(
            f"has no function {shown(name)}.{did_you_mean(name, offered)}", source=str(path)
        )
    return _checked(Policy(kind, name, function, allocates=kind == "placement"))


def _last_line(error: BaseException, path: Path) -> int | None:
    """Return the line of the user's file where the error came from."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
