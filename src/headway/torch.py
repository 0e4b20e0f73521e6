"""PyTorch jobs that ask Headway's gate before they use the network, or a GPU that others use too.

    model = DistributedDataParallel(model)
    headway.torch.attach(model)

Without a gate (HEADWAY_GATE is not set) nothing changes. With one, rank 0 asks before each
all-reduce; the other ranks start at once and wait for rank 0 inside the collective, as they would
for any slow rank. The arithmetic is DDP's own, so weights are the same bit for bit. When the gate
is gone, training goes on unasked.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from headway.domain.errors import InputError, shown
from headway.domain.limits import MOST_BYTES, whole
from headway.gate import variables
from headway.worker.session import Session, session_of
from headway.worker.timing import Laps, Meter, split
from headway.worker.turns import Turns, computing, gradients_are_there, turns_of

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket

LONGEST_WAIT = timedelta(days=7)
"""How long other ranks wait for rank 0 inside an all-reduce: a gate may let a message wait for
longer than process groups usually do."""

LAST_WAIT_S = 5.0
"""How long the end of a process waits for what it still sends."""

_cuda: Any = torch.cuda
"""Not typed in PyTorch."""


def attach(
    ddp_model: DistributedDataParallel,
    gate: Literal["bucket", "iteration"] = "bucket",
    *,
    compute: bool = False,
) -> None:
    """Let a model's all-reduces ask the gate, on every rank and before the first iteration.

    Args:
        ddp_model: the model; it must have no communication hook.
        gate: what asks: each bucket of gradients, or all of an iteration's at once.
        compute: whether each rank also asks before its forward and its backward passes, so that on
            a GPU that jobs share one computes at a time. Inside a pass the model must not talk to
            other ranks.
    """
    if gate not in ("bucket", "iteration"):
        raise InputError(f"must be 'bucket' or 'iteration', not {shown(gate)}.", field="gate")
    if compute and any(isinstance(one, torch.nn.SyncBatchNorm) for one in ddp_model.modules()):
        raise InputError(
            "SyncBatchNorm talks to other ranks inside a pass: jobs that take turns could wait for "
            "each other for ever.",
            field="compute",
        )
    if not os.environ.get(variables.GATE):
        return
    # A group of its own: rank 0 starts these later than the others, so that in a group that other
    # collectives use too (those of SyncBatchNorm, say) ranks would differ in their order.
    group = dist.new_group(
        dist.get_process_group_ranks(ddp_model.process_group),
        timeout=LONGEST_WAIT,
        backend=dist.get_backend_config(ddp_model.process_group),
        use_local_synchronization=True,
    )
    average = _Average(ddp_model, group.size())
    session = session_of(dist.get_rank())
    turns = turns_of(dist.get_rank()) if compute else None
    if turns is not None:
        turns.follow(ddp_model)
    # DDP compares the annotations of a hook with its own types: these have none.
    if session is None:
        ddp_model.register_comm_hook(
            None, lambda _state, bucket: _all_reduce(bucket, group, average)
        )
    else:
        gated = _Gated(session, ddp_model, group, average, turns, each_bucket=gate == "bucket")
        ddp_model.register_comm_hook(None, lambda _state, bucket: gated.take(bucket))


@contextlib.contextmanager
def communication(message_bytes: int) -> Iterator[None]:
    """Ask the gate before the communication inside, for jobs without DDP.

    All ranks enter; rank 0 waits for the grant, and the collective makes the others wait for rank
    0. What is inside must be all-reduces of so many bytes and end inside; of what runs on a GPU,
    the end is waited for.
    """
    whole(message_bytes, "message_bytes", 0, MOST_BYTES, " bytes")
    if computing():
        raise InputError("communication() must not be used inside computation().")
    session = session_of(_rank())
    if session is None:
        yield
        return
    request = session.client.ask(message_bytes, message_bytes)
    try:
        session.client.wait(request)
        yield
    finally:
        try:
            if _cuda.is_initialized():
                _cuda.current_stream().synchronize()
        finally:
            session.sent_bytes += message_bytes
            session.client.done(request)


@contextlib.contextmanager
def computation() -> Iterator[None]:
    """Ask the gate before the computation inside, for jobs without DDP; every rank for itself.

    On a GPU that jobs share one computes at a time. What is inside must not talk to other ranks.
    The turn ends when the current GPU has done all that it was given inside; nobody waits for that.
    """
    turns = turns_of(_rank())
    with contextlib.nullcontext() if turns is None else turns.turn():
        yield


def iteration() -> None:
    """Count an iteration, in jobs without DDP; call it on every rank as each one ends."""
    session = session_of(_rank())
    if session is not None:
        session.iterated(0, 0, session.sent_bytes)
        session.sent_bytes = 0


def _rank() -> int:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isascii() and rank.isdigit() else 0


class _Average:
    """Divides gradients by the number of ranks, exactly as DDP does without a hook.

    DDP multiplies by the reciprocal while it copies gradients into a bucket, and divides gradients
    that lie in the bucket already: those that `gradient_as_bucket_view` put there, if they were not
    set to None since.
    """

    def __init__(self, model: DistributedDataParallel, ranks: int) -> None:
        self._ranks = ranks
        self._in_place = False
        self._parameter = next(one for one in model.parameters() if one.requires_grad)
        if model.gradient_as_bucket_view:
            model.register_forward_pre_hook(self._look)

    def __call__(self, gradients: torch.Tensor) -> None:
        if self._in_place:
            gradients.div_(self._ranks)
        else:
            gradients.mul_(1.0 / self._ranks)

    def _look(self, _model: torch.nn.Module, _inputs: Any) -> None:
        self._in_place = self._parameter.grad is not None


def _all_reduce(
    bucket: GradBucket, group: dist.ProcessGroup, average: _Average
) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket over all ranks, asking nobody."""
    tensor = bucket.buffer()
    average(tensor)
    if bucket.is_last():
        gradients_are_there()
    work: Any = dist.all_reduce(tensor, group=group, async_op=True)
    averaged: torch.futures.Future[torch.Tensor] = work.get_future().then(
        lambda future: future.value()[0]
    )
    return averaged


