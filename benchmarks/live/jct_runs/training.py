"""One rank of a benchmark job: real gradients and all-reduces, but computation that sleeps.

    python training.py BYTES FORWARD_MS BACKWARD_MS ITERATIONS BUCKETS FOLDER

The machine has no GPU for every rank, so GPU computation is replaced by sleeping, which leaves the
processor free. Everything else is as in a real training job: DistributedDataParallel, gradients of
BYTES bytes, an optimizer. With one bucket all gradients are ready when the backward pass ends, as
in the paper, and the job takes turns to compute. With more, as many layers have equal parts of the
gradients, and DDP sends each while the backward pass runs on.

It warms up first: in the first iteration PyTorch allocates memory, and before the second DDP
rebuilds its buckets, which a real job does not notice among thousands. When it is ready for
ITERATIONS more, rank 0 creates the file FOLDER/JOB; all start once FOLDER/go exists. At the end
rank 0 writes into its file when training began and ended, in monotonic nanoseconds.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import headway.torch


class _Computation(torch.autograd.Function):
    """Sleeps in both passes."""

    @staticmethod
    def forward(
        ctx: Any, weights: torch.Tensor, value: torch.Tensor, forward_s: float, backward_s: float
    ) -> Any:
        ctx.gradient, ctx.backward_s = torch.ones_like(weights), backward_s
        time.sleep(forward_s)
        return value + weights[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        time.sleep(ctx.backward_s)
        return ctx.gradient, gradients[0], None, None


class Model(torch.nn.Module):
    """A model with equal layers, whose weights have a given size and passes a given length."""

    def __init__(self, weight_bytes: int, forward_s: float, backward_s: float, layers: int) -> None:
        super().__init__()
        parts = (torch.zeros(weight_bytes // 4 // layers) for _ in range(layers))
        self.layers = torch.nn.ParameterList(parts)
        self._times_s = (forward_s / layers, backward_s / layers)

    def forward(self) -> Any:
        apply: Any = _Computation.apply
        value = torch.zeros((), requires_grad=True)
        for weights in self.layers:
            value = apply(weights, value, *self._times_s)
        return value


def main() -> None:
    weight_bytes, forward_ms, backward_ms, iterations, buckets = map(int, sys.argv[1:6])
    folder = Path(sys.argv[6])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    inner = Model(weight_bytes, forward_ms / 1e3, backward_ms / 1e3, buckets)
    model = DistributedDataParallel(inner, bucket_cap_mb=weight_bytes / 2**20 / buckets)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if buckets == 1:
        headway.torch.attach(model, gate="iteration", compute=True, optimizer=optimizer)
    else:
        headway.torch.attach(model)

    def train(iterations: int) -> None:
        for _ in range(iterations):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()

    train(1)
    model()  # DDP rebuilds its buckets at the beginning of a forward pass
    dist.barrier()
    file = folder / os.environ["HEADWAY_JOB"]
    if dist.get_rank() == 0:
        file.touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    began_ns = time.monotonic_ns()
    train(iterations)
    if dist.get_rank() == 0:
        file.write_text(f"{began_ns} {time.monotonic_ns()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
