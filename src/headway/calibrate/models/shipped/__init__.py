"""The models that come with Headway, written in plain PyTorch from their published architectures.

Each function takes a batch size and returns a model that computes its own loss, and a batch of
random data. The names are those of profiles and workloads.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shipped:
    """Where a definition lives; batch sizes and optimizer to measure unless others are asked for.

    The optimizer is the one that the model is usually trained with.
    """

    module: str
    function: str
    batch_sizes: tuple[int, ...]
    optimizer: str


# The first batch size of the paper's models is the paper's.
SHIPPED = {
    "vgg16": Shipped("convolutional", "vgg16", (16, 64, 128), "sgd"),
    "resnet50": Shipped("convolutional", "resnet50", (16, 64, 128), "sgd"),
    "inception-v3": Shipped("inception", "inception_v3", (16, 64, 128), "sgd"),
    "lstm-ptb": Shipped("recurrent", "lstm_ptb", (64, 256), "sgd"),
    "gpt2-small": Shipped("transformers", "gpt2_small", (8, 32), "adamw"),
    "gpt2-medium": Shipped("transformers", "gpt2_medium", (4, 16), "adamw"),
    "bert-large": Shipped("transformers", "bert_large", (4, 16), "adamw"),
    "vit-b": Shipped("transformers", "vit_b", (32, 128), "adamw"),
    "llama-1b": Shipped("llama", "llama_1b", (1, 4), "adamw"),
}
"""The shipped definitions by name."""
