"""Which operations and layers are measured: shapes that occur in transformers."""

from __future__ import annotations

from dataclasses import dataclass

from headway.calibrate.gpus.samples import MOVED_VALUES, LayerSample, Sample


@dataclass(frozen=True, slots=True)
class Grid:
    """Operations and layers to measure, whose times are not known yet."""

    operations: tuple[Sample, ...]
    layers: tuple[LayerSample, ...]


def full_grid() -> Grid:
    """Return the grid for a GPU: minutes on a recent one."""
    gemms: dict[Sample, None] = {}
    for tokens in (512, 1024, 2048, 4096, 8192, 16384):
        for hidden in (1024, 2048, 4096, 5120, 8192, 12288):
            for shape in _weights(hidden, (1, 2, 4, 8)):
                gemms[_gemm("forward", tokens, *shape)] = None
    for tokens in (1024, 4096, 16384):
        for hidden in (1024, 4096, 12288):
            for outputs, inputs in _weights(hidden, (1, 8)):
                gemms[_gemm("input-gradient", tokens, inputs, outputs)] = None
                gemms[_gemm("weight-gradient", outputs, inputs, tokens)] = None
    for tokens in (2048, 8192):
        # The output matrix: one row for each word of the vocabulary.
        for words in (32000, 50304, 128256 // 8):
            gemms[_gemm("forward", tokens, words, 4096)] = None
        for words in (32003, 50257):
            for hidden in (1024, 4096):
                gemms |= dict.fromkeys(_unaligned(tokens, words, hidden))
    for precision in ("fp16", "tf32", "fp32"):
        for tokens in (1024, 8192):
            for hidden in (1024, 4096):
                for shape in _weights(hidden, (1,)):
                    gemms[_gemm("forward", tokens, *shape, precision)] = None
    attention = [
        Sample("attention", name, "bf16", sequences * heads, sequence, sequence, width)
        for name in ("forward", "backward")
        for sequence in (1024, 2048, 4096, 8192)
        for sequences, heads, width in ((1, 8, 128), (1, 32, 128), (4, 16, 128), (4, 16, 64))
    ]
    elementwise = [
        Sample("elementwise", name, "bf16" if name != "adam" else "fp32", 1, rows, columns, 1)
        for name in MOVED_VALUES
        for rows, columns in ((64, 1024), (1024, 1024), (2048, 4096), (8192, 4096), (16384, 12288))
    ]
    layers = [
        LayerSample("gpt", 2048, 16, 16, 8192, 2048, 4, 1),
        LayerSample("gpt", 4096, 32, 32, 16384, 2048, 1, 1),
        LayerSample("gpt", 4096, 32, 32, 16384, 2048, 4, 2),
        LayerSample("gpt", 6144, 48, 48, 24576, 2048, 4, 8),
        LayerSample("gpt", 12288, 96, 96, 49152, 2048, 1, 8),
        LayerSample("gpt", 12288, 96, 96, 49152, 2048, 4, 8),
        LayerSample("llama", 2048, 16, 16, 5632, 4096, 1, 1),
        LayerSample("llama", 4096, 32, 32, 11008, 4096, 1, 1),
        LayerSample("llama", 4096, 32, 8, 14336, 8192, 1, 1),
        LayerSample("llama", 5120, 40, 40, 13824, 4096, 2, 2),
        LayerSample("llama", 8192, 64, 8, 28672, 4096, 1, 4),
        LayerSample("llama", 8192, 64, 8, 28672, 4096, 2, 8),
    ]
    return Grid((*_LAUNCH, *gemms, *attention, *elementwise), tuple(layers))


def small_grid() -> Grid:
    """Return a grid of seconds, to try the command on a CPU."""
    gemms = [_gemm("forward", tokens, 256, hidden) for tokens in (64, 128) for hidden in (128, 256)]
    gemms += [
        _gemm("input-gradient", 64, 128, 256),
        _gemm("weight-gradient", 256, 128, 64),
        _gemm("forward", 64, 256, 128, "fp32"),
        *_unaligned(64, 257, 128),
    ]
    attention = [
        Sample("attention", name, "bf16", 4, size, size, 32)
        for name in ("forward", "backward")
        for size in (64, 128)
    ]
    elementwise = [
        Sample("elementwise", name, "bf16" if name != "adam" else "fp32", 1, rows, 256, 1)
        for name in MOVED_VALUES
        for rows in (64, 1024)
    ]
    layers = (
        LayerSample("gpt", 128, 4, 4, 512, 64, 1, 1),
        LayerSample("llama", 128, 4, 2, 384, 64, 1, 2),
    )
    return Grid((*_LAUNCH, *gemms, *attention, *elementwise), layers)


_LAUNCH = (Sample("launch", "empty", "bf16", 1, 1, 1, 1),)


def _weights(hidden: int, tensors: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return outputs and inputs of a layer's matrices on one rank of a tensor-parallel group."""
    return [
        shape
        for tensor in tensors
        for shape in (
            (3 * hidden // tensor, hidden),
            (hidden, hidden // tensor),
            (4 * hidden // tensor, hidden),
            (hidden, 4 * hidden // tensor),
        )
    ]


def _unaligned(tokens: int, words: int, hidden: int) -> list[Sample]:
    """Return the products of an output matrix whose number of words is odd."""
    return [
        _gemm("forward", tokens, words, hidden),
        _gemm("input-gradient", tokens, hidden, words),
        _gemm("weight-gradient", words, hidden, tokens),
    ]


def _gemm(name: str, m: int, n: int, k: int, precision: str = "bf16") -> Sample:
    return Sample("gemm", name, precision, 1, m, n, k)
