"""VGG-16 (Simonyan and Zisserman 2014) and ResNet-50 (He et al. 2015) on images of 224 x 224."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from headway.calibrate.models.shipped.tasks import CLASSES, Classifier, images

_SIDE = 224

Example = tuple[nn.Module, tuple[Tensor, Tensor]]


def vgg16(batch_size: int) -> Example:
    """VGG-16, its configuration D: 138.36 million parameters."""
    return Classifier(_vgg((2, 2, 3, 3, 3))), images(batch_size, _SIDE)


def _vgg(depths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = 3
    for stage, depth in enumerate(depths):
        width = min(64 << stage, 512)
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    side = _SIDE >> len(depths)
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(channels * side * side, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(4096, CLASSES),
    )


def resnet50(batch_size: int) -> Example:
    """ResNet-50 with the stride in the 3 x 3 convolutions: 25.56 million parameters."""
    return Classifier(_resnet((3, 4, 6, 3))), images(batch_size, _SIDE)


def _resnet(depths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for block in range(depth):
            stride = 2 if block == 0 and stage > 0 else 1
            layers.append(_Bottleneck(channels, width, stride))
            channels = _Bottleneck.WIDER * width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)
    )


class _Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1 beside a shortcut."""

    WIDER = 4
    """How many times more channels leave than the inner convolution has."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        outer = self.WIDER * width
        self.residual = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, outer, 1, stride=stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.residual(x) + self.shortcut(x), inplace=True)
