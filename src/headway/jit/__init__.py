"""Compilation: how Headway turns Python functions into machine code, and keeps it.

An entry point (the kernel, each policy) is compiled for one signature, with all the functions that
it calls, and its machine code is kept on disk, so that the next process starts at once: it does not
even import Numba. `NUMBA_DISABLE_JIT=1` switches compilation off; then everything is plain Python.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from headway.jit.code import (
    Compiled,
    DamagedCodeError,
    breakable,
    cache_folder,
    code_path,
    kind_of,
    loaded,
    read_code,
    source_hash,
    write_code,
)
from headway.jit.dependencies import compiled_apart, fingerprint
from headway.jit.views import (
    Columns,
    MissingColumnError,
    ReadOnly,
    Signature,
    View,
    signature,
)

__all__ = [
    "Columns",
    "EntryPoint",
    "MissingColumnError",
    "ReadOnly",
    "ResultError",
    "Signature",
    "View",
    "cache_folder",
    "call",
    "compile_missing",
    "inlined",
    "load",
    "part",
    "routine",
    "signature",
    "source_hash",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger("headway")
_lock = threading.RLock()
_disabled = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"


class ResultError(Exception):
    """A function does not return what its signature says."""


class Part:
    """A function that compiled functions call. Python calls it uncompiled."""

    def __init__(self, function: Callable[..., Any], **options: bool) -> None:
        """Wrap a function; it is translated when something that calls it is compiled."""
        functools.update_wrapper(self, function)
        self.py_func = function
        self.targetoptions = options

    def __call__(self, *arguments: Any) -> Any:
        """Call the Python function."""
        return self.py_func(*arguments)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What compiles it, for Numba."""
        from headway.jit.compiler import PartDispatcher

        return PartDispatcher(self.py_func, self.targetoptions)

    @property
    def _numba_type_(self) -> Any:
        """How Numba sees a reference to this function."""
        return self.dispatcher.numba_type()


def _part(function: Function, **options: bool) -> Function:
    if not function.__module__.startswith("headway."):  # A user's mistake must not crash it all.
        options["boundscheck"] = True
    return function if _disabled else cast(Function, Part(function, **options))


def inlined(function: Function) -> Function:
    """Compile a function into its callers, for what is small and called often.

    It must not allocate.
    """
    return _part(function, forceinline=True, _nrt=False)


def part(function: Function) -> Function:
    """Compile a function that entry points call; it must not allocate.

    Without Numba's reference counting (`_nrt`) passing arrays along is free: with it the kernel
    is three times slower (docs/performance.md). Indices are checked in users' parts alone.
    """
    return _part(function, _nrt=False)


def routine(function: Function) -> Function:
    """Compile a function that policies call; it may allocate, and its indices are checked."""
    return _part(function, boundscheck=True)


@dataclass(frozen=True, eq=False)
class EntryPoint:
    """A function to be compiled, and its name in messages."""

    function: Callable[..., Any]
    signature: Signature
    title: str
    options: dict[str, bool] = field(default_factory=dict)

    def path(self) -> Path | None:
        """Return where its code is kept; None if it is not known what the code depends on."""
        depends_on = fingerprint(self.function)
        if depends_on is None:
            return None
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        fixed = (repr(self.signature), repr(sorted(self.options.items())))
        return code_path(name.replace("<locals>.", ""), depends_on, *fixed)

    def is_missing(self) -> bool:
        """Whether its code could be on disk and is not."""
        path = self.path()
        return path is not None and not path.exists()


def load(entry: EntryPoint) -> Callable[..., Any]:
    """Return an entry point's code, the same at every call, compiled now if it is not on disk.

    Raises:
        ResultError: The function does not return what its signature says.
        Exception: What Numba raises for a function that it cannot compile.
    """
    if _disabled:
        return entry.function
    with _lock, breakable():
        depends_on = fingerprint(entry.function)
        known, code = _loaded.get(entry, (depends_on, None))
        if known != depends_on:  # A global has changed since, as it may in a notebook.
            code = None
        code = code or _stored(entry)
        if code is None:
            _announce(entry.title)
            with _uncollected():
                code = _compile(entry)
        if isinstance(code, Exception):
            del _loaded[entry]
            raise code
        _loaded[entry] = depends_on, code
        return code


