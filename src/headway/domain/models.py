"""Model profiles: what one iteration of a DNN costs on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headway.domain.gpus import V100

MEBIBYTE = 2**20
MAX_BATCH = 2**31


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Gradient size, GPU memory, and the times of a forward and a backward pass.

    `batch_size` is the mini-batch of one GPU at which memory and times were measured, `gpu` the
    type of GPU.
    """

    name: str
    gradient_bytes: int
    memory_bytes: int
    forward_ns: int
    backward_ns: int
    batch_size: int
    gpu: str = V100.name


@dataclass(frozen=True)
class ProfileSet:
    """A named set of profiles; without a batch size, a model's first profile applies."""

    name: str
    profiles: tuple[ModelProfile, ...]

    @cached_property
    def by_model(self) -> Mapping[str, tuple[ModelProfile, ...]]:
        """The profiles of each model, in order."""
        found: dict[str, list[ModelProfile]] = {}
        for profile in self.profiles:
            found.setdefault(profile.name, []).append(profile)
        return {name: tuple(profiles) for name, profiles in found.items()}


def _profile(
    name: str,
    gradient_mb: float,
    memory_mb: int,
    batch_size: int,
    forward_ms: float,
    backward_ms: float,
) -> ModelProfile:
    return ModelProfile(
        name,
        gradient_bytes=round(gradient_mb * MEBIBYTE),
        memory_bytes=memory_mb * MEBIBYTE,
        forward_ns=round(forward_ms * 1e6),
        backward_ns=round(backward_ms * 1e6),
        batch_size=batch_size,
    )


MODELS = {
    profile.name: profile
    for profile in (
        _profile("vgg16", 526.4, 4527, 16, 35.8, 53.7),
        _profile("resnet50", 99.2, 3213, 16, 25.0, 37.4),
        _profile("inception-v3", 103.0, 3291, 16, 34.9, 52.4),
        _profile("lstm-ptb", 251.8, 2751, 64, 31.5, 47.3),
    )
}
"""The paper's DNNs on a Tesla V100 (its table "DNN training parameter")."""

PAPER_PROFILES = (ProfileSet("v100", tuple(MODELS.values())),)
"""The default sets in which models are looked up."""
