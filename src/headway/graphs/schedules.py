"""The order in which a device of a pipeline computes its forward and backward passes.

GPipe: Y. Huang et al., NeurIPS 2019. 1F1B: D. Narayanan et al., "PipeDream", SOSP 2019, and with
interleaved stages "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headway.domain.errors import InputError


@dataclass(frozen=True, slots=True)
class Pass:
    """The forward or backward pass of one microbatch through one stage."""

    forward: bool
    stage: int
    microbatch: int

    @property
    def name(self) -> str:
        """The name of its task; stages and microbatches count from 0."""
        return f"{'forward' if self.forward else 'backward'}-{self.stage}.{self.microbatch}"


def gpipe(device: int, devices: int, stages: int, microbatches: int) -> Iterator[Pass]:
    """Yield all forward passes, then all backward passes."""
    for forward in (True, False):
        for microbatch in range(microbatches):
            yield Pass(forward, device, microbatch)


def one_forward_one_backward(
    device: int, devices: int, stages: int, microbatches: int
) -> Iterator[Pass]:
    """Yield as many forward passes as later stages need, then one backward after each forward."""
    forward = [Pass(True, device, microbatch) for microbatch in range(microbatches)]
    backward = [Pass(False, device, microbatch) for microbatch in range(microbatches)]
    return _one_by_one(forward, backward, devices - device - 1)


def interleaved(device: int, devices: int, stages: int, microbatches: int) -> Iterator[Pass]:
    """Yield 1F1B of a device that has several stages, one in each round through all devices.

    Microbatches go through a stage in groups of as many as there are devices.
    """
    if microbatches % devices:
        raise InputError(
            f"must be a multiple of the {devices:,} devices for interleaved stages, not "
            f"{microbatches:,}.",
            field="microbatches",
        )
    rounds = stages // devices
    forward, backward = [], []
    for turn in range(microbatches * rounds):
        group, within = divmod(turn, devices * rounds)
        at_round, microbatch = divmod(within, devices)
        microbatch += group * devices
        forward.append(Pass(True, at_round * devices + device, microbatch))
        backward.append(Pass(False, (rounds - 1 - at_round) * devices + device, microbatch))
    warm_up = 2 * (devices - device - 1) + (rounds - 1) * devices
    return _one_by_one(forward, backward, warm_up)


def _one_by_one(forward: Sequence[Pass], backward: Sequence[Pass], warm_up: int) -> Iterator[Pass]:
    """Yield some forward passes, then forward and backward in turn, then the rest."""
    warm_up = min(warm_up, len(forward))
    yield from forward[:warm_up]
    for one, other in zip(forward[warm_up:], backward, strict=False):
        yield one
        yield other
    yield from backward[len(forward) - warm_up :]


Schedule = Callable[[int, int, int, int], Iterator[Pass]]
"""From a device, and the numbers of devices, stages and microbatches."""

SCHEDULES: dict[str, Schedule] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
}
