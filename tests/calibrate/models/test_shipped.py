"""The shipped models are those that were published."""

from __future__ import annotations

import pytest
import torch

from headway.calibrate.models.definitions import ALL, Definition, find_definitions
from headway.calibrate.models.shipped import SHIPPED
from headway.domain.models import MODELS

pytestmark = pytest.mark.torch

PARAMETERS = {
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "inception-v3": 27_161_264,
    "lstm-ptb": 66_034_000,
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "bert-large": 335_174_458,
    "vit-b": 86_567_656,
    "llama-1b": 1_235_814_400,
}
"""Published, or counted from the published shapes; the LSTM's has cuDNN's two biases a layer."""


def on_paper(name: str) -> Definition:
    (definition,) = find_definitions([name])
    return definition


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_has_the_published_number_of_parameters(name: str) -> None:
    example = on_paper(name).example(2, "meta")
    assert sum(p.numel() for p in example.model.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_trains_every_parameter(name: str) -> None:
    example = on_paper(name).example(2, "meta")
    loss = example.loss()
    assert loss.shape == torch.Size([])
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in example.model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_the_papers_models_have_about_the_papers_gradients(name: str) -> None:
    assert PARAMETERS[name] * 4 == pytest.approx(MODELS[name].gradient_bytes, rel=0.02)
    assert SHIPPED[name].batch_sizes[0] == MODELS[name].batch_size


def test_all_means_every_shipped_model() -> None:
    assert [definition.name for definition in find_definitions([ALL])] == list(SHIPPED)
