"""Fits the parameters of a GPU type to samples, and says how well they fit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING

from headway import toml_text as toml
from headway.calibrate.gpus.samples import LayerSample, Sample
from headway.domain.errors import InputError
from headway.files import open_output
from headway.llm.config import ModelConfig
from headway.llm.gpu import GpuModel, ServerLink, aligned
from headway.llm.gpu_file import gpu_from, gpu_names
from headway.llm.layers import Rank, Work, transformer_layer
from headway.llm.plan import Plan
from headway.text_table import TextTable

if TYPE_CHECKING:
    from headway.calibrate.models.devices import Device

_PCIE = ServerLink(gpus=2, a_ns=20_000.0, b_ns_per_byte=1 / 20)
"""20 microseconds and 20 GB/s."""

NOT_MEASURED = ("collective_ns", "collective_launch_ns", "server_links")
"""What is taken from another type of GPU: one GPU does not show it."""

_UNALIGNED = "unaligned_efficiency"

_LAUNCHES = 4
_ROUNDS = 5
_STEPS = 20
_SHARE = (3 - math.sqrt(5)) / 2
"""Of the golden section."""

_STREAMED = ("copy", "add", "gelu", "layer-norm")
"""Operations that are one kernel and take as long as memory takes."""


def fitted_model(start: GpuModel, samples: Sequence[Sample], name: str, source: str) -> GpuModel:
    """Return the model of a measured GPU: that of `start`, with parameters fitted to samples.

    The fit minimises the mean absolute logarithm of predicted over measured time, so that a kernel
    counts the same whether it is short or long. Kernels that take less than four launches are left
    out: they wait for the processor that launches them.
    """
    launch_ns = min((one.time_ns for one in samples if one.kind == "launch"), default=0)
    kept = [one for one in samples if one.time_ns > _LAUNCHES * launch_ns]
    moves = [one for one in kept if one.kind == "elementwise" and one.name in _STREAMED]
    products = [one for one in kept if one.kind == "gemm" and one.precision in ("bf16", "fp16")]
    gemms = [one for one in products if aligned(one.m, one.n, one.k)]
    unaligned = [one for one in products if not aligned(one.m, one.n, one.k)]
    attention = [one for one in kept if one.kind == "attention"]
    if not moves or not gemms or not attention:
        raise InputError(
            "too few samples: a fit needs matrix products in bf16 or fp16, copies and attention "
            f"that take longer than {_LAUNCHES} launches."
        )
    model = replace(
        start,
        name=name,
        source=source,
        estimate=False,
        estimates=NOT_MEASURED if unaligned else (_UNALIGNED, *NOT_MEASURED),
        launch_ns=float(launch_ns),
    )
    model = _with_peaks(model, kept)
    # From the same values whatever the type was, so that a fit can be repeated.
    model = replace(
        model,
        memory_efficiency=0.8,
        kernel_ns=2000.0,
        gemm_efficiency=0.8,
        gemm_extra_depth=64.0,
        attention_efficiency=0.5,
    )
    steps: tuple[tuple[str, Sequence[Sample], float, float], ...] = (
        ("memory_efficiency", moves, 0.05, 1.0),
        ("kernel_ns", [*moves, *gemms], 10.0, 1e5),
        ("gemm_efficiency", gemms, 0.01, 1.0),
        ("gemm_extra_depth", gemms, 1.0, 4096.0),
        ("attention_efficiency", attention, 0.01, 1.0),
    )
    for _ in range(_ROUNDS):
        for field, used, low, high in steps:
            model = _best(model, field, used, low, high)
    return _best(model, _UNALIGNED, unaligned, 0.01, 1.0) if unaligned else model


def predicted_ns(model: GpuModel, sample: Sample) -> float:
    """Return the model's time of an operation."""
    if sample.kind == "gemm":
        precision = "fp32" if sample.precision == "tf32" else sample.precision
        return model.gemm_ns(sample.m, sample.n, sample.k, precision, sample.batch)
    if sample.kind == "attention":
        # The mask leaves half of the pairs.
        return model.attention_ns(sample.flops / 2, sample.precision)
    if sample.kind == "elementwise":
        return model.elementwise_ns(sample.moved_bytes)
    return model.launch_ns


def predicted_layer_ns(model: GpuModel, sample: LayerSample) -> tuple[float, float]:
    """Return the model's time of a layer's forward and backward pass, without collectives."""
    config = ModelConfig(
        layers=1,
        hidden=sample.hidden,
        heads=sample.heads,
        kv_heads=sample.kv_heads,
        ffn=sample.ffn,
        vocabulary=1,
        sequence=sample.sequence,
        gated_ffn=sample.name == "llama",
    )
    plan = Plan(
        tensor=sample.tensor,
        micro_batch=sample.micro_batch,
        global_batch=sample.micro_batch,
        recompute="none",
    )
    block = transformer_layer(Rank(config, plan, model), with_experts=False)
    return _pass_ns(model, block.forward), _pass_ns(model, block.backward)


