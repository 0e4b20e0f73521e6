"""A rank's turns to compute: asked for before a pass, ended when the device has done it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, ClassVar

import torch

from headway.worker.client import GateClient
from headway.worker.session import session_of
from headway.worker.timing import Meter

_cuda: Any = torch.cuda
_CPU = torch.device("cpu")
_engine: Any = torch.autograd.Variable._execution_engine
"""Not typed in PyTorch."""


class Turns:
    """This process's turns: it has one at a time, and asking for the next ends the one before.

    So no turn outlives a pass that failed by more than the time to the next one.
    """

    mine: ClassVar[Turns | None] = None
    """This process's, once it may have one."""

    def __init__(self, client: GateClient) -> None:
        self._client = client
        self._lock = Lock()
        self._request: int | None = None  # that it computes by
        self._device = _CPU
        self._backward = False
        self._ending: SimpleQueue[tuple[Any, int]] | None = None
        self.meter: Meter | None = None
        """Does not count the time that goes by while waiting for a turn."""

    def begin(self, device: torch.device, *, backward: bool = False) -> None:
        """Wait for a turn to compute on a device."""
        self._end()
        if not backward:
            self._backward = False
        if device.type == "cuda" and not backward:
            # An all-reduce may be under way there: who has the turn must not wait for the network.
            _cuda.current_stream(device).synchronize()
        request = self._client.ask_to_compute()
        with contextlib.nullcontext() if self.meter is None else self.meter.pause():
            self._client.wait(request)
        self._request, self._device = request, device

    def end(self) -> None:
        """End the turn, if there is one, as soon as the device has done what it was given so far.

        Waits for nothing: a thread waits for a GPU.
        """
        self._backward = False
        self._end()

    def _end(self) -> None:
        with self._lock:
            request, self._request = self._request, None
        if request is None:
            return
        if self._device.type != "cuda":
            self._client.computed(request)
            return
        if self._ending is None:
            self._ending = SimpleQueue()
            Thread(target=self._end_all, name="headway-turns", daemon=True).start()
        event = _cuda.Event(blocking=True)
        self._ending.put((_cuda.current_stream(self._device).record_event(event), request))

    @property
    def in_backward(self) -> bool:
        """Whether this process has a backward pass's turn."""
        return self._backward

    @property
    def computing(self) -> bool:
        """Whether this process has a turn."""
        return self._request is not None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Compute inside, on the current GPU if any is used; a turn that there is will do."""
        if self.computing:
            yield
            return
        on_gpu = _cuda.is_initialized()
        self.begin(torch.device("cuda", _cuda.current_device()) if on_gpu else _CPU)
        try:
            yield
        finally:
            self.end()

    def follow(self, model: torch.nn.parallel.DistributedDataParallel) -> None:
        """Let a model's forward and backward passes have turns.

        Forward is that of the module inside: DDP talks to other ranks before it (buffers), and
        whoever has the turn must not wait for a rank that has not.
        """
        device = next(model.parameters()).device
        module: torch.nn.Module = model.module
        module.register_forward_pre_hook(lambda _module, _inputs: self.begin(device))
        module.register_forward_hook(
            lambda _module, _inputs, _outputs: self.end(), always_call=True
        )

        def begin_backward(_gradient: torch.Tensor) -> None:
            with self._lock:
                begun, self._backward = self._backward, True
            if not begun:
                self.begin(device, backward=True)
                # Called when all gradients are there, and before DDP's own, which waits for the
                # network; also where DDP sends nothing (`no_sync`).
                _engine.queue_callback(self.end)

        def expect_backward(_model: torch.nn.Module, _inputs: Any, outputs: Any) -> None:
            for tensor in _tensors(outputs):
                if tensor.requires_grad:
                    tensor.register_hook(begin_backward)  # type: ignore[no-untyped-call]

        model.register_forward_hook(expect_backward)

    def _end_all(self) -> None:
        assert self._ending is not None
        while True:
            event, request = self._ending.get()
            # An error of the GPU shows in the training itself.
            with contextlib.suppress(Exception):
                event.synchronize()
            self._client.computed(request)


@functools.cache
def turns_of(rank: int) -> Turns | None:
    """Return this process's turns; None if it has no gate to ask."""
    session = session_of(rank, computes=True)
    Turns.mine = None if session is None else Turns(session.client)
    return Turns.mine


def computing() -> bool:
    """Tell whether this process has a turn."""
    return Turns.mine is not None and Turns.mine.computing


def gradients_are_there() -> None:
    """End a turn of this process that stands around a backward pass: DDP waits inside it.

    A pass that has its own turn ends it by itself.
    """
    if Turns.mine is not None and not Turns.mine.in_backward:
        Turns.mine.end()


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in what a model returns."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    return [tensor for part in parts for tensor in _tensors(part)]
