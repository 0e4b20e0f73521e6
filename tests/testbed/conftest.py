"""Testbeds for tests: unique names, removed whatever happens."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from headway import testbed as testbeds

_COUNTER = itertools.count(1)


@pytest.fixture
def new_name() -> Iterator[Callable[[], str]]:
    """Return a function that returns unique names; their testbeds are removed at the end."""
    given: list[str] = []

    def name() -> str:
        given.append(f"t{os.getpid()}-{next(_COUNTER)}")
        return given[-1]

    yield name
    for one in given:
        testbeds.down(one)


@pytest.fixture
def name(new_name: Callable[[], str]) -> str:
    """Return a unique name."""
    return new_name()


@pytest.fixture(scope="module")
def plain() -> Iterator[testbeds.Testbed]:
    """Return a testbed of three hosts at 100 Mbit/s, shared by the tests of a module."""
    testbed = testbeds.Testbed(f"t{os.getpid()}-{next(_COUNTER)}", hosts=3, rate_mbit=100)
    assert testbeds.up(testbed)
    yield testbed
    testbeds.down(testbed.name)
