"""The public names of `headway.llm`."""

from __future__ import annotations

import inspect

import pytest

import headway.llm


def test_all_lists_exactly_the_names_that_have_a_home() -> None:
    assert sorted(headway.llm.__all__) == headway.llm.__all__ == sorted(headway.llm._HOMES)


@pytest.mark.parametrize("name", headway.llm.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(headway.llm, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        headway.llm.nothing  # noqa: B018
