"""The engine does what the model's formula says, in the paper's Fig. 2 and in its introduction."""

from __future__ import annotations

import pytest

from headway.domain.models import MODELS
from headway.experiments.reproduction.contention import (
    MESSAGE_BYTES,
    concurrent_all_reduce_s,
    introduction_example,
)
from headway.network.contention import NETWORKS

NETWORK = NETWORKS["10gbe"]


@pytest.mark.parametrize("k", range(1, 9))
def test_concurrent_all_reduces_take_what_the_formula_says(k: int) -> None:
    assert concurrent_all_reduce_s(MESSAGE_BYTES, k, NETWORK) == (
        NETWORK.all_reduce_ns(MESSAGE_BYTES, k) / 1e9
    )


@pytest.mark.parametrize("model", MODELS)
def test_the_introductions_example_follows_from_the_model(model: str) -> None:
    example = introduction_example(model, NETWORK)
    profile = MODELS[model]
    compute_ns = profile.forward_ns + profile.backward_ns
    alone_ns = compute_ns + NETWORK.all_reduce_ns(profile.gradient_bytes)
    together_ns = compute_ns + NETWORK.all_reduce_ns(profile.gradient_bytes, 4)
    assert example.alone_s == pytest.approx(example.iterations * alone_ns / 1e9)
    assert abs(example.alone_s - 295) <= alone_ns / 2e9
    assert example.together_s == pytest.approx(example.iterations * together_ns / 1e9)
    assert example.alone_s < example.together_srsf_1_s < example.together_s
    assert example.alone_s < example.together_ada_srsf_s <= example.together_s
