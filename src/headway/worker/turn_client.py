"""A rank's turns to compute: requested before a pass, ended when the device has finished it."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from threading import Event, Lock
from typing import Any, ClassVar, NamedTuple

import torch

from headway.worker.backward import at_end_of_backward
from headway.worker.client import GateClient
from headway.worker.queue_thread import QueueThread
from headway.worker.session import session_of
from headway.worker.timing import PassTimer

LINGER_S = 0.01
"""How long a turn outlasts a forward pass or a step on the CPU, for the pass that follows to ask.

It competes with the passes of other jobs, as in the simulator; without it, any of them goes first.
A GPU still computes when the CPU asks."""

_cuda: Any = torch.cuda
"""Not typed in PyTorch."""
_CPU = torch.device("cpu")


class _EndingTurn(NamedTuple):
    """A turn that ends when a GPU reaches an event."""

    event: Any
    request: int


class _LingeringTurn(NamedTuple):
    """A turn in which nothing runs any more; it ends at a monotonic time or with the next one."""

    request: int
    until_s: float
    ended: Event


class TurnClient:
    """This process's turns: at most one at a time; asking for the next ends the previous one."""

    of_process: ClassVar[TurnClient | None] = None
    """This process's client, once it has one."""

    def __init__(self, client: GateClient) -> None:
        self.in_backward = False
        """Whether this process has the turn of a backward pass."""
        self.timer: PassTimer | None = None
        """Does not count the time spent waiting for a turn."""
        self._client = client
        self._lock = Lock()
        self._request: int | None = None  # of the current turn
        self._lingering: _LingeringTurn | None = None
        self._device = _CPU
        self._ending: QueueThread[_EndingTurn | _LingeringTurn] | None = None

    @property
    def computing(self) -> bool:
        """Whether this process has a turn."""
        return self._request is not None

    def begin(self, device: torch.device, *, backward: bool = False) -> None:
        """Wait for a turn to compute on a device."""
        if self._device.type == "cuda":
            self._end_turn()
        if not backward:
            self.in_backward = False
        if device.type == "cuda" and not backward:
            # An all-reduce may be in flight there: a turn must not wait for the network.
            _cuda.current_stream(device).synchronize()
        request = self._client.compute_ready()
        # After the request, so that the scheduler knows of both when it gives the next turn.
        self._end_turn()
        self._end_lingering(self._lingering)
        with contextlib.nullcontext() if self.timer is None else self.timer.pause():
            self._client.wait_for_grant(request)
        self._request, self._device = request, device

    def end(self, *, linger: bool = False) -> None:
        """End the turn, if there is one, as soon as the device has done its work so far.

        With `linger` a turn on the CPU ends with the next request, or `LINGER_S` later. Never
        blocks: a thread waits.
        """
        self.in_backward = False
        self._end_turn(linger)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Compute inside, on the current GPU if one is in use; a turn already held is reused."""
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
        """Take a turn for each forward and backward pass of a model.

        Forward turns are those of the module inside DDP: DDP itself communicates before it
        (buffers), and a rank with a turn must not wait for a rank without one.
        """
        device = next(model.parameters()).device
        module: torch.nn.Module = model.module
        module.register_forward_pre_hook(lambda _module, _inputs: self.begin(device))
        module.register_forward_hook(
            lambda _module, _inputs, outputs: self.end(
                linger=outputs is not None and torch.is_grad_enabled()
            ),
            always_call=True,
        )

        def begin_backward(_gradient: torch.Tensor) -> None:
            with self._lock:
                begun, self.in_backward = self.in_backward, True
            if not begun:
                self.begin(device, backward=True)
                # Also where DDP sends nothing (`no_sync`).
                at_end_of_backward(self.end)

        def expect_backward(_model: torch.nn.Module, _inputs: Any, outputs: Any) -> None:
            for tensor in _tensors(outputs):
                if tensor.requires_grad:
                    tensor.register_hook(begin_backward)  # type: ignore[no-untyped-call]

        model.register_forward_hook(expect_backward)

    def follow_steps(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        """Take a turn for each step of an optimizer."""
        optimizer.register_step_pre_hook(lambda *_: self.begin(device))
        optimizer.register_step_post_hook(lambda *_: self.end(linger=True))

    def _end_turn(self, linger: bool = False) -> None:
        on_gpu = self._device.type == "cuda"
        with self._lock:
            request, self._request = self._request, None
        if request is None:
            return
        if on_gpu:
            event = _cuda.Event(blocking=True)
            event = _cuda.current_stream(self._device).record_event(event)
            self._end_later(_EndingTurn(event, request))
        elif linger:
            turn = _LingeringTurn(request, time.monotonic() + LINGER_S, Event())
            with self._lock:
                self._lingering = turn
            self._end_later(turn)
        else:
            self._client.compute_done(request)

    def _end_lingering(self, turn: _LingeringTurn | None) -> None:
        """End a turn, if it still lingers."""
        with self._lock:
            if turn is None or self._lingering is not turn:
                return
            self._lingering = None
        turn.ended.set()
        self._client.compute_done(turn.request)

    def _end_later(self, turn: _EndingTurn | _LingeringTurn) -> None:
        if self._ending is None:
            self._ending = QueueThread(self._end_when_due, "headway-turns")
        self._ending.put(turn)

    def _end_when_due(self, turn: _EndingTurn | _LingeringTurn) -> None:
        if isinstance(turn, _LingeringTurn):
            if not turn.ended.wait(max(0.0, turn.until_s - time.monotonic())):
                self._end_lingering(turn)
            return
        # A GPU error surfaces in the training itself.
        with contextlib.suppress(Exception):
            turn.event.synchronize()
        self._client.compute_done(turn.request)


@functools.cache
def turn_client_of(rank: int) -> TurnClient | None:
    """Return this process's turn client; None if it has no gate to ask."""
    session = session_of(rank, computes=True)
    TurnClient.of_process = None if session is None else TurnClient(session.client)
    return TurnClient.of_process


def computing() -> bool:
    """Return whether this process has a turn."""
    return TurnClient.of_process is not None and TurnClient.of_process.computing


def end_turn_around_backward() -> None:
    """End a turn that spans a backward pass, once all gradients are computed: DDP waits inside it.

    A backward pass that has its own turn ends it itself.
    """
    turns = TurnClient.of_process
    if turns is not None and not turns.in_backward:
        turns.end()


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in the output of a model."""
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
