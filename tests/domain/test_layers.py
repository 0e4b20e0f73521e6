"""Layers of a model, scaled to totals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.errors import InputError
from headway.domain.layers import Layer, equal_layers, fitted, merged

layer_lists = st.lists(
    st.builds(Layer, st.integers(1, 10**9), st.integers(1, 10**9), st.integers(0, 10**9)),
    min_size=1,
    max_size=20,
)


def totals(layers: list[Layer] | tuple[Layer, ...]) -> tuple[int, int, int]:
    whole = merged(layers)
    return whole.forward_ns, whole.backward_ns, whole.parameter_bytes


@given(layer_lists, st.integers(20, 10**12), st.integers(20, 10**12), st.integers(0, 10**12))
def test_fitted_layers_add_up_to_the_totals_and_stay_in_proportion(
    layers: list[Layer], forward_ns: int, backward_ns: int, parameter_bytes: int
) -> None:
    found = fitted(layers, forward_ns, backward_ns, parameter_bytes)
    assert totals(found) == (forward_ns, backward_ns, parameter_bytes)
    scale = forward_ns / totals(layers)[0]
    for before, after in zip(layers, found, strict=True):
        # Within 1 ns, or with layers of less than 1 ns, which get one each.
        assert after.forward_ns == pytest.approx(before.forward_ns * scale, rel=1e-9, abs=21)
        assert after.forward_ns >= 1


@given(layer_lists)
def test_layers_that_fit_stay_as_they_are(layers: list[Layer]) -> None:
    assert fitted(layers, *totals(layers)) == tuple(layers)


def test_sizes_of_layers_without_parameters_are_spread_equally() -> None:
    found = fitted([Layer(1, 1), Layer(1, 1)], 2, 2, 7)
    assert [layer.parameter_bytes for layer in found] == [4, 3]


def test_equal_layers_differ_by_rounding_alone() -> None:
    found = equal_layers(3, forward_ns=100, backward_ns=200, parameter_bytes=10)
    assert totals(found) == (100, 200, 10)
    assert {layer.forward_ns for layer in found} == {33, 34}


def test_a_total_needs_a_nanosecond_for_each_layer() -> None:
    with pytest.raises(InputError) as caught:
        fitted([Layer(1, 1)] * 3, 2, 3, 0)
    assert str(caught.value) == "forward_ns: must be at least 3 ns, 1 for each layer, not 2."


def test_merged_layers_pass_on_what_the_last_one_does() -> None:
    both = [Layer(1, 2, 3, 4, 5, "a"), Layer(10, 20, 30, 40, 50, "b")]
    assert merged(both) == Layer(11, 22, 33, 40, 55)