class _Bucket(NamedTuple):
    """A bucket on its way: what to send, and whom to tell."""

    tensor: torch.Tensor
    future: torch.futures.Future[torch.Tensor]
    request: int
    asks: bool
    ends: bool
    ready: Any
    laps: Laps | None


class _Gated:
    """Rank 0's side of a model: the hook hands buckets to a thread, which waits for the grants.

    The thread sends one bucket after the other, in the order of the hook's calls.
    """

    def __init__(
        self,
        session: Session,
        model: DistributedDataParallel,
        group: dist.ProcessGroup,
        average: _Average,
        turns: Turns | None,
        each_bucket: bool,
    ) -> None:
        self._session, self._group, self._average = session, group, average
        self._each_bucket = each_bucket
        self._total_bytes = sum(one.nbytes for one in model.parameters() if one.requires_grad)
        self._unsent_bytes = 0
        self._request = 0
        # After the hook that waits for a turn, and so without that time.
        self._meter = Meter(model if turns is None else model.module)
        self._counts = session.counts_this_model()
        if turns is not None and self._counts:
            turns.meter = self._meter
        self._streams: dict[torch.device, Any] = {}
        self._buckets: SimpleQueue[_Bucket | None] = SimpleQueue()
        self._thread = Thread(target=self._send_all, name="headway-sender", daemon=True)
        self._thread.start()
        # A thread that is inside PyTorch when Python ends would end the process by SIGABRT.
        atexit.register(self._end)

    def take(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Ask for a bucket and leave it to the thread; runs in autograd's, and waits for nobody."""
        tensor = bucket.buffer()
        self._average(tensor)
        first = bucket.index() == 0
        if first:
            self._unsent_bytes = self._total_bytes
        if self._each_bucket:
            unsent_bytes = max(self._unsent_bytes, tensor.nbytes)
            self._request = self._session.client.ask(tensor.nbytes, unsent_bytes)
            self._unsent_bytes -= tensor.nbytes
        elif first:
            self._request = self._session.client.ask(self._total_bytes, self._total_bytes)
        if bucket.is_last():
            gradients_are_there()
        on_gpu = tensor.is_cuda
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=[tensor.device] if on_gpu else []
        )
        self._buckets.put(
            _Bucket(
                tensor,
                future,
                self._request,
                asks=self._each_bucket or first,
                ends=self._each_bucket or bucket.is_last(),
                ready=_cuda.current_stream(tensor.device).record_event() if on_gpu else None,
                laps=self._meter.stop(on_gpu) if bucket.is_last() else None,
            )
        )
        return future

    def _end(self) -> None:
        self._buckets.put(None)
        self._thread.join(LAST_WAIT_S)

    def _send_all(self) -> None:
        while (bucket := self._buckets.get()) is not None:
            if bucket.asks:
                self._session.client.wait(bucket.request)
            try:
                self._send(bucket)
            except Exception as error:
                # Raised again where the backward pass waits for this bucket.
                if not bucket.future.done():
                    failed: Any = bucket.future
                    failed.set_exception(error)

    def _send(self, bucket: _Bucket) -> None:
        if bucket.ready is None:
            try:
                dist.all_reduce(bucket.tensor, group=self._group)
            finally:
                self._free(bucket)
            self._count(bucket)
            bucket.future.set_result(bucket.tensor)
            return
        stream = self._stream(bucket.tensor.device)
        try:
            with _cuda.stream(stream):
                stream.wait_event(bucket.ready)
                dist.all_reduce(bucket.tensor, group=self._group)
                end = stream.record_event(_cuda.Event(blocking=True))
                # Whoever takes the result waits on the GPU for what this stream does until here.
                bucket.future.set_result(bucket.tensor)
            end.synchronize()
        finally:
            self._free(bucket)
        self._count(bucket)

    def _free(self, bucket: _Bucket) -> None:
        """Tell the gate that a bucket is done, however it went."""
        if bucket.ends:
            self._session.client.done(bucket.request)

    def _count(self, bucket: _Bucket) -> None:
        """Count an iteration with its last bucket."""
        if bucket.laps is not None and self._counts:
            self._session.iterated(*split(bucket.laps), self._total_bytes)

    def _stream(self, device: torch.device) -> Any:
        if device not in self._streams:
            self._streams[device] = _cuda.Stream(device)
        return self._streams[device]
