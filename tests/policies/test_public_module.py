"""What policy authors may import, and what the shipped policies do import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headway.policies
from builders import EXAMPLES
from headway.domain import records
from headway.jit.views import fields_of

PACKAGE = Path(headway.policies.__file__).parent
POLICIES = sorted(
    path
    for kind in ("placement", "priority", "admission")
    for path in (PACKAGE / kind).glob("*.py")
    if path.name != "__init__.py"
)


def imports(path: Path) -> set[str]:
    """Return the modules that a file imports from."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", [*POLICIES, EXAMPLES / "my_policies.py"], ids=lambda p: p.name)
def test_a_policy_imports_nothing_of_headway_but_the_public_module(path: Path) -> None:
    own = {module for module in imports(path) if module.partition(".")[0] == "headway"}
    assert own == {"headway.policies"}


def test_every_public_name_has_a_home_and_is_explained() -> None:
    assert sorted(headway.policies.__all__) == sorted(headway.policies._HOMES)
    text = headway.policies.__doc__ or ""
    for name in headway.policies.__all__:
        assert getattr(headway.policies, name) is not None
        assert f"`{name}`" in text


def test_the_names_for_type_checkers_are_the_same() -> None:
    tree = ast.parse(Path(headway.policies.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {name: f"headway.{home}" for name, home in headway.policies._HOMES.items()}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        headway.policies.nothing  # noqa: B018


def test_the_module_itself_is_light_to_import() -> None:
    code = "import headway.policies, sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_view_has_no_field_that_is_the_engines_own() -> None:
    """The engine keeps these in arrays that policies do not get."""
    private = {"group", "ready", "listed", "stage", "touched", "asked", "rated", "previous"}
    for kind in fields_of(records.ClusterView).values():
        if isinstance(kind, np.dtype):
            assert not private & set(kind.names or ())
