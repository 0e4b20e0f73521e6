"""Measures one model at one batch size in one precision."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headway.calibrate.models.buckets import bucket_members
from headway.calibrate.models.definitions import Definition, Example
from headway.calibrate.models.devices import Device
from headway.calibrate.models.layers import LayerWatch
from headway.domain.errors import InputError
from headway.domain.layers import Layer, fitted

PRECISIONS = ("fp32", "tf32", "bf16")
"""fp32 without and with tensor cores; bf16 passes with fp32 weights and gradients."""


OPTIMIZERS: dict[str, Callable[[list[Any]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=_RATE, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=_RATE),
}
"""SGD with momentum, and AdamW, with PyTorch's default implementation."""

_RATE = 1e-9
"""So small that steps do not change what passes do."""


@dataclass(frozen=True, slots=True)
class PassSettings:
    """The number of untimed and of timed passes, the bucket size in bytes, and the optimizer."""

    warm_up: int = 5
    repeats: int = 20
    bucket_bytes: int = 25 * 2**20
    optimizer: str | None = None
    """By default that of the definition."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some measurements in ns, and their quartiles."""

    median_ns: float
    quartiles_ns: tuple[float, float]

    @classmethod
    def of(cls, times_ns: Sequence[float]) -> Spread:
        """Summarise at least two measurements."""
        low, median, high = statistics.quantiles(times_ns, n=4, method="inclusive")
        return cls(median, (low, high))


@dataclass(frozen=True, slots=True)
class Measurement:
    """The cost of one iteration on one device.

    `buckets` holds, for each bucket of gradients, its bytes and the median time in ns from the
    start of the backward pass until its last gradient is ready. `layers` add up to the medians of
    both passes and to the gradients; `layer_scale` is what their times were multiplied by for that.
    """

    name: str
    batch_size: int
    precision: str
    parameters: int
    forward: Spread
    backward: Spread
    gradient_bytes: int
    memory_bytes: int
    repeats: int
    buckets: tuple[tuple[int, float], ...]
    layers: tuple[Layer, ...]
    layer_scale: tuple[float, float]
    optimizer: str
    optimizer_step: Spread


def measure(
    definition: Definition,
    batch_size: int,
    precision: str,
    device: Device,
    settings: PassSettings,
    progress: Callable[[float], None],
) -> Measurement:
    """Measure a model; memory and gradients are taken from the warm-up.

    `progress` is called after each pass with the share that is done.
    """
    with definition.explained():
        device.clear()
        set_precision(precision)
        example = definition.example(batch_size, device.kind)
        total = settings.warm_up + 3 * settings.repeats + 1
        passes = _Passes(example, precision, device, lambda done: progress(done / total))
        for _ in range(settings.warm_up - 1):
            passes.run()
        with device.watch(example.tensors) as peak:
            passes.run()
        sizes = [p.grad.numel() * p.grad.element_size() for p in passes.trained()]
        # The device runs asynchronously, as in training, with one wait at the end.
        marks = [passes.run() for _ in range(settings.repeats)]
        device.finish()
        forward = Spread.of([device.between_ns(start, middle) for start, middle, _ in marks])
        backward = Spread.of([device.between_ns(middle, end) for _, middle, end in marks])
        buckets = _bucket_times(passes, sizes, settings)
        name = settings.optimizer or definition.optimizer
        watched, step = _layer_times(passes, OPTIMIZERS[name](passes.trained()), settings.repeats)
    # On a GPU the peak includes the gradients; the count tensor by tensor does not.
    gradients_apart = sum(sizes) if device.kind == "cpu" else 0
    return Measurement(
        name=definition.name,
        batch_size=batch_size,
        precision=precision,
        parameters=sum(parameter.numel() for parameter in example.model.parameters()),
        forward=forward,
        backward=backward,
        gradient_bytes=sum(sizes),
        memory_bytes=peak.bytes + gradients_apart,
        repeats=settings.repeats,
        buckets=buckets,
        layers=fitted(watched, round(forward.median_ns), round(backward.median_ns), sum(sizes)),
        layer_scale=(
            forward.median_ns / sum(layer.forward_ns for layer in watched),
            backward.median_ns / sum(layer.backward_ns for layer in watched),
        ),
        optimizer=name,
        optimizer_step=step,
    )


