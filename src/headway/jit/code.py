"""Machine code: where it is kept between processes, and how Python calls it.

A file holds the code of one entry point behind a line of JSON with its name and a digest, so that a
file that is damaged, or another's, is noticed and compiled anew. Loading it takes LLVM's loader,
but not Numba, which takes longer to import than most simulations take to run.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from headway.jit.views import Signature, View

_MOST_BYTES = 2**26
"""Of a file of code; the engine's largest has less than a hundredth of it."""

_COMPILED_FOLDERS = ("jit", "domain", "network", "policies", "engine")
_COMPILED_FILES = ("results/timeline/compiled.py", "reports/perfetto_encoding.py")


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


def is_hashed(module: str) -> bool:
    """Whether the hash of the sources that all compiled code depends on includes a module."""
    package, _, name = module.partition(".")
    file = name.replace(".", "/") + ".py"
    inside = name.partition(".")[0] in _COMPILED_FOLDERS or file in _COMPILED_FILES
    return package == "headway" and inside


@cache
def _sources() -> str:
    return source_hash(*_COMPILED_FILES)


@cache
def cache_folder() -> Path:
    """Return the folder of the compiled code of exactly these sources."""
    if chosen := os.environ.get("HEADWAY_CACHE_DIR"):
        root = Path(chosen)
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
    for parent in (root, Path(tempfile.gettempdir()) / f"headway-{os.getuid()}"):
        folder = parent / _sources()
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
    key = "\0".join((_sources(), _machine(), name, *parts))
    digest = hashlib.sha256(key.encode()).hexdigest()
    return cache_folder() / f"{name}-{digest[:16]}.code"


class DamagedCodeError(Exception):
    """A file of code that is not what was written."""


def read_code(path: Path) -> Code | None:
    """Return the code of a file, or None if there is none.

    Raises:
        DamagedCodeError: It is not what was written.
    """
    try:
        head, _, data = _contents(path).partition(b"\n")
    except OSError:
        return None
    try:
        header = json.loads(head)
        code = Code(data, header["symbol"], header["needs_numba"])
        intact = header == _header(path, code)
    except (ValueError, TypeError, KeyError):
        intact = False
    if not intact:
        raise DamagedCodeError(path)
    return code


def _contents(path: Path) -> bytes:
    """Return what is in a file; nothing if it is a pipe or a device, or far too large."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        likely = stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES
        return file.read() if likely else b""


def write_code(path: Path, code: Code) -> None:
    """Write the code of an entry point, whole or not at all; a full disk is no error."""
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(_header(path, code)).encode() + b"\n" + code.data)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink()
            raise


def _header(path: Path, code: Code) -> dict[str, Any]:
    header = {"name": path.name, "symbol": code.symbol, "needs_numba": code.needs_numba}
    body = json.dumps(header).encode() + code.data
    return header | {"digest": hashlib.sha256(body).hexdigest()}


@contextlib.contextmanager
def breakable() -> Iterator[None]:
    """Let an interrupt break off what is done with LLVM.

    LLVM may have taken over an object of which llvmlite still believes that it must dispose, which
    would crash. So none is disposed of from then on.
    """
    try:
        yield
    except BaseException as error:
        # What an interrupt breaks off may be the import of llvmlite.
        llvmlite: Any = sys.modules.get("llvmlite.binding.ffi")
        if not isinstance(error, Exception) and hasattr(llvmlite, "ObjectRef"):
            llvmlite.ObjectRef.__del__ = lambda _: None
        raise


class Compiled(Protocol):
    """A loaded entry point: a function for Python, an address for compiled code.

    Python calls it without holding its global lock, and gets what the function raises.
    """

    address: int

    def __call__(self, *values: Any) -> Any:
        """Call it with what its signature says."""


def loaded(code: Code, signature: Signature) -> Compiled:
    """Load an entry point."""
    if code.needs_numba:
        from headway.jit.compiler import start_runtime

        start_runtime()
    engine = _engine(code.data)
    for name, environment in code.environments.items():
        variable = engine.get_global_value_address(name)
        ctypes.c_void_p.from_address(variable).value = id(environment)
    address = engine.get_function_address(code.symbol)
    function: Any = _caller(address, signature)
    function.address = address
    function.kept = (engine, code.environments)
    return cast(Compiled, function)


_SCALARS: dict[Any, Any] = {int: ctypes.c_int64, float: ctypes.c_double, bool: ctypes.c_bool}


class _Slots:
    """Where a call leaves its result and its error."""

    def __init__(self, kind: Any) -> None:
        self.result, self.error = kind(), ctypes.c_void_p()
        self.addresses = ctypes.addressof(self.result), ctypes.addressof(self.error)


def _caller(address: int, signature: Signature) -> Callable[..., Any]:
    """Return a Python function that calls the code at an address.

    It is written for the signature, as a call from the live scheduler takes a microsecond or so.
    """
    kinds: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
    names, values = [], []
    for i, kind in enumerate(signature.arguments):
        names.append(f"v{i}")
        if isinstance(kind, np.dtype):
            # Numba's array: owner, object, items, their size, address, shape, strides.
            size = kind.itemsize
            values.append(f"None, None, len(v{i}), {size}, v{i}.ctypes.data, len(v{i}), {size}")
            kinds += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
            kinds += [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        elif kind in _SCALARS:
            values.append(f"v{i}")
            kinds.append(_SCALARS[kind])
        else:
            values.append(f"v{i}.address")
            kinds.append(ctypes.c_void_p)
    free: list[_Slots] = []
    known = {
        "code": ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(address),
        "free": free,
        "new": lambda: _Slots(_SCALARS.get(signature.returns, ctypes.c_int64)),
        "failure": _failure,
    }
    result = "None" if signature.returns is None else "slots.result.value"
    text = f"""
def call({", ".join(names)}):
    slots = free.pop() if free else new()
    if code(*slots.addresses, {", ".join(values)}) > 0:
        raise failure(slots.error.value)
    result = {result}
    free.append(slots)
    return result
"""
    exec(text, known)
    return cast(Callable[..., Any], known["call"])


def _failure(address: int | None) -> Exception:
    from headway.jit.compiler import raised

    return raised(address)


def kind_of(value: Any) -> Any:
    """Return what a signature says for a value."""
    if isinstance(value, View):
        return type(value)
    return value.dtype if isinstance(value, np.ndarray) else type(value)


def _engine(data: bytes) -> Any:
    """Return an engine of LLVM's that holds some code, for as long as it lives itself."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return engine
