"""Data parallelism whose gradients are sent while the backward pass still runs.

S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headway.domain.graph import Graph, Message, Task, check_nodes
from headway.domain.layers import Layer
from headway.domain.limits import MAX_BYTES, MAX_GPUS, whole
from headway.domain.models import MEBIBYTE
from headway.graphs.layers import some

BUCKET_BYTES = 25 * MEBIBYTE
FIRST_BUCKET_BYTES = MEBIBYTE
"""PyTorch's: the first bucket is small, so that sending begins early."""


def ddp(
    layers: Iterable[Layer],
    ranks: int,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    first_bucket_bytes: int = FIRST_BUCKET_BYTES,
    optimizer_ns: int = 0,
) -> Graph:
    """Return the graph of PyTorch's DistributedDataParallel.

    Gradients are ready from the last layer to the first. The backward pass is cut where a bucket is
    full, and each bucket is all-reduced while the pass goes on; a layer is never split.

    Args:
        layers: The model's layers, in the order of the forward pass.
        ranks: The number of GPUs.
        bucket_bytes: A bucket is full when it has at least these bytes.
        first_bucket_bytes: The same for the first bucket.
        optimizer_ns: The time of the optimizer's step, after all gradients; 0 for none.
    """
    model = some(layers, "layers")
    cuts = cut_backward(model, bucket_bytes, first_bucket_bytes)
    return bucketed(ranks, sum(layer.forward_ns for layer in model), cuts, optimizer_ns)


def bucketed(
    ranks: int, forward_ns: int, cuts: Iterable[tuple[int, int]], optimizer_ns: int = 0
) -> Graph:
    """Return the graph of an iteration whose backward pass is cut where buckets are ready.

    Args:
        ranks: The number of GPUs.
        forward_ns: The time of the forward pass.
        cuts: The parts of the backward pass: time, and bytes of the bucket that is ready then.
        optimizer_ns: The time of the optimizer's step, after all gradients; 0 for none.
    """
    everyone = range(whole(ranks, "ranks", 1, MAX_GPUS))
    parts = list(cuts)
    check_nodes((len(parts) + 2) * ranks, len(parts) * ranks)
    tasks = [Task("forward", everyone, forward_ns)]
    messages = []
    for number, (time_ns, size) in enumerate(parts, start=1):
        tasks.append(Task(f"backward-{number}", everyone, time_ns))
        if size and ranks > 1:
            after = [f"backward-{number}"]
            messages.append(
                Message(f"gradients-{number}", "all-reduce", [everyone], size, after=after)
            )
    if optimizer_ns:
        after = [message.name for message in messages]
        tasks.append(Task("optimizer", everyone, optimizer_ns, after))
    return Graph(ranks, tasks, messages)


def cut_backward(
    layers: Sequence[Layer], bucket_bytes: int, first_bucket_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield the parts of the backward pass: time, and bytes of the bucket that is full then.

    The rest after the last bucket has the bytes that are left, possibly none.
    """
    whole(bucket_bytes, "bucket_bytes", 1, MAX_BYTES)
    limit = whole(first_bucket_bytes, "first_bucket_bytes", 1, MAX_BYTES)
    time_ns, size = 0, 0
    for layer in reversed(layers):
        time_ns += layer.backward_ns
        size += layer.parameter_bytes
        if size >= limit:
            yield time_ns, size
            time_ns, size, limit = 0, 0, bucket_bytes
    if time_ns:
        yield time_ns, size
