"""The public names are the truth, typed, documented and light to import."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import headway


def test_all_lists_exactly_the_names_that_have_a_home() -> None:
    assert sorted(headway.__all__) == list(headway.__all__) == sorted(headway._HOMES)
    assert dir(headway) == sorted([*headway.__all__, "__version__"])


def test_the_names_for_type_checkers_are_the_same() -> None:
    tree = ast.parse(Path(headway.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {name: f"headway.{home}" for name, home in headway._HOMES.items()}


@pytest.mark.parametrize("name", headway.__all__)
def test_every_public_name_is_documented_and_typed(name: str) -> None:
    thing = getattr(headway, name)
    assert inspect.getdoc(thing)
    for function in [thing, *vars(thing).values()] if inspect.isclass(thing) else [thing]:
        if inspect.isfunction(function) and not function.__name__.startswith("_"):
            signature = inspect.signature(function)
            assert signature.return_annotation is not inspect.Signature.empty, function
            for parameter in signature.parameters.values():
                assert parameter.name == "self" or parameter.annotation is not parameter.empty


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(headway.__file__).with_name("py.typed").is_file()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        headway.nothing  # noqa: B018


def test_the_three_lines_of_the_documentation_work() -> None:
    workload = headway.generate_workload("paper", seed=0)
    result = headway.simulate(workload, "16x4", policy="lwf:1+ada-srsf")
    assert round(result.summary.average_jct_s, 2) == 2693.86


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import headway", ["msgspec", "numpy", "numba", "polars", "rich", "typer"]),
        (
            "import headway; headway.NetworkModel; headway.Job",
            ["msgspec", "numba", "polars", "rich"],
        ),
        ("import headway.cli.main", ["headway.cli.simulate", "numpy"]),
        (
            "from typer.main import get_command; from headway.cli.main import app\n"
            "list(get_command(app).commands.values())",
            ["matplotlib", "msgspec", "numba", "polars"],
        ),
        (
            "from typer.main import get_command; from headway.cli.main import app\n"
            "get_command(app).commands['simulate']",
            ["headway.cli.compare", "headway.cli.live", "headway.cli.sweep"],
        ),
        (
            "import headway; headway.simulate",
            ["msgspec", "polars", "rich", "typer", "torch", "ray"],
        ),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(statement: str, heavy: list[str]) -> None:
    code = f"{statement}\nimport sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
