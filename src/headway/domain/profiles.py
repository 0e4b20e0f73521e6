"""Measured times of models on types of GPU, and the lookup of a model's profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.domain.errors import InputError, shown
from headway.domain.limits import LONGEST_NS, whole
from headway.domain.models import MAX_BATCH, MODELS, ModelProfile, ProfileSet


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured times of a model's forward and backward pass on one type of GPU, in ns.

    `batch_size` is the mini-batch of one GPU. None means that of the model's own profile; for a
    model without a profile it matches jobs that give no batch size.
    """

    model: str
    gpu: str
    forward_ns: int
    backward_ns: int
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("model", "gpu"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InputError(f"must be a non-empty string, not {shown(value)}.", field=name)
        whole(self.forward_ns, "forward_ns", 1, LONGEST_NS)
        whole(self.backward_ns, "backward_ns", 1, LONGEST_NS)
        if self.batch_size is not None:
            whole(self.batch_size, "batch_size", 1, MAX_BATCH)

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Model, GPU and resolved batch size."""
        return self.model, self.gpu, batch_size_of(self.model, self.batch_size)


def batch_size_of(model: str, given: int | None) -> int | None:
    """Return the given batch size, or else that of the model's profile, or else None."""
    if given is not None or model not in MODELS:
        return given
    return MODELS[model].batch_size


def profile_at(
    model: str, batch_size: int | None, sets: Iterable[ProfileSet]
) -> tuple[ModelProfile, bool] | None:
    """Return a model's profile at a batch size, and whether its times are scaled to it.

    The first set with the model decides: by its first profile if no batch size is given, else by
    the profile at the nearest batch size, the smaller of two equally near. Returns None if no set
    has the model.
    """
    found = next((one for one in sets if model in one.by_model), None)
    if found is None:
        return None
    if batch_size is None:
        return found.by_model[model][0], False
    return found.at_batch_size(model, batch_size)


def model_names(sets: Iterable[ProfileSet]) -> list[str]:
    """Return the names of all models in the sets, without duplicates."""
    return list(dict.fromkeys(name for one in sets for name in one.by_model))


def measured_times(sets: Sequence[ProfileSet]) -> tuple[Profile, ...]:
    """Return the times in all sets; the first wins for equal model, GPU and batch size."""
    found: dict[tuple[str, str, int | None], Profile] = {}
    for one in sets:
        for entry in one.profiles:
            times = entry.forward_ns, entry.backward_ns
            profile = Profile(entry.name, entry.gpu, *times, entry.batch_size)
            found.setdefault(profile.key, profile)
    return tuple(found.values())
