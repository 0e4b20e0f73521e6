"""Times operations and layers on a device."""

from __future__ import annotations

import statistics
from dataclasses import replace

import torch

from headway.calibrate.gpus.layers import TransformerLayer
from headway.calibrate.gpus.operations import Run, operation
from headway.calibrate.gpus.samples import LayerSample, Sample
from headway.calibrate.models.devices import Device
from headway.calibrate.models.measure import set_precision

_BATCHES = 3
_MOST_REPEATS = 1000


def measure_operation(sample: Sample, device: Device, batch_ns: float) -> Sample:
    """Return the sample with its time, the median of three batches of about `batch_ns` each."""
    set_precision(sample.precision)
    run = operation(sample, device.kind)
    return replace(sample, time_ns=max(1, round(_time_ns(run, device, batch_ns))))


def measure_layer(sample: LayerSample, device: Device, batch_ns: float) -> LayerSample:
    """Return the sample with the time of its forward and of its backward pass."""
    set_precision("bf16")
    layer = TransformerLayer(sample).to(device.kind, torch.bfloat16)
    shape = (sample.micro_batch, sample.sequence, sample.hidden)
    x = torch.randn(*shape, dtype=torch.bfloat16, device=device.kind, requires_grad=True)
    gradient = torch.randn_like(x)

    def passes() -> tuple[object, object, object]:
        layer.zero_grad(set_to_none=True)
        x.grad = None
        start = device.mark()
        out = layer(x)
        middle = device.mark()
        out.backward(gradient)
        return start, middle, device.mark()

    both_ns = _once_ns(passes, device)
    count = _repeats(both_ns, _BATCHES * batch_ns)
    marks = [passes() for _ in range(count)]
    device.finish()
    forward_ns = statistics.median(device.between_ns(start, middle) for start, middle, _ in marks)
    backward_ns = statistics.median(device.between_ns(middle, end) for _, middle, end in marks)
    return replace(
        sample, forward_ns=max(1, round(forward_ns)), backward_ns=max(1, round(backward_ns))
    )


def _time_ns(run: Run, device: Device, batch_ns: float) -> float:
    repeats = _repeats(_once_ns(run, device), batch_ns)
    times_ns = []
    for _ in range(_BATCHES):
        start = device.mark()
        for _ in range(repeats):
            run()
        end = device.mark()
        device.finish()
        times_ns.append(device.between_ns(start, end) / repeats)
    return statistics.median(times_ns)


def _once_ns(run: Run, device: Device) -> float:
    """Return the time of one run after a few that load kernels."""
    for _ in range(3):
        run()
    start = device.mark()
    run()
    end = device.mark()
    device.finish()
    return device.between_ns(start, end)


def _repeats(once_ns: float, batch_ns: float) -> int:
    return max(2, min(_MOST_REPEATS, round(batch_ns / max(once_ns, 1.0))))
