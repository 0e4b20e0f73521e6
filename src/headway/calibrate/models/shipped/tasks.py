"""What models are trained to do: the loss around a network, and random data."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 1000


class Classifier(nn.Module):
    """A network of images whose output is a score for each class."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy."""
        return functional.cross_entropy(self.network(images), labels)


class TokenPredictor(nn.Module):
    """A network of tokens whose output is a score for each word at each position."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy over all positions."""
        scores = self.network(tokens)
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def images(batch_size: int, side: int) -> tuple[Tensor, Tensor]:
    """Return square images of three colours, and a label for each."""
    return torch.randn(batch_size, 3, side, side), torch.randint(CLASSES, (batch_size,))


def tokens(batch_size: int, length: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Return sequences of tokens, and a target for each position."""
    shape = (batch_size, length)
    return torch.randint(vocabulary, shape), torch.randint(vocabulary, shape)
