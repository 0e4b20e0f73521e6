"""Model profiles: what one iteration of a DNN costs on one GPU."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Gradient size, GPU memory, and the times of a forward and a backward pass."""

    name: str
    gradient_bytes: int
    memory_bytes: int
    forward_ns: int
    backward_ns: int


def _profile(
    name: str, gradient_mb: float, memory_mb: int, forward_ms: float, backward_ms: float
) -> ModelProfile:
    return ModelProfile(
        name,
        gradient_bytes=round(gradient_mb * MEBIBYTE),
        memory_bytes=memory_mb * MEBIBYTE,
        forward_ns=round(forward_ms * 1e6),
        backward_ns=round(backward_ms * 1e6),
    )


MODELS = {
    profile.name: profile
    for profile in (
        _profile("vgg16", 526.4, 4527, 35.8, 53.7),
        _profile("resnet50", 99.2, 3213, 25.0, 37.4),
        _profile("inception-v3", 103.0, 3291, 34.9, 52.4),
        _profile("lstm-ptb", 251.8, 2751, 31.5, 47.3),
    )
}
"""The paper's DNNs on a Tesla V100 (its table "DNN training parameter")."""
