"""One rank of a benchmark job: real gradients and all-reduces, but computation that sleeps.

    python training.py BYTES FORWARD_MS BACKWARD_MS ITERATIONS FOLDER

The machine has no GPU for every rank, so GPU computation is replaced by sleeping, which leaves the
processor free. Everything else is as in a real training job: DistributedDataParallel, gradients of
BYTES bytes, an optimizer. All gradients are ready when the backward pass ends, as in the paper.

When it is ready to train, rank 0 creates the file FOLDER/JOB; all start once FOLDER/go exists.
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
    def forward(ctx: Any, weights: torch.Tensor, forward_s: float, backward_s: float) -> Any:
        ctx.gradient, ctx.backward_s = torch.ones_like(weights), backward_s
        time.sleep(forward_s)
        return weights[0].clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        time.sleep(ctx.backward_s)
        return ctx.gradient, None, None


class Model(torch.nn.Module):
    """A model with weights of a given size and passes of a given length."""

    def __init__(self, weight_bytes: int, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(weight_bytes // 4))
        self._times_s = (forward_s, backward_s)

    def forward(self) -> Any:
        apply: Any = _Computation.apply
        return apply(self.weights, *self._times_s)


def main() -> None:
    weight_bytes, forward_ms, backward_ms, iterations = map(int, sys.argv[1:5])
    folder = Path(sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model(weight_bytes, forward_ms / 1e3, backward_ms / 1e3))
    headway.torch.attach(model, gate="iteration", compute=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / os.environ["HEADWAY_JOB"]).touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    for _ in range(iterations):
        optimizer.zero_grad()
        model().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
