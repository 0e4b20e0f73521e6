"""A transformer layer in plain PyTorch, as one of several tensor-parallel ranks has it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.calibrate.gpus.samples import LayerSample


class TransformerLayer(nn.Module):
    """One layer, with its all-reduces left out."""

    def __init__(self, shape: LayerSample) -> None:
        super().__init__()
        self.shape = shape
        width = shape.hidden // shape.heads
        self.heads = shape.heads // shape.tensor
        self.kv_heads = max(1, shape.kv_heads // shape.tensor)
        ffn = shape.ffn // shape.tensor
        self.is_llama = shape.name == "llama"
        bias = not self.is_llama
        norm = nn.RMSNorm if self.is_llama else nn.LayerNorm
        self.norm_1, self.norm_2 = norm(shape.hidden), norm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, (self.heads + 2 * self.kv_heads) * width, bias)
        self.project = nn.Linear(self.heads * width, shape.hidden, bias)
        self.up = nn.Linear(shape.hidden, ffn * (2 if self.is_llama else 1), bias)
        self.down = nn.Linear(ffn, shape.hidden, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for activations of sequences x tokens x hidden."""
        x = x + self.project(self._attend(self.norm_1(x)))
        inner: Tensor = self.up(self.norm_2(x))
        if self.is_llama:
            gate, up = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * up
        else:
            inner = functional.gelu(inner, approximate="tanh")
        out: Tensor = x + self.down(inner)
        return out

    def _attend(self, x: Tensor) -> Tensor:
        sequences, tokens, _ = x.shape
        width = self.shape.hidden // self.shape.heads
        parts = self.qkv(x).view(sequences, tokens, self.heads + 2 * self.kv_heads, width)
        query, key, value = parts.transpose(1, 2).split(
            [self.heads, self.kv_heads, self.kv_heads], dim=1
        )
        if self.is_llama:
            query, key = _rotated(query), _rotated(key)
        shared = self.heads != self.kv_heads
        attended = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=shared
        )
        return attended.transpose(1, 2).reshape(sequences, tokens, self.heads * width)


def _rotated(x: Tensor) -> Tensor:
    """Return queries or keys with rotary positions; the angles do not matter for the time."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first - 0.5 * second, second + 0.5 * first), dim=-1)