_loaded: dict[EntryPoint, tuple[str | None, Compiled | Exception]] = {}
"""The code of this process, or why `compile_missing` could not compile it, until that is raised;
and the fingerprint of what it was compiled from.
"""


def compile_missing(
    entries: Iterable[EntryPoint], described: Callable[[Sequence[EntryPoint]], str]
) -> None:
    """Compile side by side, in two processes, those of these entry points that are not on disk.

    This pays for two or more of them; those that take longest should come first. The error of one
    that cannot be compiled is raised by `load`.
    """
    if _disabled:
        return
    with _lock, breakable():
        missing = [entry for entry in entries if entry.is_missing()]
        if len(missing) > 1:
            _announce(described(missing))
            with _uncollected():
                _compile_together(missing)


def _announce(what: str) -> None:
    _log.info("Compiling %s for this machine, once …", what)


def _stored(entry: EntryPoint) -> Compiled | None:
    """Return an entry point's code if it is on disk."""
    path = entry.path()
    try:
        code = None if path is None else read_code(path)
    except DamagedCodeError:
        _log.warning("The compiled code of %s is damaged: %s", entry.title, path)
        return None
    return None if code is None else loaded(code, entry.signature)


def _compile(entry: EntryPoint) -> Compiled:
    """Compile an entry point and keep its code."""
    from headway.jit.compiler import compile_code

    for part in compiled_apart(entry.function):
        _forget(part)
    code = compile_code(entry.function, entry.signature, **entry.options)
    path = entry.path()
    if path is not None and not code.environments:
        write_code(path, code)
    return loaded(code, entry.signature)


def _forget(part: Any) -> None:
    """Have a part translated anew: the globals that it was compiled with may have changed."""
    if isinstance(part, Part):
        vars(part).pop("dispatcher", None)
    else:
        part.recompile()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage: compiling makes little, and looking for it takes a tenth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _compile_together(entries: Sequence[EntryPoint]) -> None:
    """Compile entry points, with the help of another process where a process may fork safely."""
    if not _may_fork():
        for entry in entries:
            _compile_ahead(entry)
        return
    import headway.jit.compiler  # noqa: F401  (imported once for both)

    context = multiprocessing.get_context("fork")
    taken = context.Value("i", 0)
    process = context.Process(target=_compile_quietly, args=(entries, taken), daemon=True)
    with _blocked_signals():  # until the new process has handlers of its own
        process.start()
    try:
        _compile_rest(entries, taken)
        process.join()
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _may_fork() -> bool:
    """Whether there is a core for another process, and no thread that would hold a lock there.

    Daemonic processes, such as those of a `multiprocessing.Pool`, may have no children.
    """
    several = (os.cpu_count() or 1) > 1
    able = "fork" in multiprocessing.get_all_start_methods()
    allowed = not multiprocessing.current_process().daemon
    return several and able and allowed and threading.active_count() == 1


def _compile_quietly(entries: Sequence[EntryPoint], taken: Any) -> None:
    """Compile in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The first process ends this one.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    with contextlib.suppress(BaseException):
        _compile_rest(entries, taken)
    os._exit(0)


def _compile_rest(entries: Sequence[EntryPoint], taken: Any) -> None:
    """Compile those that no process has taken; `taken`, which they share, is how many have been."""
    while True:
        with taken.get_lock():
            index = taken.value
            taken.value += 1
        if index >= len(entries):
            return
        _compile_ahead(entries[index])


def _compile_ahead(entry: EntryPoint) -> None:
    depends_on = fingerprint(entry.function)
    try:
        _loaded[entry] = depends_on, _compile(entry)
    except Exception as error:
        _loaded[entry] = depends_on, error


def call(function: Callable[..., int], title: str, *arguments: Any) -> int:
    """Call a function, which must not allocate, compiled for the types of these arguments."""
    return int(_compiled(function, title, *map(kind_of, arguments))(*arguments))


@functools.cache
def _compiled(function: Callable[..., int], title: str, *kinds: Any) -> Callable[..., Any]:
    return load(EntryPoint(function, signature(int, *kinds), title, {"_nrt": False}))
