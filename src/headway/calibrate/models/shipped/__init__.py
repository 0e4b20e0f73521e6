"""The models that come with Headway, written in plain PyTorch from their published architectures.

Each function takes a batch size and returns a model that computes its own loss, and a batch of
random data. The names are those of profiles and workloads.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shipped:
    """Where a definition lives, and the batch sizes to measure unless others are asked for."""

    module: str
    function: str
    batch_sizes: tuple[int, ...]


# The first batch size of the paper's models is the paper's.
SHIPPED = {
    "vgg16": Shipped("convolutional", "vgg16", (16, 64, 128)),
    "resnet50": Shipped("convolutional", "resnet50", (16, 64, 128)),
    "inception-v3": Shipped("inception", "inception_v3", (16, 64, 128)),
    "lstm-ptb": Shipped("recurrent", "lstm_ptb", (64, 256)),
    "gpt2-small": Shipped("transformers", "gpt2_small", (8, 32)),
    "gpt2-medium": Shipped("transformers", "gpt2_medium", (4, 16)),
    "bert-large": Shipped("transformers", "bert_large", (4, 16)),
    "vit-b": Shipped("transformers", "vit_b", (32, 128)),
    "llama-1b": Shipped("llama", "llama_1b", (1, 4)),
}
"""The shipped definitions by name."""
