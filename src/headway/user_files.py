"""Loads a user's Python files as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from headway.domain.errors import InputError

_SOURCES: dict[str, tuple[Path, bytes]] = {}
"""What each module was loaded from."""


def load_file(path: Path, prefix: str) -> ModuleType:
    """Return the module of a file, under a name that begins with the prefix.

    It is loaded once, and again after the file has changed. An exception that the file raises
    propagates, and the module is not kept.
    """
    if not path.is_file():
        raise InputError("no such file.", source=str(path))
    path = path.resolve()
    name = f"{prefix}_{path.stem}"
    source = path.read_bytes()
    module = sys.modules.get(name)
    if module is not None and _SOURCES.get(name) == (path, source):
        return module
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("cannot be loaded as a Python file.", source=str(path))
    module = importlib.util.module_from_spec(spec)
    # Before it runs, because dataclasses look up their module here.
    sys.modules[name] = module
    # Not `exec_module`, which may take compiled code of an older version of the file for its own.
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    _SOURCES[name] = path, source
    return module
