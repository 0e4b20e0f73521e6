"""Measured times of a model on a type of GPU."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.errors import InputError, shown
from headway.domain.limits import LONGEST_NS, whole
from headway.domain.models import MODELS, MOST_BATCH


@dataclass(frozen=True, slots=True)
class Profile:
    """What a forward and a backward pass of a model take on one type of GPU, measured, in ns.

    `batch_size` is the mini-batch of one GPU. Left out, it is the one of the model's own profile,
    or for a model without one the same, unknown one as that of jobs which name none.
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
                raise InputError(f"must be a name, not {shown(value)}.", field=name)
        whole(self.forward_ns, "forward_ns", 1, LONGEST_NS)
        whole(self.backward_ns, "backward_ns", 1, LONGEST_NS)
        if self.batch_size is not None:
            whole(self.batch_size, "batch_size", 1, MOST_BATCH)

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Model, GPU and the batch size that is meant."""
        return self.model, self.gpu, batch_size_of(self.model, self.batch_size)


def batch_size_of(model: str, given: int | None) -> int | None:
    """Return the batch size that is given, else that of the model's profile, else None."""
    if given is not None or model not in MODELS:
        return given
    return MODELS[model].batch_size


def at_batch_size(time_ns: int, batch_size: int, measured_at: int) -> int:
    """Return round(t * B / B_ref), at least 1 ns: the paper's t = lambda * B / P."""
    return max(1, round(time_ns * batch_size / measured_at))
