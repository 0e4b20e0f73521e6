"""No module uses the private names of another: what others need is public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import headway

PACKAGE = Path(headway.__file__).parent
EXTENDS_NUMBA = PACKAGE / "jit" / "compiler.py"
"""The one module that works with the insides of another library; they are Numba's and LLVM's."""
MODULES = sorted({*PACKAGE.rglob("*.py")} - {EXTENDS_NUMBA})
CONVENTIONAL = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names of the standard library: named tuples, `os._exit`."""
CONVENTIONAL |= {
    *("_execution_engine", "_get_backend", "_indices", "_values"),
    *("_join_config", "_divide_by_initial_world_size"),
}
"""Names of PyTorch without public ones: the autograd engine, the timeout of a process group, the
parts of a sparse tensor that is not coalesced, and how DDP divides while ranks join."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in CONVENTIONAL


def defined(tree: ast.AST) -> set[str]:
    """Return the private names that a module defines: globals, methods, attributes, slots."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # an entry of __slots__
    return found


def borrowed(source: str) -> Iterator[str]:
    """Yield each private name that a module uses and does not define."""
    tree = ast.parse(source)
    own = defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headway"):
            for alias in node.names:
                if is_private(alias.name):
                    yield f"line {node.lineno}: from {node.module} import {alias.name}"
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield f"line {node.lineno}: .{node.attr}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_uses_only_its_own_private_names(path: Path) -> None:
    assert list(borrowed(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from headway.jit import _njit",
        "import headway.jit\nheadway.jit._njit(1)",
        "class A(Base):\n    def f(self):\n        return self._of_base",
    ],
)
def test_the_check_finds_borrowed_names(source: str) -> None:
    assert len(list(borrowed(source))) == 1


def test_own_private_names_are_allowed() -> None:
    source = "class A:\n    _x = 1\n    def f(self, other):\n        return other._x"
    assert list(borrowed(source)) == []
