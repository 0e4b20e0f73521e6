"""One process of a job of the benchmark: real gradients and all-reduces, computation that sleeps.

    python training.py BYTES FORWARD_MS BACKWARD_MS ITERATIONS FOLDER

The machine has no GPU for every process, so what a GPU would compute is time in which the processor
is free. All else is a training job's: DistributedDataParallel, gradients of so many bytes, an
optimizer. All gradients are ready when the backward pass ends, as in the paper's jobs.

When it is ready to train, rank 0 makes a file JOB in the folder; all begin when `go` is there.
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
    """Takes its time in both directions."""

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
    """Weights of so many bytes, and passes of so many seconds."""

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
