"""Published sizes of models that traces name.

Sources of the parameter counts: torchvision's documentation of its models (vgg16 to inception_v3);
Hugging Face Transformers' default configurations, a masked language model for bert (Devlin et al.,
2019) and GPT2LMHeadModel for gpt2 (Radford et al., 2019), tied embeddings counted once; the network
of Mnih et al. (2015) with four frames and four actions for dqn, the same with an actor and a critic
head for a2c.
"""

from __future__ import annotations

from dataclasses import dataclass

PARAMETERS = {
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "shufflenet_v2_x1_0": 2_278_604,
    "mobilenet_v2": 3_504_872,
    "alexnet": 61_100_840,
    "inception_v3": 27_161_264,
    "bert": 109_514_298,
    "gpt2": 124_439_808,
    "dqn": 1_686_180,
    "a2c": 1_686_693,
}

GRADIENT_BYTES_EACH = 4
"""A gradient in single precision."""

MEMORY_BYTES_EACH = 16
"""Weight, gradient and the two moments of Adam, in single precision."""

MEMORY_BYTES_BESIDES = 2 * 2**30
"""Framework, activations and data: an assumption."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Bytes of a model's all-reduce, and of memory on each GPU."""

    gradient_bytes: int
    memory_bytes: int


def published_size(model: str) -> ModelSize | None:
    """Return the size of a model, if its parameter count is in the table."""
    count = PARAMETERS.get(model)
    if count is None:
        return None
    return ModelSize(GRADIENT_BYTES_EACH * count, MEMORY_BYTES_EACH * count + MEMORY_BYTES_BESIDES)
