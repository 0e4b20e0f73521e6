"""Errors of typed tables say what is wrong, where, and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.configuration.conversion import Number, Text, TomlTable
from headway.configuration.document import Document
from headway.domain.errors import InputError


class Inner(TomlTable):
    REFUSED: ClassVar[dict[str, str]] = {"size": "is now called 'length'."}

    length: Annotated[int, msgspec.Meta(ge=1, le=2000)]
    name: Text = "x"


class File(TomlTable):
    kind: Literal["alpha", "beta"] = "alpha"
    ratio: Number = 1
    flag: bool = False
    names: list[str] | None = None
    shares: dict[int, float] | None = None
    pair: Annotated[list[int], msgspec.Meta(min_length=2, description="[LOW, HIGH]")] | None = None
    inner: Inner | None = None
    many: Annotated[list[Inner], msgspec.Meta(min_length=1)] | None = None


CASES = {
    "kind = 'alfa'": "line 1, column 1 (kind): unknown kind 'alfa'. Did you mean 'alpha'?",
    "kind = 3": "line 1, column 1 (kind): unknown kind 3. Known: alpha, beta.",
    "ratio = 'x'": "line 1, column 1 (ratio): must be a number, not 'x'.",
    "ratio = true": "line 1, column 1 (ratio): must be a number, not True.",
    "flag = 0": "line 1, column 1 (flag): must be true or false, not 0.",
    "names = [\n 'a',\n 2]": "line 3, column 2 (names): must be a string, not 2.",
    "names = 2": "line 1, column 1 (names): must be a list, not 2.",
    "pair = [1]": "line 1, column 1 (pair): must be [LOW, HIGH], not [1].",
    "inner = 2": "line 1, column 1 (inner): must be a table [inner], not 2.",
    "inner = {}": "line 1, column 1: 'length' is missing.",
    "inner.length = 0": "line 1, column 7 (length): must be at least 1, not 0.",
    "inner = { length = 2001 }": "line 1, column 11 (length): must be at most 2,000, not 2001.",
    "[inner]\nlength = 1.0": "line 2, column 1 (length): must be a whole number, not 1.0.",
    "[inner]\nlength = 1\nname = ' '": "line 3, column 1 (name): must be a non-empty string, not ",
    "[inner]\nlenght = 1": "line 2, column 1 (lenght): unknown key. Did you mean 'length'?",
    "[inner]\nsize = 1": "line 2, column 1 (size): is now called 'length'.",
    "[iner]": "line 1, column 2 (iner): unknown table. Did you mean 'inner'?",
    "many = []": "line 1, column 1 (many): must be tables [[many]], not [].",
    "[[many]]\nlength = 1\n[[many]]": "line 3, column 3: 'length' is missing.",
    "[[many]]\nlength = 1\n[[many]]\n'length' = 'x'": "line 4, column 2 (length): must be a whole",
}


@pytest.mark.parametrize("text", CASES)
def test_an_error_names_its_line_and_column(text: str, tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        Document.read(str(path)).convert(File)
    assert str(caught.value).startswith(f"{path}, {CASES[text]}")


def test_a_mapping_from_python_has_fields_but_no_lines() -> None:
    with pytest.raises(InputError) as caught:
        Document({"inner": {"length": 0}}).convert(File)
    assert str(caught.value) == "length: must be at least 1, not 0."


@pytest.mark.parametrize("key", ["x - at `$.kind`", "`", "a.b", "", "[0]", "x` - at `$.y[...]"])
def test_a_key_that_looks_like_a_path_is_refused(key: str) -> None:
    with pytest.raises(InputError):
        Document({key: 1}).convert(File)


@given(st.text(), st.text())
def test_any_unknown_key_is_refused(outer: str, inner: str) -> None:
    """Also where it imitates the messages of the library."""
    for content in ({f"{outer} - at `$.{inner}`": 1}, {"inner": {"length": 1, f"?{outer}": 1}}):
        with pytest.raises(InputError):
            Document(content).convert(File)