class _Passes:
    """Forward and backward passes of one example, and how many were run."""

    def __init__(
        self, example: Example, precision: str, device: Device, report: Callable[[int], None]
    ) -> None:
        self.example, self.device = example, device
        self._report, self._done = report, 0
        self._autocast = precision == "bf16"

    def run(self) -> tuple[Any, Any, Any]:
        """Run an iteration; return the marks before forward, before backward and after it."""
        self.example.model.zero_grad(set_to_none=True)
        start = self.device.mark()
        with torch.autocast(self.device.kind, torch.bfloat16, enabled=self._autocast):
            loss = self.example.loss()
        middle = self.device.mark()
        loss.backward()  # type: ignore[no-untyped-call]
        end = self.device.mark()
        self._done += 1
        self._report(self._done)
        return start, middle, end

    def trained(self) -> list[Any]:
        """Return the parameters that got a gradient in the last pass, in the model's order."""
        return [p for p in self.example.model.parameters() if p.grad is not None]


def _bucket_times(
    passes: _Passes, sizes: list[int], settings: PassSettings
) -> tuple[tuple[int, float], ...]:
    """Return the bytes and the median ready time of each bucket, from iterations with hooks."""
    parameters, device = passes.trained(), passes.device
    members = bucket_members(sizes, settings.bucket_bytes)
    ready: dict[int, Any] = {}
    missing: list[set[int]] = []
    hooks = []

    def watch(index: int, bucket: int) -> None:
        def arrived(_: torch.Tensor) -> None:
            missing[bucket].discard(index)
            if not missing[bucket]:
                ready[bucket] = device.mark()

        hooks.append(parameters[index].register_post_accumulate_grad_hook(arrived))

    for bucket, indices in enumerate(members):
        for index in indices:
            watch(index, bucket)
    marks = []
    try:
        for _ in range(settings.repeats):
            missing[:] = [set(indices) for indices in members]
            ready.clear()
            _, middle, _ = passes.run()
            if len(ready) < len(members):
                raise InputError(
                    "the model gives gradients to different parameters from pass to pass; they "
                    "must be the same each time."
                )
            marks.append((middle, [ready[bucket] for bucket in range(len(members))]))
    finally:
        for hook in hooks:
            hook.remove()
    device.finish()
    times_ns = [
        statistics.median(device.between_ns(middle, found[bucket]) for middle, found in marks)
        for bucket in range(len(members))
    ]
    return tuple(
        (sum(sizes[index] for index in indices), time_ns)
        for indices, time_ns in zip(members, times_ns, strict=True)
    )


def _layer_times(
    passes: _Passes, optimizer: torch.optim.Optimizer, repeats: int
) -> tuple[list[Layer], Spread]:
    """Return the layers and the time of the optimizer's step, from iterations with hooks.

    The first of them, in which the optimizer creates its state, is not timed.
    """
    steps = []
    with LayerWatch(passes.example.model, passes.device) as watch:
        for _ in range(repeats + 1):
            watch.take(*passes.run())
            before = passes.device.mark()
            optimizer.step()
            steps.append((before, passes.device.mark()))
        layers = watch.layers()
    times_ns = [passes.device.between_ns(before, after) for before, after in steps[1:]]
    return layers, Spread.of(times_ns)


def set_precision(precision: str) -> None:
    """Set whether a GPU's fp32 operations may use tensor cores."""
    if hasattr(torch.backends, "fp32_precision"):
        how = "tf32" if precision == "tf32" else "ieee"
        torch.backends.cuda.matmul.fp32_precision = how
        torch.backends.cudnn.conv.fp32_precision = how  # type: ignore[attr-defined]
        torch.backends.cudnn.rnn.fp32_precision = how  # type: ignore[attr-defined]
    else:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
