"""Transformers with learned positions: GPT-2, BERT-large, ViT-B/16.

GPT-2 (Radford et al. 2019) on sequences of 1024 tokens, BERT (Devlin et al. 2018) with its masked
language head on sequences of 512, ViT (Dosovitskiy et al. 2020) on images of 224 x 224.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.calibrate.models.shipped.tasks import (
    CLASSES,
    Classifier,
    TokenPredictor,
    images,
    tokens,
)

Example = tuple[nn.Module, tuple[Tensor, ...]]

_GPT_LENGTH, _GPT_VOCABULARY = 1024, 50_257
_BERT_LENGTH, _BERT_VOCABULARY = 512, 30_522
_VIT_SIDE, _VIT_PATCH = 224, 16
_DROPOUT = 0.1
_MASKED = 0.15
_IGNORED = -100


def gpt2_small(batch_size: int) -> Example:
    """GPT-2 with 12 layers of 768: 124.44 million parameters."""
    return _gpt2(batch_size, width=768, layers=12, heads=12)


def gpt2_medium(batch_size: int) -> Example:
    """GPT-2 with 24 layers of 1024: 354.82 million parameters."""
    return _gpt2(batch_size, width=1024, layers=24, heads=16)


def _gpt2(batch_size: int, width: int, layers: int, heads: int) -> Example:
    network = TokenPredictor(_Gpt(width, layers, heads))
    return network, tokens(batch_size, _GPT_LENGTH, _GPT_VOCABULARY)


def bert_large(batch_size: int) -> Example:
    """BERT with 24 layers of 1024 and its masked language head: 335.17 million parameters."""
    words, targets = tokens(batch_size, _BERT_LENGTH, _BERT_VOCABULARY)
    masked = torch.rand(words.shape) < _MASKED
    return TokenPredictor(_Bert(1024, 24, 16)), (words, targets.where(masked, _IGNORED))


def vit_b(batch_size: int) -> Example:
    """ViT-B/16: 12 layers of 768 on 196 patches and a class token: 86.57 million parameters."""
    return Classifier(_Vit(768, 12, 12)), images(batch_size, _VIT_SIDE)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.inward(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
        )
        out: Tensor = self.outward(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class _Block(nn.Module):
    """Attention and a perceptron, each beside a shortcut, normalised before or after."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        norm_first: bool = True,
        dropout: float = _DROPOUT,
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = nn.Sequential(
            _Attention(width, heads, causal, dropout), nn.Dropout(dropout)
        )
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=epsilon) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for part, norm in zip((self.attention, self.perceptron), self.norms, strict=True):
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x


class _Gpt(nn.Module):
    """A decoder whose output layer is its embedding."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_GPT_VOCABULARY, width)
        self.positions = nn.Embedding(_GPT_LENGTH, width)
        self.dropout = nn.Dropout(_DROPOUT)
        self.blocks = nn.Sequential(*(_Block(width, heads, causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        x = self.norm(self.blocks(self.dropout(x)))
        return functional.linear(x, self.words.weight)


class _Bert(nn.Module):
    """An encoder with the head that predicts masked words; all tokens are of one segment."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_BERT_VOCABULARY, width)
        self.positions = nn.Embedding(_BERT_LENGTH, width)
        self.segments = nn.Embedding(2, width)
        self.enter = nn.Sequential(nn.LayerNorm(width, eps=1e-12), nn.Dropout(_DROPOUT))
        self.blocks = nn.Sequential(
            *(_Block(width, heads, norm_first=False, epsilon=1e-12) for _ in range(layers))
        )
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12)
        )
        self.bias = nn.Parameter(torch.zeros(_BERT_VOCABULARY))
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        first = self.segments(torch.zeros_like(tokens))
        x = self.words(tokens) + self.positions.weight[: tokens.shape[1]] + first
        x = self.head(self.blocks(self.enter(x)))
        return functional.linear(x, self.words.weight, self.bias)


class _Vit(nn.Module):
    """An encoder of patches; the class is read from a token of its own."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        patches = (_VIT_SIDE // _VIT_PATCH) ** 2
        self.patches = nn.Conv2d(3, width, _VIT_PATCH, stride=_VIT_PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, patches + 1, width) * 0.02)
        self.blocks = nn.Sequential(
            *(_Block(width, heads, dropout=0.0, epsilon=1e-6) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        scores: Tensor = self.head(self.norm(self.blocks(x)[:, 0]))
        return scores
