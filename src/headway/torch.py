"""PyTorch jobs that ask Headway's gate before they use the network or a shared GPU.

    model = DistributedDataParallel(model)
    headway.torch.attach(model)

Without a gate (HEADWAY_GATE is not set) nothing changes. With one, rank 0 asks before each
all-reduce; the other ranks start at once and wait for rank 0 inside the collective, as they would
for any slow rank. The arithmetic is DDP's own, so weights are identical bit for bit. When the gate
is gone, or does not answer for half of the process group's timeout, training continues ungated.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from headway.domain.errors import InputError, shown
from headway.domain.limits import MAX_BYTES, whole
from headway.gate.environment import GATE
from headway.worker.backward import at_end_of_backward
from headway.worker.profile import IterationAverage
from headway.worker.queue_thread import QueueThread
from headway.worker.session import Session, session_of
from headway.worker.timing import (
    Laps,
    Mark,
    PassTimer,
    backward_parts_ns,
    forward_backward_ns,
    mark,
    optimizer_ns,
)
from headway.worker.turn_client import (
    TurnClient,
    computing,
    end_turn_around_backward,
    turn_client_of,
)

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket

GATE_SHARE = 0.5
"""The part of a process group's timeout for which rank 0 waits for a grant. The other ranks wait
for rank 0 inside the all-reduce, and need the rest of the timeout for the all-reduce itself."""

WARMUP_ITERATIONS = 2
"""Iterations that are not part of the average one: in the first PyTorch allocates memory, and
before the second DDP rebuilds its buckets, for which all ranks wait for each other."""

_cuda: Any = torch.cuda
"""Not typed in PyTorch."""


def attach(
    ddp_model: DistributedDataParallel,
    gate: Literal["bucket", "iteration"] = "bucket",
    *,
    compute: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Make a model's all-reduces ask the gate; call it on every rank, before the first iteration.

    Args:
        ddp_model: what DistributedDataParallel returned; it must have no communication hook.
        gate: ask for each bucket of gradients, or once per iteration for all of them.
        compute: also ask before each forward and backward pass, on every rank, so that jobs on a
            shared GPU compute one at a time. Inside a pass the model must not communicate.
        optimizer: with `compute`, also ask before each of its steps; these must not communicate.

    Raises:
        TypeError: the model is not in DistributedDataParallel; also without a gate.
    """
    # What torch.compile returns holds the model that it was given.
    if not isinstance(getattr(ddp_model, "_orig_mod", ddp_model), DistributedDataParallel):
        raise TypeError(
            "attach() takes the model that DistributedDataParallel(model) returned, not "
            f"{type(ddp_model).__name__}. FSDP and pipelines cannot be attached; jobs that call "
            "their collectives themselves use headway.torch.communication()."
        )
    if gate not in ("bucket", "iteration"):
        raise InputError(f"must be 'bucket' or 'iteration', not {shown(gate)}.", field="gate")
    if compute and any(
        isinstance(module, torch.nn.SyncBatchNorm) for module in ddp_model.modules()
    ):
        raise InputError(
            "SyncBatchNorm communicates inside a pass: jobs that take turns could deadlock.",
            field="compute",
        )
    if optimizer is not None and not compute:
        raise InputError("takes turns only with compute=True.", field="optimizer")
    if not os.environ.get(GATE):
        return
    # A separate group: rank 0 starts these all-reduces later than other ranks, so in a group with
    # other collectives (those of SyncBatchNorm, say) the order would differ between ranks.
    group = dist.new_group(
        dist.get_process_group_ranks(ddp_model.process_group),
        timeout=_timeout(ddp_model.process_group),
        backend=dist.get_backend_config(ddp_model.process_group),
        use_local_synchronization=True,
    )
    average = _Average(ddp_model, group)
    session = session_of(dist.get_rank())
    turns = turn_client_of(dist.get_rank()) if compute else None
    if turns is not None:
        turns.follow(ddp_model)
        if optimizer is not None:
            turns.follow_steps(optimizer, next(ddp_model.parameters()).device)
    # Lambdas: DDP compares the annotations of a hook with its own types, and these have none.
    reducer = (
        _UngatedModel(group, average)
        if session is None
        else _GatedModel(session, ddp_model, group, average, turns, each_bucket=gate == "bucket")
    )
    ddp_model.register_comm_hook(None, lambda _state, bucket: reducer.all_reduce(bucket))


