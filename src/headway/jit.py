"""Compilation: how Headway uses Numba, and where the machine code is kept.

Entry points (the kernel, each policy) are compiled with an explicit signature and cached on disk,
so that the next process starts at once. Numba notices an edit of the cached function's own file but
not of the files that it calls into, so the folder's name contains a hash of the package's sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.event import Listener, install_listener

Function = TypeVar("Function", bound=Callable[..., Any])

_COMPILED_FOLDERS = ("domain", "network", "policies", "engine")
_COMPILED_FILES = ("results/timeline/compiled.py", "reports/perfetto_encoding.py")
_lock = threading.Lock()
_log = logging.getLogger("headway")
_OPTIONS = {"nogil": True, "error_model": "numpy"}

# Numba's annotations know neither its settings nor the option `_nrt`.
_njit: Any = numba.njit
_config: Any = numba.config


def source_hash(*paths: str) -> str:
    """Return a hash of the sources of the engine and of these folders or files of the package."""
    package = Path(__file__).parent
    sources = [Path(__file__)]
    for name in (*_COMPILED_FOLDERS, *paths):
        sources += sorted(package.glob(name if name.endswith(".py") else f"{name}/**/*.py"))
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder() -> Path:
    """Return the folder of the compiled code of exactly these sources."""
    if chosen := os.environ.get("HEADWAY_CACHE_DIR"):
        root = Path(chosen)
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
    for parent in (root, Path(tempfile.gettempdir()) / f"headway-{os.getuid()}"):
        folder = parent / source_hash(*_COMPILED_FILES)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
                return folder
    return Path(tempfile.mkdtemp(prefix="headway-"))


def _folder_of(function: Callable[..., Any]) -> Path:
    """Return the folder of a function's code: what Numba stores is bound to the module's name."""
    return cache_folder() / function.__module__


@contextlib.contextmanager
def _cached_in(folder: Path) -> Iterator[None]:
    """Make Numba cache what is compiled inside in a folder, then restore its setting."""
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _config.CACHE_DIR = before


def inlined(function: Function) -> Function:
    """Compile a function into its callers; it must not allocate.

    Without Numba's reference counting (`_nrt`) passing arrays along is free: with it the kernel
    is three times slower (docs/performance.md).
    """
    return cast(Function, _njit(inline="always", _nrt=False, **_OPTIONS)(function))


def part(function: Function) -> Function:
    """Compile a function that entry points call; it must not allocate."""
    return cast(Function, _njit(_nrt=False, **_OPTIONS)(function))


def routine(function: Function) -> Function:
    """Compile a function that policies call; it may allocate, and its indices are checked."""
    return cast(Function, _njit(boundscheck=True, **_OPTIONS)(function))


class _Announcement(Listener):
    """Says once that something is being compiled, not that it is loaded from the disk cache."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._announced = False

    def on_start(self, event: object) -> None:
        """Log what is being compiled, once."""
        if not self._announced:
            _log.info("Compiling %s for this machine, once …", self._title)
            self._announced = True

    def on_end(self, event: object) -> None:
        """Log nothing."""


def entry_point(function: Function, signature: Any, title: str, **options: bool) -> Function:
    """Compile a function for one signature, or load it from the disk cache."""
    announcement = _Announcement(title)
    folder = _folder_of(function)
    with _lock, _cached_in(folder), install_listener("numba:compile", announcement):
        try:
            return cast(Function, _njit(signature, cache=True, **_OPTIONS, **options)(function))
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            # A function typed at a prompt has no file to be cached under.
            return cast(Function, _njit(signature, **_OPTIONS, **options)(function))


def call(function: Callable[..., int], title: str, *arguments: Any) -> int:
    """Call a function, which must not allocate, compiled for the types of these arguments."""
    return _compiled(function, title, *map(numba.typeof, arguments))(*arguments)


@cache
def _compiled(function: Callable[..., int], title: str, *arguments: Any) -> Callable[..., int]:
    signature = numba.types.int64(*arguments)
    return entry_point(function, signature, title, _nrt=False)
