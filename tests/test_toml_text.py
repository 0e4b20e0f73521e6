"""Written TOML reads back unchanged."""

from __future__ import annotations

import math
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from headway import toml_text as toml

# Halves of surrogate pairs are no text in TOML.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.one_of(
    TEXT, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans()
)
TABLES = st.dictionaries(TEXT, st.one_of(SCALARS, st.lists(SCALARS)), max_size=5)


@given(TEXT, TABLES)
def test_a_table_reads_back_as_it_was_written(name: str, values: dict[str, toml.Value]) -> None:
    assert tomllib.loads(toml.table(name, values)) == {name: values}


@given(TEXT, st.lists(TABLES, min_size=1, max_size=3))
def test_an_array_of_tables_reads_back_as_it_was_written(
    name: str, members: list[dict[str, toml.Value]]
) -> None:
    assert tomllib.loads(toml.tables(name, members)) == {name: members}
    assert tomllib.loads(toml.tables(name, members, inside=name)) == {name: {name: members}}


@given(st.text(st.characters()))
def test_any_text_gives_valid_toml(text: str) -> None:
    written = toml.table("t", {"k": text}).encode()
    assert isinstance(tomllib.loads(written.decode())["t"]["k"], str)


def test_nan_and_infinity_are_written() -> None:
    assert math.isnan(tomllib.loads(toml.table("t", {"k": math.nan}))["t"]["k"])


def test_a_boolean_is_not_written_as_a_number() -> None:
    assert toml.table("t", {"yes": True, "one": 1, "whole": 2.0}) == (
        "[t]\nyes = true\none = 1\nwhole = 2.0\n"
    )