@contextlib.contextmanager
def communication(message_bytes: int) -> Iterator[None]:
    """Ask the gate before the communication inside, for jobs without DDP.

    All ranks enter; rank 0 waits for the grant, and the collective makes the others wait for rank
    0. The block must contain all-reduces of `message_bytes` in total that end inside it; on a GPU
    the block waits for its stream at the end.
    """
    whole(message_bytes, "message_bytes", 0, MAX_BYTES, " bytes")
    if computing():
        raise InputError("communication() must not be used inside computation().")
    session = session_of(_rank())
    if session is None:
        yield
        return
    request = session.client.message_ready(message_bytes, message_bytes)
    try:
        session.client.wait_for_grant(request, time.monotonic() + _longest_wait_s(None))
        yield
    finally:
        try:
            if _cuda.is_initialized():
                _cuda.current_stream().synchronize()
        finally:
            session.sent_bytes += message_bytes
            session.client.message_done(request)


@contextlib.contextmanager
def computation() -> Iterator[None]:
    """Ask the gate before the computation inside, for jobs without DDP; each rank for itself.

    Jobs on a shared GPU compute one at a time. The block must not communicate with other ranks. The
    turn ends when the current GPU has finished the work queued inside; the block does not wait for
    that.
    """
    turns = turn_client_of(_rank())
    with contextlib.nullcontext() if turns is None else turns.turn():
        yield


def iteration() -> None:
    """Count an iteration in jobs without DDP; call it on every rank at the end of each one."""
    session = session_of(_rank())
    if session is not None:
        session.iteration_done(0, 0, session.sent_bytes)
        session.sent_bytes = 0


def _rank() -> int:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isascii() and rank.isdigit() else 0


