"""Model definitions: how they are found, and what they must return.

A definition is a function of a batch size that returns a model and a batch. The model is a
`torch.nn.Module`; called with the batch, it returns its loss or an object with a `loss`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from headway.calibrate.models.shipped import SHIPPED
from headway.domain.errors import HeadwayError, InputError, did_you_mean, shown
from headway.interrupts import uninterruptible
from headway.user_files import load_file

ALL = "all"
USUAL_BATCH = 16
USUAL_OPTIMIZER = "adamw"

_RIGHT = (
    "it must return (model, batch): a torch.nn.Module, and a tuple or dict of the tensors it is "
    "called with"
)


@dataclass(frozen=True, slots=True)
class Example:
    """A model in training mode and a batch, on the device to measure."""

    model: nn.Module
    batch: tuple[Tensor, ...] | dict[str, Tensor]

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors held apart from activations and gradients."""
        batch = self.batch.values() if isinstance(self.batch, dict) else self.batch
        return [*self.model.parameters(), *self.model.buffers(), *batch]

    def loss(self) -> Tensor:
        """Return the loss of one forward pass."""
        if isinstance(self.batch, dict):
            output = self.model(**self.batch)
        else:
            output = self.model(*self.batch)
        loss = output if isinstance(output, Tensor) else getattr(output, "loss", None)
        if not isinstance(loss, Tensor):
            raise InputError(
                f"the model returned {_kind(output)}; it must return its loss, or an object with "
                ".loss."
            )
        if loss.numel() != 1:
            raise InputError(
                f"the model's loss has the shape {tuple(loss.shape)}; it must be a scalar."
            )
        if not loss.requires_grad:
            raise InputError(
                "the model's loss depends on no parameter, so backward() has nothing to do."
            )
        return loss


@dataclass(frozen=True, slots=True)
class Definition:
    """A function that makes a model and a batch, and its location for messages."""

    name: str
    function: Callable[[int], Any]
    file: str
    batch_sizes: tuple[int, ...]
    optimizer: str = USUAL_OPTIMIZER
    shipped: bool = False

    def example(self, batch_size: int, device: str) -> Example:
        """Make the model and a batch of this size on a device."""
        torch.manual_seed(0)
        # Shipped models are created on the device; users' functions need not expect that.
        with torch.device(device) if self.shipped else nullcontext():
            made = self.function(batch_size)
        return _checked(made, device)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an exception in the definition into one line that names where it was raised."""
        try:
            yield
        except HeadwayError as error:
            if isinstance(error, InputError) and error.source is None:
                raise error.at(f"{self.file}:{self.function.__name__}") from None
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise _at_fault(error, self.file) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    signs = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def find_definitions(targets: list[str]) -> list[Definition]:
    """Find definitions by name, `module:function` or `file.py:function`."""
    found: dict[str, Definition] = {}
    for target in targets:
        for definition in _find(target):
            if definition.name in found:
                raise InputError(
                    f"two of the models are called '{definition.name}'; give one of them."
                )
            found[definition.name] = definition
    return list(found.values())


def _find(target: str) -> list[Definition]:
    if target == ALL:
        return [_shipped(name) for name in SHIPPED]
    if target in SHIPPED:
        return [_shipped(target)]
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise InputError(
            f"unknown model {shown(target)}.{did_you_mean(target, [*SHIPPED, ALL])} "
            "(Your own is file.py:function or module:function.)"
        )
    with uninterruptible():
        module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    file = getattr(module, "__file__", None) or place
    function = getattr(module, name, None)
    if not callable(function) or not hasattr(function, "__name__"):
        offered = [key for key, value in vars(module).items() if callable(value)]
        raise InputError(
            f"has no function {shown(name)}.{did_you_mean(name, offered)}", source=file
        )
    return [Definition(name, function, file, (USUAL_BATCH,))]


def _shipped(name: str) -> Definition:
    entry = SHIPPED[name]
    module = importlib.import_module(f"headway.calibrate.models.shipped.{entry.module}")
    function = getattr(module, entry.function)
    return Definition(
        name, function, str(module.__file__), entry.batch_sizes, entry.optimizer, True
    )


def _from_file(path: Path) -> ModuleType:
    try:
        return load_file(path, "headway_model")
    except HeadwayError:
        raise
    except (Exception, SystemExit) as error:
        raise _at_fault(error, str(path.resolve())) from error


def _from_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise InputError(
            f"cannot import module {shown(name)}: {_said(error)} "
            "(A file is path/to/file.py:function.)"
        ) from error


def _at_fault(error: BaseException, file: str) -> InputError:
    """Return the innermost line in the user's file of a traceback, or else its origin."""
    if isinstance(error, SyntaxError):
        return InputError(
            _said(error), source=error.filename or file, line=error.lineno, column=error.offset
        )
    place: tuple[str, int | None] = (file, None)
    trace, seen = error.__traceback__, False
    while trace is not None:
        inside = trace.tb_frame.f_code.co_filename == file
        if inside:
            place, seen = (file, trace.tb_lineno), True
        elif not seen:
            place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return InputError(_said(error), source=place[0], line=place[1])


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _checked(made: object, device: str) -> Example:
    """Return what a definition returned as an example on the device."""
    if not isinstance(made, tuple) or len(made) != 2:
        raise InputError(f"returned {_kind(made)}; {_RIGHT}.")
    model, batch = made
    if not isinstance(model, nn.Module):
        raise InputError(f"returned {_kind(model)} as the model; {_RIGHT}.")
    if not isinstance(batch, (tuple, dict)):
        raise InputError(f"returned {_kind(batch)} as the batch; {_RIGHT}.")
    values = batch.values() if isinstance(batch, dict) else batch
    for value in values:
        if not isinstance(value, Tensor):
            raise InputError(f"returned a batch that holds {_kind(value)}; {_RIGHT}.")
    moved: tuple[Tensor, ...] | dict[str, Tensor]
    if isinstance(batch, dict):
        moved = {key: value.to(device) for key, value in batch.items()}
    else:
        moved = tuple(value.to(device) for value in batch)
    return Example(model.to(device).train(), moved)


def _kind(value: object) -> str:
    """Describe a value by its type, and a tuple by its length."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
