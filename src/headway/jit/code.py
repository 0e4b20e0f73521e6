"""Machine code: where it is kept between processes, and how Python calls it.

A file holds the code of one entry point behind a line of JSON with a digest, so that a damaged file
is noticed and compiled anew. Loading it takes LLVM's loader, but not Numba, which takes longer to
import than most simulations take to run.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import platform
import tempfile
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from headway.jit.views import Signature, View

_COMPILED_FOLDERS = ("jit", "domain", "network", "policies", "engine")
_COMPILED_FILES = ("results/timeline/compiled.py", "reports/perfetto_encoding.py")
_RAISED = 1
"""The least status of a function that raised an exception."""


@dataclass(frozen=True, slots=True)
class Code:
    """The machine code of an entry point with everything that it calls."""

    data: bytes
    symbol: str
    needs_numba: bool
    """Whether it calls functions of Numba."""
    environments: dict[str, Any] = field(default_factory=dict)
    """Python objects that it needs, by the name of the variable for each; then it is not kept."""


def source_hash(*paths: str) -> str:
    """Return a hash of the sources of the engine and of these folders or files of the package."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for name in (*_COMPILED_FOLDERS, *paths):
        for source in sorted(package.glob(name if name.endswith(".py") else f"{name}/**/*.py")):
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


@cache
def _machine() -> str:
    """Return what compiled code depends on besides sources: the processor and the compilers."""
    from llvmlite import binding

    parts = (
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
        platform.python_version(),
        *(version(package) for package in ("numba", "llvmlite", "numpy")),
    )
    return "\n".join(parts)


def code_path(name: str, *parts: str) -> Path:
    """Return the file of an entry point's code, given all that the code depends on."""
    digest = hashlib.sha256("\0".join((_machine(), name, *parts)).encode()).hexdigest()
    return cache_folder() / f"{name}-{digest[:16]}.code"


class DamagedCodeError(Exception):
    """A file of code that is not what was written."""


def read_code(path: Path) -> Code | None:
    """Return the code of a file, or None if there is none.

    Raises:
        DamagedCodeError: It is not what was written.
    """
    try:
        head, _, data = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    try:
        header = json.loads(head)
        code = Code(data, header["symbol"], header["needs_numba"])
        intact = header == _header(code)
    except (ValueError, TypeError, KeyError):
        intact = False
    if not intact:
        raise DamagedCodeError(path)
    return code


def write_code(path: Path, code: Code) -> None:
    """Write the code of an entry point, whole or not at all; a full disk is no error."""
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(_header(code)).encode() + b"\n" + code.data)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink()
            raise


def _header(code: Code) -> dict[str, Any]:
    header = {"symbol": code.symbol, "needs_numba": code.needs_numba}
    body = json.dumps(header).encode() + code.data
    return header | {"digest": hashlib.sha256(body).hexdigest()}


class Compiled:
    """A loaded entry point: a function for Python, an address for compiled code."""

    def __init__(self, code: Code, signature: Signature) -> None:
        """Load it."""
        if code.needs_numba:
            from headway.jit.compiler import start_runtime

            start_runtime()
        self._engine = _load(code)
        self._environments = code.environments
        for name, environment in self._environments.items():
            variable = self._engine.get_global_value_address(name)
            ctypes.c_void_p.from_address(variable).value = id(environment)
        self.address: int = self._engine.get_function_address(code.symbol)
        self._returns = signature.returns
        (self._result,) = _C_TYPES.get(signature.returns, _C_VIEW)
        self._kinds = signature.arguments
        arguments: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
        for kind in signature.arguments:
            arguments += _C_TYPES.get(kind, _C_ARRAY if isinstance(kind, np.dtype) else _C_VIEW)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(self.address)

    def __call__(self, *values: Any) -> Any:
        """Call it, without Python's global lock.

        Raises:
            Exception: What the function raised.
        """
        result, error = self._result(), ctypes.c_void_p()
        arguments: list[Any] = [ctypes.byref(result), ctypes.byref(error)]
        for kind, value in zip(self._kinds, values, strict=True):
            if isinstance(kind, np.dtype):
                # Numba's array: owner, object, items, their size, address, shape, strides.
                size = kind.itemsize
                count = len(value)
                arguments += [None, None, count, size, value.ctypes.data, count, size]
            elif kind in _C_TYPES:
                arguments.append(value)
            else:
                arguments.append(value.address)
        status = self._call(*arguments)
        if status >= _RAISED:
            from headway.jit.compiler import raised

            raise raised(error.value)
        return None if self._returns is None else result.value


_C_TYPES: dict[Any, list[Any]] = {
    int: [ctypes.c_int64],
    float: [ctypes.c_double],
    bool: [ctypes.c_bool],
}
_C_VIEW = [ctypes.c_void_p]
_C_ARRAY = [
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
    *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
]


def kind_of(value: Any) -> Any:
    """Return what a signature says for a value."""
    if isinstance(value, View):
        return type(value)
    return value.dtype if isinstance(value, np.ndarray) else type(value)


def _load(code: Code) -> Any:
    """Return an engine of LLVM's that holds some code."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code.data))
    engine.finalize_object()
    return engine