def _timeout(group: dist.ProcessGroup | None) -> timedelta | None:
    """Return the timeout of a process group, or of the default one; None if it is unknown."""
    if group is None and not (dist.is_available() and dist.is_initialized()):
        return None
    used: Any = group or dist.group.WORLD
    for device in getattr(used, "_device_types", ()):
        options = getattr(used._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", None)
        if isinstance(timeout, timedelta):
            return timeout
    return None


def _longest_wait_s(group: dist.ProcessGroup | None) -> float:
    """Return for how long rank 0 may wait for a grant before an all-reduce in a group."""
    timeout = _timeout(group)
    return math.inf if timeout is None else GATE_SHARE * timeout.total_seconds()


class _Average:
    """Divides gradients by the number of ranks, by the same operations as DDP without a hook.

    DDP multiplies a gradient by the reciprocal while it copies it into a bucket, and divides one
    that is in the bucket already: with `gradient_as_bucket_view`, unless it is new in this pass.
    Sparse gradients are always divided. Inside `join(divide_by_initial_world_size=False)` ranks
    that have joined do not count.
    """

    def __init__(self, model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
        self._model, self._group = model, group
        self._ranks = group.size()
        self._joined = True  # whether this rank has done no forward pass since the last message
        self._noted = False
        self._storages: dict[int, int | None] = {}  # by parameter, where its gradient is
        self._parameters = [one for one in model.parameters() if one.requires_grad]
        model.register_forward_pre_hook(self._begin)
        if model.gradient_as_bucket_view:
            parameters: list[Any] = self._parameters
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(self._note)

    def __call__(self, bucket: GradBucket) -> torch.Tensor:
        """Divide a bucket in place, and return its buffer."""
        if bucket.index() == 0:
            self._ranks = self._count_ranks()
        buffer = bucket.buffer()
        if buffer.is_sparse:
            buffer.div_(self._ranks)
        elif not self._storages:
            buffer.mul_(1.0 / self._ranks)
        else:
            self._divide_views(bucket, buffer.untyped_storage().data_ptr())
        if bucket.is_last():
            self._joined, self._noted = True, False
        return buffer

    def _divide_views(self, bucket: GradBucket, storage: int) -> None:
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if self._storages.get(id(parameter)) == storage:
                gradient.div_(self._ranks)
            else:
                gradient.mul_(1.0 / self._ranks)

    def _begin(self, model: torch.nn.Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self._joined = self._noted = False

    def _note(self, parameter: torch.Tensor) -> None:
        """Note where a gradient is before DDP sees it; the first one of a pass, where all are.

        With the first one DDP also takes those that are not used in this pass.
        """
        for each in (parameter,) if self._noted else self._parameters:
            self._storages[id(each)] = _storage(each.grad)
        self._noted = True

    def _count_ranks(self) -> int:
        model: Any = self._model
        if not model._join_config.enable or model._divide_by_initial_world_size:
            return self._group.size()
        count = torch.tensor(int(not self._joined), device=self._parameters[0].device)
        dist.all_reduce(count, group=self._group)
        return max(1, int(count.item()))


def _storage(gradient: torch.Tensor | None) -> int | None:
    if gradient is None or gradient.is_sparse:
        return None
    return gradient.untyped_storage().data_ptr()


def _size_bytes(tensor: torch.Tensor) -> int:
    """Return what an all-reduce of a tensor sends from each rank."""
    if tensor.is_sparse:
        return tensor._indices().nbytes + tensor._values().nbytes
    return tensor.nbytes


class _UngatedModel:
    """The all-reduces of a rank that does not ask: all but rank 0's.

    On the CPU a thread of ours sends them, as on rank 0: Gloo would call Python in a thread of its
    own, and one that does so while the interpreter shuts down aborts the process (SIGABRT).
    """

    def __init__(self, group: dist.ProcessGroup, average: _Average) -> None:
        self._group, self._average = group, average
        self._sender = QueueThread(self._send, "headway-sender")

    def all_reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket over all ranks; never blocks."""
        tensor = self._average(bucket)
        if bucket.is_last():
            end_turn_around_backward()
        if tensor.is_cuda:
            work: Any = dist.all_reduce(tensor, group=self._group, async_op=True)
            averaged: torch.futures.Future[torch.Tensor] = work.get_future().then(
                lambda future: future.value()[0]
            )
            return averaged
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._sender.put((tensor, future))
        return future

    def _send(self, item: tuple[torch.Tensor, torch.futures.Future[torch.Tensor]]) -> None:
        tensor, future = item
        try:
            dist.all_reduce(tensor, group=self._group)
        except Exception as error:
            # Raised again where the backward pass waits for this bucket.
            failed: Any = future
            failed.set_exception(error)
        else:
            future.set_result(tensor)


class _Bucket(NamedTuple):
    """A bucket to send: whether it waits for a grant first, and whether its end is the message's.

    `ready` is the event of a GPU stream after which its gradients are complete. The last bucket of
    an iteration has its `laps`, and `sizes`, the bytes of all its buckets.
    """

    tensor: torch.Tensor
    future: torch.futures.Future[torch.Tensor]
    request: int
    begins_message: bool
    ends_message: bool
    ready: Any
    laps: Laps | None
    sizes: list[int]
    wait_until_s: float


class _GatedModel:
    """Rank 0's gated all-reduces: the hook hands buckets to a thread, which waits for the grants.

    The thread sends one bucket after another, in the order of the hook's calls.
    """

    def __init__(
        self,
        session: Session,
        model: DistributedDataParallel,
        group: dist.ProcessGroup,
        average: _Average,
        turns: TurnClient | None,
        each_bucket: bool,
    ) -> None:
        self._session, self._group, self._average = session, group, average
        self._each_bucket = each_bucket
        self._total_bytes = sum(each.nbytes for each in model.parameters() if each.requires_grad)
        self._unsent_bytes = 0
        self._request = 0
        self._open = False  # whether a message has begun whose last bucket is not in the queue
        self._longest_wait_s = _longest_wait_s(group)
        # Hooks run after the one that waits for a turn, and so do not measure that wait.
        self._timer = PassTimer(model if turns is None else model.module)
        self._counts = session.counts_next_model()
        self._sizes: list[int] = []  # of the iteration's buckets so far
        self._iterations = 0
        self._last_end: Mark = None  # when the last all-reduce of an iteration ended
        self._mean = IterationAverage()
        if turns is not None and self._counts:
            turns.timer = self._timer
        self._streams: dict[torch.device, Any] = {}
        self._sender: QueueThread[_Bucket | int] = QueueThread(self._handle, "headway-sender")

    def all_reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Ask for a bucket and hand it to the thread; runs in autograd's thread, never blocks."""
        tensor = self._average(bucket)
        first, last = bucket.index() == 0, bucket.is_last()
        size_bytes = _size_bytes(tensor)
        if first:
            self._unsent_bytes, self._sizes = self._total_bytes, []
        self._sizes.append(size_bytes)
        self._timer.bucket_ready(first)
        if self._each_bucket:
            unsent_bytes = size_bytes if last else max(self._unsent_bytes, size_bytes)
            self._request = self._session.client.message_ready(size_bytes, unsent_bytes)
            self._unsent_bytes -= size_bytes
        elif first:
            self._request = self._session.client.message_ready(self._total_bytes, self._total_bytes)
            at_end_of_backward(self._end_message)
        self._open = not (self._each_bucket or last)
        if last:
            end_turn_around_backward()
        on_gpu = tensor.is_cuda
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=[tensor.device] if on_gpu else []
        )
        self._sender.put(
            _Bucket(
                tensor,
                future,
                self._request,
                begins_message=self._each_bucket or first,
                ends_message=self._each_bucket or last,
                ready=_cuda.current_stream(tensor.device).record_event() if on_gpu else None,
                laps=self._timer.stop(on_gpu) if last else None,
                sizes=self._sizes,
                wait_until_s=time.monotonic() + self._longest_wait_s,
            )
        )
        return future

    def _end_message(self) -> None:
        """End the message of a pass that has failed before its last bucket."""
        if self._open:
            self._open = False
            self._sender.put(self._request)

    def _handle(self, item: _Bucket | int) -> None:
        """Send a bucket, or end the message of this request."""
        if isinstance(item, int):
            self._session.client.message_done(item)
        else:
            self._send_when_granted(item)

    def _send_when_granted(self, bucket: _Bucket) -> None:
        if bucket.begins_message:
            self._session.client.wait_for_grant(bucket.request, bucket.wait_until_s)
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
                self._report_end(bucket)
            self._count(bucket, mark(on_gpu=False))
            bucket.future.set_result(bucket.tensor)
            return
        stream = self._stream(bucket.tensor.device)
        try:
            with _cuda.stream(stream):
                stream.wait_event(bucket.ready)
                dist.all_reduce(bucket.tensor, group=self._group)
                end = mark(on_gpu=True)
                # A stream that uses the result waits for this one to reach this point.
                bucket.future.set_result(bucket.tensor)
            end.synchronize()
        finally:
            self._report_end(bucket)
        self._count(bucket, end)

    def _report_end(self, bucket: _Bucket) -> None:
        """Report the end of a message, whether it succeeded or failed."""
        if bucket.ends_message:
            self._session.client.message_done(bucket.request)

    def _count(self, bucket: _Bucket, end: Mark) -> None:
        """Count and measure an iteration when its last bucket is sent."""
        if bucket.laps is None or not self._counts:
            return
        forward_ns, backward_ns = forward_backward_ns(bucket.laps)
        self._session.iteration_done(forward_ns, backward_ns, self._total_bytes)
        self._iterations += 1
        if self._iterations > WARMUP_ITERATIONS and bucket.laps.passes:
            between_ns = optimizer_ns(self._last_end, bucket.laps)
            parts_ns = backward_parts_ns(bucket.laps)
            if self._mean.add(forward_ns, between_ns, parts_ns, bucket.sizes):
                self._session.profiled(self._mean)
        self._last_end = end

    def _stream(self, device: torch.device) -> Any:
        if device not in self._streams:
            self._streams[device] = _cuda.Stream(device)
        return self._streams[device]
