"""Models measured layer by layer, with a clock that layers themselves move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headway.calibrate.models.definitions import find_definitions
from headway.calibrate.models.devices import Peak, Processor
from headway.calibrate.models.layers import LayerWatch, layer_modules
from headway.calibrate.models.shipped import SHIPPED
from headway.domain.errors import InputError
from headway.domain.layers import Layer

pytestmark = pytest.mark.torch


class Clock(Processor):
    """A device whose time only passes when something says so."""

    now = 0

    def mark(self) -> int:
        return self.now

    @contextmanager
    def watch(self, held: Any) -> Iterator[Peak]:
        yield Peak()


class _Takes(torch.autograd.Function):
    """Passes its input on, and takes time in both passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: Clock, forward_ns: int, backward_ns: int) -> Tensor:
        ctx.clock, ctx.backward_ns = clock, backward_ns
        clock.now += forward_ns
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.clock.now += ctx.backward_ns
        return gradients[0], None, None, None


class Takes(nn.Module):
    """A layer of known times, with a parameter or without."""

    def __init__(self, clock: Clock, forward_ns: int, backward_ns: int, size: int = 1) -> None:
        super().__init__()
        self.clock, self.times = clock, (forward_ns, backward_ns)
        self.weight = nn.Parameter(torch.ones(size)) if size else None

    def forward(self, x: Tensor) -> Tensor:
        if self.weight is not None:
            x = x * self.weight.sum()
        taken: Tensor = _Takes.apply(x, self.clock, *self.times)  # type: ignore[no-untyped-call]
        return taken


def measured(model: nn.Module, clock: Clock, x: Tensor, passes: int = 3) -> list[Layer]:
    with LayerWatch(model, clock) as watch:
        for _ in range(passes):
            model.zero_grad(set_to_none=True)
            start = clock.mark()
            loss = model(x).sum()
            clock.now += 5
            middle = clock.mark()
            clock.now += 7
            loss.backward()
            watch.take(start, middle, clock.mark())
        return watch.layers()


def times(layers: list[Layer]) -> list[tuple[int, int]]:
    return [(layer.forward_ns, layer.backward_ns) for layer in layers]


def test_each_layer_has_its_own_times_and_the_last_one_those_of_the_loss() -> None:
    clock = Clock()
    model = nn.Sequential(Takes(clock, 10, 20), Takes(clock, 30, 40), Takes(clock, 50, 60))
    found = measured(model, clock, torch.ones(2, 8))
    assert times(found) == [(10, 20), (30, 40), (55, 67)]
    assert [layer.name for layer in found] == ["0 Takes", "1 Takes", "2 Takes"]
    assert [layer.activation_bytes for layer in found] == [64] * 3


def test_a_layer_without_parameters_is_part_of_the_one_before_it() -> None:
    clock = Clock()
    model = nn.Sequential(
        Takes(clock, 1, 2, size=0),
        Takes(clock, 10, 20),
        Takes(clock, 3, 4, size=0),
        Takes(clock, 30, 40, size=6),
    )
    found = measured(model, clock, torch.ones(2, 8))
    # Nothing before the first parameter has a backward pass; 1 ns is the least.
    assert times(found) == [(14, 25), (35, 47)]
    assert [layer.parameter_bytes for layer in found] == [4, 24]
    assert [layer.name for layer in found] == ["1 Takes", "3 Takes"]


def test_a_module_that_is_called_twice_is_two_layers_with_its_parameters_once() -> None:
    clock = Clock()
    shared = Takes(clock, 10, 20, size=3)
    found = measured(nn.Sequential(shared, Takes(clock, 1, 2), shared), clock, torch.ones(4))
    assert times(found) == [(10, 20), (1, 2), (15, 27)]
    assert [layer.parameter_bytes for layer in found] == [12, 4, 0]


class Tied(nn.Module):
    """An output layer that is the embedding, and parameters that belong to no module."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.positions = nn.Parameter(torch.zeros(3, 4))
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(10))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(x, self.words.weight, self.bias)


def test_every_parameter_counts_once_with_the_layer_whose_backward_pass_completes_it() -> None:
    found = measured(Tied(), Clock(), torch.zeros(3, dtype=torch.int64))
    assert [layer.name for layer in found] == [
        "words Embedding",
        "blocks.0 Sequential",
        "blocks.1 Sequential",
    ]
    # The positions are ready once the first block is done, before the embedding.
    assert [layer.parameter_bytes for layer in found] == [4 * 40, 4 * (20 + 12), 4 * (20 + 10)]


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.calls = 3

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[: self.calls]:
            x = layer(x)
        self.calls -= 1
        return x


def test_a_model_whose_layers_change_from_pass_to_pass_is_refused() -> None:
    with pytest.raises(InputError, match="the model calls different layers from pass to pass"):
        measured(Random(), Clock(), torch.ones(4))


def test_a_model_of_one_module_is_one_layer() -> None:
    (layer,) = measured(nn.Linear(4, 2), Clock(), torch.ones(4))
    assert (layer.name, layer.parameter_bytes) == ("Linear", 40)


LAYERS = {
    "vgg16": (16, "0 Conv2d", "38 Linear"),
    "resnet50": (19, "0 Conv2d", "22 Linear"),
    "inception-v3": (18, "trunk.0 Sequential", "auxiliary Sequential"),
    "lstm-ptb": (3, "embedding Embedding", "head Linear"),
    "gpt2-small": (14, "words Embedding", "norm LayerNorm"),
    "gpt2-medium": (26, "words Embedding", "norm LayerNorm"),
    "bert-large": (28, "segments Embedding", "head Sequential"),
    "vit-b": (15, "patches Conv2d", "head Linear"),
    "llama-1b": (18, "words Embedding", "norm RMSNorm"),
}
"""Number of layers, the first and the last."""


@pytest.mark.parametrize("name", SHIPPED)
def test_the_layers_of_a_shipped_model_are_its_blocks_and_what_is_around_them(name: str) -> None:
    (definition,) = find_definitions([name])
    example = definition.example(2, "meta")
    with LayerWatch(example.model, Clock()) as watch:
        for _ in range(2):
            example.model.zero_grad(set_to_none=True)
            example.loss().backward()  # type: ignore[no-untyped-call]
            watch.take(0, 0, 0)
        found = watch.layers()
    assert (len(found), found[0].name, found[-1].name) == LAYERS[name]
    assert sum(layer.parameter_bytes for layer in found) == 4 * sum(
        parameter.numel() for parameter in example.model.parameters()
    )


def test_blocks_are_found_behind_wrappers_and_are_not_taken_apart() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(2, 2)) for _ in range(4))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.ModuleList(Block() for _ in range(3))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.Sequential(nn.Embedding(2, 2), nn.LayerNorm(2))
            self.encoder = Encoder()

    wrapper = nn.Module()
    wrapper.inner = Model()
    assert [name for name, _ in layer_modules(wrapper)] == [
        "embeddings Sequential",
        "encoder.layer.0 Block",
        "encoder.layer.1 Block",
        "encoder.layer.2 Block",
    ]
