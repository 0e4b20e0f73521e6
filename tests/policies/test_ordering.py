"""Selection puts the items of the least keys first, as a sort would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.policies import Integers
from headway.policies.ordering import (
    bring_forward,
    put_least_first,
    sort_by_key,
    stable_sort,
)


def shuffled(data: st.DataObject, longest: int) -> tuple[Integers, Integers]:
    """Draw distinct items in any order, and keys that often tie."""
    keys = data.draw(st.lists(st.integers(-3, 3), min_size=1, max_size=longest))
    items = data.draw(st.permutations(range(len(keys))))
    kept = data.draw(st.integers(0, len(keys)))
    return np.array(items[:kept], np.int64), np.array(keys, np.int64)


@given(data=st.data())
def test_the_items_of_the_least_keys_come_first_in_the_order_that_they_had(
    data: st.DataObject,
) -> None:
    items, keys = shuffled(data, 60)
    before = items.tolist()
    count = data.draw(st.integers(0, len(items) + 1))
    put_least_first(items, keys, count)
    least = set(sorted(before, key=lambda item: (keys[item], item))[:count])
    assert items.tolist()[:count] == [item for item in before if item in least]
    assert sorted(items.tolist()) == sorted(before)


@pytest.mark.parametrize("keys", [range(300), range(300, 0, -1), [0] * 300])
@pytest.mark.parametrize("count", [1, 2, 17, 299])
def test_selection_agrees_with_a_stable_sort(keys: list[int], count: int) -> None:
    chosen, in_order = np.arange(300), np.arange(300)
    put_least_first(chosen, np.array(keys), count)
    stable_sort(in_order, np.array(keys))
    assert chosen[:count].tolist() == sorted(in_order[:count].tolist())


@settings(max_examples=100)
@given(data=st.data())
def test_items_are_sorted_by_key_and_then_by_number(data: st.DataObject) -> None:
    """With more items than are sorted by insertion, and with fewer."""
    items, keys = shuffled(data, 60)
    expected = sorted(items.tolist(), key=lambda item: (keys[item], item))
    sort_by_key(items, keys)
    assert items.tolist() == expected


@pytest.mark.parametrize("to", range(5))
def test_what_is_brought_forward_keeps_its_order(to: int) -> None:
    items = np.arange(10)
    bring_forward(items, 4, 3, to)
    assert items[to : to + 3].tolist() == [4, 5, 6]
    assert sorted(items.tolist()) == list(range(10))
    assert items[7:].tolist() == [7, 8, 9]
