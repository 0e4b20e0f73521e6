"""Layers of a model, cut into stages."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.domain.errors import InputError
from headway.graphs import Layer, split_layers


def stage_times(times: list[int], stages: int) -> list[int]:
    found = split_layers([Layer(time, 1) for time in times], stages)
    assert [layer.forward_ns for stage in found for layer in stage] == times
    return [sum(layer.forward_ns + layer.backward_ns for layer in stage) for stage in found]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=7), st.data())
@settings(max_examples=50, deadline=None)
def test_no_other_cut_is_more_even(times: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(times)))
    squares = sum(time**2 for time in stage_times(times, stages))
    for cuts in combinations(range(1, len(times)), stages - 1):
        parts = [times[begin:end] for begin, end in pairwise([0, *cuts, len(times)])]
        assert squares <= sum((sum(part) + len(part)) ** 2 for part in parts)


def test_equal_layers_are_spread_evenly() -> None:
    assert sorted(stage_times([9] * 14, 4)) == [30, 30, 40, 40]


@pytest.mark.parametrize(
    ("layers", "stages", "problem"),
    [
        (3, 4, "stages: must be at most 3, one for each layer, not 4."),
        (3, 0, "stages: must be at least 1, not 0."),
        (0, 1, "layers: must not be empty; give at least one of layers."),
        (4097, 1, "layers: must be at most 4,096 to be cut into stages, not 4,097."),
    ],
)
def test_what_cannot_be_cut_is_refused(layers: int, stages: int, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        split_layers([Layer(1, 1)] * layers, stages)
    assert str(caught.value) == problem
