"""Measures a model layer by layer: times of both passes, parameters, and what is passed on."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

from torch import Tensor, nn

from headway.calibrate.models.devices import Device
from headway.domain.errors import InputError
from headway.domain.layers import MOST_LAYERS, Layer, merged

_CONTAINERS = (nn.Sequential, nn.ModuleList)


def layer_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the modules that are the layers of a model, with their names.

    Layers are blocks, such as those of a transformer: modules of one class that stand together in
    an `nn.Sequential` or `nn.ModuleList`. What is around them is taken apart, so that the other
    layers are the modules beside them, and in a model without blocks its children. A model that
    only wraps another is looked into.
    """
    return list(_layers("", model, outermost=True))


def _layers(name: str, module: nn.Module, outermost: bool) -> Iterator[tuple[str, nn.Module]]:
    children = list(module.named_children())
    # A list is never called itself.
    taken_apart = outermost or isinstance(module, nn.ModuleList) or _has_blocks(module)
    if not children or not taken_apart:
        yield f"{name} {type(module).__name__.lstrip('_')}".strip(), module
        return
    blocks = _block_classes(module)
    wraps = outermost and len(children) == 1
    for key, child in children:
        path = name if wraps else f"{name}.{key}".lstrip(".")
        if type(child) in blocks:
            yield f"{path} {type(child).__name__.lstrip('_')}", child
        else:
            yield from _layers(path, child, outermost=wraps)


def _has_blocks(module: nn.Module) -> bool:
    return bool(_block_classes(module)) or any(map(_has_blocks, module.children()))


def _block_classes(module: nn.Module) -> set[type[nn.Module]]:
    """Return the classes of which a container has several modules that have modules inside."""
    if not isinstance(module, _CONTAINERS):
        return set()
    counts = Counter(type(child) for child in module.children() if list(child.children()))
    return {kind for kind, count in counts.items() if count > 1 and kind not in _CONTAINERS}


@dataclass(slots=True)
class _Call:
    """One call of a layer's module in a forward pass, with marks."""

    name: str
    module: nn.Module
    activation_bytes: int
    end: Any
    returned: Any = None
    """When the backward pass has the gradient of what the call returned."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """The calls of one iteration, and the marks before forward, before backward and after it."""

    calls: Sequence[_Call]
    start: Any
    middle: Any
    end: Any

    def forward_ns(self, device: Device) -> list[float]:
        """Return the time from the end of the call before to the end of each call."""
        marks = [self.start, *(call.end for call in self.calls[:-1]), self.middle]
        return [device.between_ns(before, after) for before, after in pairwise(marks)]

    def backward_ns(self, device: Device) -> list[float]:
        """Return the time from the gradient of what each call returned to the one before it."""
        begins_ns = [0.0]
        for call in reversed(self.calls[:-1]):
            since = 0.0 if call.returned is None else device.between_ns(self.middle, call.returned)
            begins_ns.append(max(begins_ns[-1], since))
        begins_ns.append(max(begins_ns[-1], device.between_ns(self.middle, self.end)))
        return [after - before for before, after in pairwise(begins_ns)][::-1]


class LayerWatch:
    """Marks the calls of a model's layers in the iterations that are run while it is entered.

    The first iteration only shows which layer has which parameters; the others are timed.
    """

    def __init__(self, model: nn.Module, device: Device) -> None:
        self._model, self._device = model, device
        self._calls: list[_Call] = []
        self._passes: list[_Pass] = []
        self._sizes: dict[int, int] = {}
        """The bytes of the gradients that belong to each call."""
        self._completed: dict[Tensor, int] = {}
        """The call during whose backward pass the gradient of each parameter was complete."""
        self._hooks: list[Any] = []
        self._parameter_hooks: list[Any] = []

    def __enter__(self) -> Self:
        for name, module in layer_modules(self._model):
            self._hooks.append(module.register_forward_hook(self._called(name)))
        for parameter in self._model.parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    self._complete
                )
                self._parameter_hooks.append(hook)
        return self

    def __exit__(self, *_: object) -> None:
        for hook in (*self._hooks, *self._parameter_hooks):
            hook.remove()

    def take(self, start: Any, middle: Any, end: Any) -> None:
        """Take an iteration, given the marks before forward, before backward and after it."""
        calls, self._calls = self._calls, []
        if not calls:
            calls = [_Call(type(self._model).__name__, self._model, 0, middle)]
        self._passes.append(_Pass(calls, start, middle, end))
        if len(calls) != len(self._passes[0].calls):
            raise InputError(
                "the model calls different layers from pass to pass; they must be the same each "
                "time."
            )
        if self._parameter_hooks:
            for hook in self._parameter_hooks:
                hook.remove()
            self._parameter_hooks.clear()
            self._sizes = _sizes(calls, self._completed)

    def layers(self) -> list[Layer]:
        """Return the layers in the order of the forward pass, with the medians of their times.

        A layer without parameters is part of the one before it, and the first of the one after it.
        """
        self._device.finish()
        timed = self._passes[1:]
        forward = _medians([one.forward_ns(self._device) for one in timed])
        backward = _medians([one.backward_ns(self._device) for one in timed])
        parts: list[list[Layer]] = [[]]
        begun = False
        for at, call in enumerate(timed[0].calls):
            has_parameters = any(True for _ in call.module.parameters())
            if has_parameters and begun and len(parts) < MOST_LAYERS:
                parts.append([])
            begun = begun or has_parameters
            size = self._sizes.get(at, 0)
            named = call.name if has_parameters else ""
            parts[-1].append(
                Layer(forward[at], backward[at], size, call.activation_bytes, 0, named)
            )
        return [replace(merged(part), name=_name(part)) for part in parts]

    def _called(self, name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, _: object, output: object) -> None:
            tensors = list(_tensors(output))
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            call = _Call(name, module, size, self._device.mark())
            self._calls.append(call)

            def returned(_: Tensor) -> None:
                call.returned = self._device.mark()

            for tensor in tensors:
                if tensor.requires_grad:
                    tensor.register_hook(returned)  # type: ignore[no-untyped-call]
                    break

        return hook

    def _complete(self, parameter: Tensor) -> None:
        begun = [at for at, call in enumerate(self._calls) if call.returned is not None]
        self._completed[parameter] = min(begun, default=max(0, len(self._calls) - 1))


def _sizes(calls: Sequence[_Call], completed: Mapping[Tensor, int]) -> dict[int, int]:
    """Return the bytes of the gradients of each call.

    A parameter belongs to the first call of a layer that has it. One that no called layer has
    belongs to the call during whose backward pass its gradient was complete.
    """
    owners = dict(completed)
    for at in reversed(range(len(calls))):
        owners.update({one: at for one in calls[at].module.parameters() if one in completed})
    found: Counter[int] = Counter()
    for parameter, at in owners.items():
        found[at] += parameter.numel() * parameter.element_size()
    return dict(found)


def _tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in what a module returned."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _medians(rows: Sequence[Sequence[float]]) -> list[int]:
    """Return the medians of columns, in whole ns and at least 1."""
    return [max(1, round(statistics.median(column))) for column in zip(*rows, strict=True)]


def _name(part: Sequence[Layer]) -> str:
    return next((layer.name for layer in part if layer.name), "")