def describe_fit(
    model: GpuModel, samples: Sequence[Sample], layers: Sequence[LayerSample]
) -> Iterator[str]:
    """Yield lines that say how far the model is off, by kind of operation."""
    table = TextTable(["operation"], ["samples", "mean error", "median", "95th pct.", "bias"])
    groups: dict[str, list[float]] = {}
    for sample in samples:
        # The model has no products in fp32 without tensor cores.
        if sample.kind == "launch" or (sample.kind, sample.precision) == ("gemm", "fp32"):
            continue
        if sample.time_ns > _LAUNCHES * model.launch_ns:
            name = f"{sample.kind} {sample.name}"
            if sample.kind == "gemm" and not aligned(sample.m, sample.n, sample.k):
                name += " unaligned"
            if sample.precision not in ("bf16", "fp16"):
                name += f" {sample.precision}"
            error = predicted_ns(model, sample) / sample.time_ns - 1
            groups.setdefault(name, []).append(error)
    for one in layers:
        forward_ns, backward_ns = predicted_layer_ns(model, one)
        groups.setdefault("layer forward", []).append(forward_ns / one.forward_ns - 1)
        groups.setdefault("layer backward", []).append(backward_ns / one.backward_ns - 1)
    for name, found in groups.items():
        sizes = sorted(map(abs, found))
        table.add_row(
            name,
            str(len(found)),
            f"{statistics.fmean(sizes):.1%}",
            f"{statistics.median(sizes):.1%}",
            f"{sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))]:.1%}",
            f"{statistics.fmean(found):+.1%}",
        )
    yield from (line.text for line in table.lines())


def _pass_ns(model: GpuModel, work: Work) -> float:
    return max(work.gpu_ns, work.kernels * model.launch_ns)


def _with_peaks(model: GpuModel, samples: Sequence[Sample]) -> GpuModel:
    """Return a model whose unknown peaks, which are 0, are the best that was measured."""

    def best(values: Iterator[float], known: float) -> float:
        return known or max(values, default=0.0)

    def flops_per_s(*precisions: str) -> Iterator[float]:
        return (
            1e9 * one.flops / one.time_ns
            for one in samples
            if one.kind == "gemm" and one.precision in precisions
        )

    moved = (
        1e9 * one.moved_bytes / one.time_ns
        for one in samples
        if one.kind == "elementwise" and one.name in _STREAMED
    )
    return replace(
        model,
        peak_flops_per_s=best(flops_per_s("bf16", "fp16"), model.peak_flops_per_s),
        fp32_peak_flops_per_s=best(flops_per_s("fp32", "tf32"), model.fp32_peak_flops_per_s),
        memory_bytes_per_s=best(moved, model.memory_bytes_per_s),
    )


def _error(model: GpuModel, samples: Sequence[Sample]) -> float:
    return statistics.fmean(
        abs(math.log(predicted_ns(model, one) / one.time_ns)) for one in samples
    )


def _best(
    model: GpuModel, field: str, samples: Sequence[Sample], low: float, high: float
) -> GpuModel:
    """Return the model with the best value of one parameter, by golden section of its logarithm."""

    def error(value: float) -> float:
        return _error(replace(model, **{field: math.exp(value)}), samples)  # type: ignore[arg-type]

    left, right = math.log(low), math.log(high)
    inner = [left + _SHARE * (right - left), right - _SHARE * (right - left)]
    errors = [error(value) for value in inner]
    for _ in range(_STEPS):
        if errors[0] < errors[1]:
            right = inner[1]
            inner = [left + _SHARE * (right - left), inner[0]]
            errors = [error(inner[0]), errors[0]]
        else:
            left = inner[0]
            inner = [inner[1], right - _SHARE * (right - left)]
            errors = [errors[1], error(inner[1])]
    return replace(model, **{field: math.exp((left + right) / 2)})  # type: ignore[arg-type]


def start_model(name: str, device: Device | None = None) -> GpuModel:
    """Return a known type of GPU, by name or file, or else one that says only what a device is.

    Peaks of an unknown device are 0, to be set by the fit. Between its GPUs it gets a PCIe link,
    an assumption: messages between GPUs are not measured.
    """
    if device is None or name.endswith(".toml") or name in gpu_names():
        return gpu_from(name)
    memory_bytes, multiprocessors = device.capacity()
    return GpuModel(
        name=name,
        source="",
        estimate=True,
        memory_bytes=memory_bytes,
        multiprocessors=multiprocessors,
        peak_flops_per_s=0.0,
        fp32_peak_flops_per_s=0.0,
        fp8_peak_flops_per_s=0.0,
        gemm_efficiency=0.5,
        gemm_extra_depth=64.0,
        unaligned_efficiency=1.0,
        attention_efficiency=0.5,
        memory_bytes_per_s=0.0,
        memory_efficiency=0.5,
        kernel_ns=1000.0,
        launch_ns=1000.0,
        collective_ns=0.0,
        collective_launch_ns=0.0,
        server_links=(_PCIE,),
    )


def write_model(model: GpuModel, path: str) -> None:
    """Write a GPU file; an existing file is replaced."""
    values: dict[str, toml.Value] = {}
    for field in fields(model):
        value = getattr(model, field.name)
        if field.name == "estimates":
            value = list(value)
        if field.name != "server_links":
            values[field.name] = float(f"{value:.6g}") if isinstance(value, float) else value
    links: list[dict[str, toml.Value]] = [asdict(link) for link in model.server_links]
    text = toml.lines(values) + "\n" + toml.tables("server_links", links)
    with open_output(path) as stream:
        stream.write(text.encode())
