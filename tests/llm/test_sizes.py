"""FLOPs, against the formulas of the literature."""

from __future__ import annotations

import pytest

from headway.llm.config_file import config_from
from headway.llm.sizes import forward_flops_per_token, iteration_flops


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-22b", "megatron-1t"])
def test_an_iteration_has_the_flops_of_the_published_formulas(name: str) -> None:
    """Korthikanti et al. 2022, Eq. 7 (model) and Eq. 8 (with selective recomputation)."""
    config, sequences = config_from(name), 512
    hidden, sequence = config.hidden, config.sequence
    base = 72 * sequences * config.layers * sequence * hidden**2
    logits = config.vocabulary / (12 * hidden * config.layers)
    model = base * (1 + sequence / (6 * hidden) + logits)
    hardware = base * (1 + sequence / (4.5 * hidden) + logits)
    assert iteration_flops(config, sequences) == pytest.approx(model)
    assert iteration_flops(config, sequences, "selective") == pytest.approx(hardware)


def test_full_recomputation_has_the_flops_of_the_published_formula() -> None:
    """Narayanan et al. 2021, Eq. 3: 96 B s l h^2 (1 + s / (6 h) + V / (16 l h))."""
    config = config_from("gpt3-175b")
    hidden, layers = config.hidden, config.layers
    factor = 1 + 2048 / (6 * hidden) + config.vocabulary / (16 * layers * hidden)
    expected = 96 * 1536 * 2048 * layers * hidden**2 * factor
    assert iteration_flops(config, 1536, "full") == pytest.approx(expected)


def test_a_token_of_a_mixture_passes_only_its_experts() -> None:
    config = config_from("mixtral-8x7b")
    # Two FLOPs for each parameter that a token uses, less embedding and norms; and attention.
    assert forward_flops_per_token(config, 1) / 1e9 == pytest.approx(2 * 12.88, rel=0.02)
