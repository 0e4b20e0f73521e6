"""What a function depends on: its own code, the functions that it calls, its global values.

Compiling fixes all of it in machine code. So code that is kept must be for exactly this.
"""

from __future__ import annotations

import builtins
import dis
import enum
import hashlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from headway.jit.code import is_hashed

_LIBRARIES = {*sys.stdlib_module_names, "numpy", "numba", "llvmlite"}
"""What the key of kept code has the versions of."""

_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


class Use(NamedTuple):
    """A global value that a function uses, or one of a function around it."""

    name: str
    """As it is written there, such as `np.random.rand`."""
    value: Any
    line: int


def uses(function: FunctionType) -> Iterator[Use]:
    """Yield the global values that a function uses, at each place."""
    enclosed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in enclosed:
        yield Use(name, cell.cell_contents, function.__code__.co_firstlineno)
    for code in _with_inner(function.__code__):
        instructions = iter([*dis.get_instructions(code), None])
        step = next(instructions)
        while step is not None:
            if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                step = next(instructions)
                continue
            name = step.argval
            line = (step.positions and step.positions.lineno) or code.co_firstlineno
            value = function.__globals__.get(name, getattr(builtins, name, None))
            step = next(instructions)
            while isinstance(value, ModuleType) and step and step.opname in _ATTRIBUTES:
                name = f"{name}.{step.argval}"
                value = getattr(value, step.argval, None)
                step = next(instructions)
            yield Use(name, value, line)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def function_of(value: Any) -> FunctionType | None:
    """Return the Python function of a part, or of what Numba compiles, outside the libraries."""
    function = getattr(value, "py_func", value)
    if not isinstance(function, FunctionType):
        return None
    return None if function.__module__.partition(".")[0] in _LIBRARIES else function


def all_uses(function: Callable[..., Any]) -> Iterator[Use]:
    """Yield the uses of a function and of all that it calls, but of no function of Headway's."""
    waiting, seen = [function_of(function)], set()
    for called in waiting:
        if called is None or called in seen or is_hashed(called.__module__):
            continue
        seen.add(called)
        for use in uses(called):
            waiting.append(function_of(use.value))
            yield use


def compiled_apart(function: Callable[..., Any]) -> list[Any]:
    """Return what else is compiled for a function, parts for example, except Headway's own."""
    found = {function_of(use.value): use.value for use in all_uses(function)}
    return [
        value
        for called, value in found.items()
        if called is not None and hasattr(value, "py_func") and not is_hashed(called.__module__)
    ]


def fingerprint(function: Callable[..., Any]) -> str | None:
    """Return a hash of all that a function depends on; None if it uses a value of unknown kind."""
    digest = hashlib.sha256()
    try:
        for text in _described(function, set()):
            digest.update(len(text).to_bytes(8) + text)
    except _UnknownError:
        return None
    return digest.hexdigest()


class _UnknownError(Exception):
    """A value of unknown kind."""


def _described(value: Any, seen: set[FunctionType]) -> Iterator[bytes]:
    """Yield what tells a value from others, the same in every process."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if value is None or kind in (bool, int, float, complex, str, bytes, type(...)):
        yield repr(value).encode()
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        yield f"{value.dtype.descr} {value.shape} {np.asarray(value).flags.c_contiguous}".encode()
        yield value.tobytes()
    elif isinstance(value, np.dtype):
        yield repr(value).encode()
    elif isinstance(value, enum.Enum):
        yield value.name.encode()
        yield from _described(value.value, seen)
    elif isinstance(value, tuple):
        yield str(len(value)).encode()
        for item in value:
            yield from _described(item, seen)
    elif isinstance(value, frozenset):
        yield from sorted(b"".join(_described(item, seen)) for item in value)
    elif isinstance(value, CodeType):
        yield from _described_code(value, seen)
    elif isinstance(value, type) and hasattr(value, "_fields"):  # of named tuples
        yield f"{value.__module__}.{value.__qualname__} {value._fields}".encode()
    elif (called := function_of(value)) is not None:
        yield repr(getattr(value, "targetoptions", None)).encode()
        yield from _described_function(called, seen)
    else:
        yield _library_name(value).encode()


def _described_function(function: FunctionType, seen: set[FunctionType]) -> Iterator[bytes]:
    yield f"{function.__module__}.{function.__qualname__}".encode()
    if function in seen:
        return
    seen.add(function)
    if is_hashed(function.__module__):
        yield str(function.__code__.co_firstlineno).encode()
        for cell in function.__closure__ or ():
            yield from _described(cell.cell_contents, seen)
        return
    yield from _described(function.__code__, seen)
    yield from _described(function.__defaults__, seen)
    for use in uses(function):
        yield use.name.encode()
        yield from _described(use.value, seen)


def _described_code(code: CodeType, seen: set[FunctionType]) -> Iterator[bytes]:
    yield code.co_code
    yield code.co_linetable
    yield code.co_exceptiontable
    numbers = (code.co_flags, code.co_firstlineno, code.co_argcount, code.co_kwonlyargcount)
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    yield from _described((numbers, names, code.co_consts), seen)


def _library_name(value: Any) -> str:
    """Return the name of a module, a class or a function of Python's, numpy's or Numba's."""
    if isinstance(value, ModuleType):
        return value.__name__
    home = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if isinstance(home, str) and name and home.partition(".")[0] in {*_LIBRARIES, "headway"}:
        return f"{home}.{name}"
    raise _UnknownError
