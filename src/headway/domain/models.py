"""Model profiles: what one iteration of a DNN costs on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from headway.domain.gpus import V100
from headway.domain.layers import Layer, fitted
from headway.domain.limits import MAX_BYTES
from headway.domain.paper_layers import LAYERS

MEBIBYTE = 2**20
MAX_BATCH = 2**31


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Gradient size, GPU memory, and the times of a forward and a backward pass.

    `batch_size` is the mini-batch of one GPU at which memory and times were measured, `gpu` the
    type of GPU. `layers` are in the order of the forward pass and add up to the times and the
    gradient; there are none if they are not known. `optimizer_ns` is the time of the optimizer's
    step after the backward pass, or 0 if it is not known.
    """

    name: str
    gradient_bytes: int
    memory_bytes: int
    forward_ns: int
    backward_ns: int
    batch_size: int
    gpu: str = V100.name
    layers: tuple[Layer, ...] = ()
    optimizer_ns: int = 0

    def at_batch_size(self, batch_size: int) -> ModelProfile:
        """Return the profile with times scaled in proportion: the paper's t = lambda * B / P.

        Times are round(t * B / B_ref), at least 1 ns. What layers pass on is scaled too, up to the
        largest message.
        """
        forward_ns, backward_ns = (
            at_batch_size(time_ns, batch_size, self.batch_size)
            for time_ns in (self.forward_ns, self.backward_ns)
        )
        layers = self.layers
        if layers:
            layers = fitted(layers, forward_ns, backward_ns, self.gradient_bytes)
        return replace(
            self,
            forward_ns=forward_ns,
            backward_ns=backward_ns,
            batch_size=batch_size,
            layers=tuple(
                replace(
                    layer,
                    activation_bytes=min(
                        MAX_BYTES, round(layer.activation_bytes * batch_size / self.batch_size)
                    ),
                )
                for layer in layers
            ),
        )


def at_batch_size(time_ns: int, batch_size: int, measured_at: int) -> int:
    """Return round(t * B / B_ref), at least 1 ns: the paper's t = lambda * B / P."""
    return max(1, round(time_ns * batch_size / measured_at))


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

    def at_batch_size(self, model: str, batch_size: int) -> tuple[ModelProfile, bool]:
        """Return a model's profile at a batch size, and whether its times are scaled to it.

        They are scaled from the nearest batch size, the smaller of two equally near.
        """
        key = model, batch_size
        if key not in self._by_batch_size:
            nearest = min(
                self.by_model[model],
                key=lambda one: (abs(one.batch_size - batch_size), one.batch_size),
            )
            scales = nearest.batch_size != batch_size
            found = nearest.at_batch_size(batch_size) if scales else nearest
            self._by_batch_size[key] = found, scales
        return self._by_batch_size[key]

    @cached_property
    def _by_batch_size(self) -> dict[tuple[str, int], tuple[ModelProfile, bool]]:
        return {}


def _profile(
    name: str,
    gradient_mb: float,
    memory_mb: int,
    batch_size: int,
    forward_ms: float,
    backward_ms: float,
) -> ModelProfile:
    totals = round(forward_ms * 1e6), round(backward_ms * 1e6), round(gradient_mb * MEBIBYTE)
    return ModelProfile(
        name,
        gradient_bytes=totals[2],
        memory_bytes=memory_mb * MEBIBYTE,
        forward_ns=totals[0],
        backward_ns=totals[1],
        batch_size=batch_size,
        layers=fitted(LAYERS[name], *totals),
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
"""The paper's DNNs on a Tesla V100 (its table "DNN training parameter").

The shares of layers are not the paper's; `paper_layers` says where they are from.
"""

PAPER_PROFILES = (ProfileSet("v100", tuple(MODELS.values())),)
"""The default sets in which models are looked up."""
