"""Every key and value of a TOML document is found at its line and column."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.configuration.positions import KeyPath, Positions

TEXT = '''\
# [not] a = table
title = "x = 1 # no comment"   # a comment with [brackets]
dotted.key.here = 1
"quoted key" . 'literal' = 2
text = """
[cluster]
inside = "a string"
quoted = \\"""
""\"""
literal = \'\'\'
group = [1]\'\'\'
when = 1979-05-27 07:32:00
lists = [ # a comment, with a comma
  [1, 2], "b,]", # another
  { a = 1, "b" = [3] },
]

[cluster]
  servers = 4
racks = { servers_per_rack = 2, deep.er = "x" }

[[cluster.group]]
servers = 1

[[cluster.group]]
servers = 2
[[cluster.group.part]]
n = 1
[[cluster.group.part]]
n = 2
[cluster.group.more]
m = 3
["gpu"."own type"]
tflops = inf
[after.before]
[after]
k = 1
'''

EXPECTED = {
    ("title",): (2, 1),
    ("dotted",): (3, 1),
    ("dotted", "key", "here"): (3, 12),
    ("quoted key",): (4, 2),
    ("quoted key", "literal"): (4, 17),
    ("text",): (5, 1),
    ("literal",): (10, 1),
    ("when",): (12, 1),
    ("lists", 0): (14, 3),
    ("lists", 0, 1): (14, 7),
    ("lists", 1): (14, 12),
    ("lists", 2): (15, 3),
    ("lists", 2, "a"): (15, 5),
    ("lists", 2, "b"): (15, 13),
    ("lists", 2, "b", 0): (15, 19),
    ("cluster",): (18, 2),
    ("cluster", "servers"): (19, 3),
    ("cluster", "racks", "servers_per_rack"): (20, 11),
    ("cluster", "racks", "deep", "er"): (20, 38),
    ("cluster", "group"): (22, 11),
    ("cluster", "group", 0): (22, 11),
    ("cluster", "group", 0, "servers"): (23, 1),
    ("cluster", "group", 1): (25, 11),
    ("cluster", "group", 1, "servers"): (26, 1),
    ("cluster", "group", 1, "part", 0, "n"): (28, 1),
    ("cluster", "group", 1, "part", 1): (29, 17),
    ("cluster", "group", 1, "part", 1, "n"): (30, 1),
    ("cluster", "group", 1, "more", "m"): (32, 1),
    ("gpu",): (33, 3),
    ("gpu", "own type"): (33, 9),
    ("gpu", "own type", "tflops"): (34, 1),
    ("after", "before"): (35, 8),
    ("after",): (36, 2),
    ("after", "k"): (37, 1),
}


def test_the_sample_is_toml_with_every_path_that_is_expected() -> None:
    content = tomllib.loads(TEXT)
    for path in EXPECTED:
        part: Any = content
        for step in path:
            part = part[step]


@pytest.mark.parametrize("path", EXPECTED, ids=str)
def test_keys_and_items_are_found(path: KeyPath) -> None:
    assert Positions(TEXT).of(path) == EXPECTED[path]


@pytest.mark.parametrize(
    ("path", "position"),
    [
        (("title",), (2, 10)),
        (("text",), (5, 11)),
        (("when",), (12, 8)),
        (("lists",), (13, 9)),
        (("lists", 1), (14, 12)),
        (("cluster", "servers"), (19, 13)),
        (("cluster",), (18, 2)),
    ],
)
def test_values_begin_after_their_quotes(path: KeyPath, position: tuple[int, int]) -> None:
    assert Positions(TEXT).of_value(path) == position


def test_a_missing_key_is_found_at_the_table_around_it() -> None:
    positions = Positions(TEXT)
    assert positions.of(("cluster", "group", 1, "gpus_per_server")) == (25, 11)
    assert positions.of(("nothing", "at", "all")) is None
    assert Positions("").of(("key",)) is None


SCALARS = ["1", "-2.5e3", "true", "nan", '"a"', "'b'", '"""x\n\\"" y"""""', "1979-05-27 07:32:00Z"]
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[ {', '.join(items)},]" if items else "[]"),
        st.lists(inner, max_size=3).map(
            lambda items: f"{{{', '.join(f'k{n} = {item}' for n, item in enumerate(items))}}}"
        ),
    ),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=5))
def test_every_value_of_any_document_is_found_where_it_is_written(values: list[str]) -> None:
    text = "\n".join(f"key{number} = {value}" for number, value in enumerate(values))
    content = tomllib.loads(text)
    positions = Positions(text)
    offsets = [0]
    for line in text.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for number, value in enumerate(values):
        found = positions.of_value((f"key{number}",))
        assert found is not None
        at = offsets[found.line - 1] + found.column - 1
        assert text.startswith(value.lstrip("\"'"), at)
        for path in paths(content[f"key{number}"]):
            assert positions.of((f"key{number}", *path)) is not None


def paths(value: object) -> list[KeyPath]:
    """Return the paths of all parts of a value."""
    parts: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    return [(step, *rest) for step, part in parts for rest in [(), *paths(part)]]
