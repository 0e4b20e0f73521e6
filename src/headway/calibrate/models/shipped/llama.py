"""A language model of the Llama family, of the shape of Llama 3.2 1B, on sequences of 2048 tokens.

Root mean square norms, rotary positions, grouped queries, a gated perceptron, and an output layer
that is the embedding (Touvron et al. 2023; Dubey et al. 2024).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.calibrate.models.shipped.tasks import TokenPredictor, tokens

_VOCABULARY = 128_256
_LENGTH = 2048
_WIDTH, _INNER = 2048, 8192
_LAYERS, _HEADS, _KEY_HEADS = 16, 32, 8
_HEAD_WIDTH = _WIDTH // _HEADS
_ROTARY_BASE = 500_000.0
_EPSILON = 1e-5


def llama_1b(batch_size: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """16 layers of 2048, 32 heads in 8 groups: 1235.81 million parameters."""
    return TokenPredictor(_Llama()), tokens(batch_size, _LENGTH, _VOCABULARY)


class _Llama(nn.Module):
    cosines: Tensor
    sines: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, _WIDTH)
        self.blocks = nn.ModuleList(_Block() for _ in range(_LAYERS))
        self.norm = nn.RMSNorm(_WIDTH, eps=_EPSILON)
        nn.init.normal_(self.words.weight, std=0.02)
        angles = _angles()
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        return functional.linear(self.norm(x), self.words.weight)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.RMSNorm(_WIDTH, eps=_EPSILON)
        self.query = nn.Linear(_WIDTH, _HEADS * _HEAD_WIDTH, bias=False)
        self.key = nn.Linear(_WIDTH, _KEY_HEADS * _HEAD_WIDTH, bias=False)
        self.value = nn.Linear(_WIDTH, _KEY_HEADS * _HEAD_WIDTH, bias=False)
        self.outward = nn.Linear(_HEADS * _HEAD_WIDTH, _WIDTH, bias=False)
        self.before_perceptron = nn.RMSNorm(_WIDTH, eps=_EPSILON)
        self.gate = nn.Linear(_WIDTH, _INNER, bias=False)
        self.up = nn.Linear(_WIDTH, _INNER, bias=False)
        self.down = nn.Linear(_INNER, _WIDTH, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self._attention(self.before_attention(x), cosines, sines)
        inner = self.before_perceptron(x)
        out: Tensor = x + self.down(functional.silu(self.gate(inner)) * self.up(inner))
        return out

    def _attention(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        query = _rotated(_by_head(self.query(x)), cosines, sines)
        key = _rotated(_by_head(self.key(x)), cosines, sines)
        value = _by_head(self.value(x))
        # A copy of keys and values for each query of a group: every attention kernel takes that.
        group = _HEADS // _KEY_HEADS
        mixed = functional.scaled_dot_product_attention(
            query,
            key.repeat_interleave(group, dim=1),
            value.repeat_interleave(group, dim=1),
            is_causal=True,
        )
        out: Tensor = self.outward(mixed.transpose(1, 2).flatten(2))
        return out


def _by_head(x: Tensor) -> Tensor:
    """Return (batch, head, position, width of a head)."""
    batch, length, _ = x.shape
    return x.view(batch, length, -1, _HEAD_WIDTH).transpose(1, 2)


def _angles() -> Tensor:
    """Return the angle of each position and pair of coordinates."""
    pairs = torch.arange(0, _HEAD_WIDTH, 2, dtype=torch.float32)
    turns = _ROTARY_BASE ** (-pairs / _HEAD_WIDTH)
    return torch.outer(torch.arange(_LENGTH, dtype=torch.float32), turns)


def _rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn each pair of coordinates by its angle, in x's own precision."""
    first, second = x.chunk(2, dim=-1)
    length = x.shape[2]
    cosine, sine = cosines[:length].to(x.dtype), sines[:length].to(x.dtype)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
