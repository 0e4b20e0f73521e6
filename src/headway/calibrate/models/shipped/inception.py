"""Inception-v3 (Szegedy et al. 2015) with its auxiliary head, on images of 299 x 299."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.calibrate.models.shipped.tasks import CLASSES, images

_SIDE = 299
_AUXILIARY_WEIGHT = 0.4


def inception_v3(batch_size: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Inception-v3 as it is trained, auxiliary head included: 27.16 million parameters."""
    return _Inception(), images(batch_size, _SIDE)


class _Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            _conv(3, 32, 3, stride=2),
            _conv(32, 32, 3),
            _conv(32, 64, 3, padding=1),
            nn.MaxPool2d(3, stride=2),
            _conv(64, 80, 1),
            _conv(80, 192, 3),
            nn.MaxPool2d(3, stride=2),
            _grid_35(192, 32),
            _grid_35(256, 64),
            _grid_35(288, 64),
            _reduction_to_17(288),
            _grid_17(128),
            _grid_17(160),
            _grid_17(160),
            _grid_17(192),
        )
        self.auxiliary = nn.Sequential(
            nn.AvgPool2d(5, stride=3),
            _conv(768, 128, 1),
            _conv(128, 768, 5),
            nn.Flatten(),
            nn.Linear(768, CLASSES),
        )
        self.top = nn.Sequential(
            _reduction_to_8(768),
            _grid_8(1280),
            _grid_8(2048),
            nn.AdaptiveAvgPool2d(1),
            nn.Dropout(),
            nn.Flatten(),
            nn.Linear(2048, CLASSES),
        )

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        shared = self.trunk(images)
        loss = functional.cross_entropy(self.top(shared), labels)
        auxiliary = functional.cross_entropy(self.auxiliary(shared), labels)
        return loss + _AUXILIARY_WEIGHT * auxiliary


class _Beside(nn.Module):
    """Branches that all take the input; their outputs are put one beside the other."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _conv(
    channels: int,
    width: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(width, eps=0.001),
        nn.ReLU(inplace=True),
    )


def _row(channels: int, width: int, length: int) -> nn.Sequential:
    return _conv(channels, width, (1, length), padding=(0, length // 2))


def _column(channels: int, width: int, length: int) -> nn.Sequential:
    return _conv(channels, width, (length, 1), padding=(length // 2, 0))


def _pooled(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), _conv(channels, width, 1))


def _grid_35(channels: int, pooled: int) -> nn.Module:
    return _Beside(
        _conv(channels, 64, 1),
        nn.Sequential(_conv(channels, 48, 1), _conv(48, 64, 5, padding=2)),
        nn.Sequential(
            _conv(channels, 64, 1), _conv(64, 96, 3, padding=1), _conv(96, 96, 3, padding=1)
        ),
        _pooled(channels, pooled),
    )


def _reduction_to_17(channels: int) -> nn.Module:
    return _Beside(
        _conv(channels, 384, 3, stride=2),
        nn.Sequential(
            _conv(channels, 64, 1), _conv(64, 96, 3, padding=1), _conv(96, 96, 3, stride=2)
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _grid_17(inner: int, channels: int = 768, width: int = 192) -> nn.Module:
    return _Beside(
        _conv(channels, width, 1),
        nn.Sequential(_conv(channels, inner, 1), _row(inner, inner, 7), _column(inner, width, 7)),
        nn.Sequential(
            _conv(channels, inner, 1),
            _column(inner, inner, 7),
            _row(inner, inner, 7),
            _column(inner, inner, 7),
            _row(inner, width, 7),
        ),
        _pooled(channels, width),
    )


def _reduction_to_8(channels: int) -> nn.Module:
    return _Beside(
        nn.Sequential(_conv(channels, 192, 1), _conv(192, 320, 3, stride=2)),
        nn.Sequential(
            _conv(channels, 192, 1),
            _row(192, 192, 7),
            _column(192, 192, 7),
            _conv(192, 192, 3, stride=2),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _grid_8(channels: int) -> nn.Module:
    return _Beside(
        _conv(channels, 320, 1),
        nn.Sequential(_conv(channels, 384, 1), _Beside(_row(384, 384, 3), _column(384, 384, 3))),
        nn.Sequential(
            _conv(channels, 448, 1),
            _conv(448, 384, 3, padding=1),
            _Beside(_row(384, 384, 3), _column(384, 384, 3)),
        ),
        _pooled(channels, 192),
    )
