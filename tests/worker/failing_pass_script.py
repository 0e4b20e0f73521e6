"""A DDP job whose second backward pass fails halfway on every rank; it catches that and waits.

    python failing_pass_script.py GATE COMPUTE

GATE is `bucket` or `iteration`, COMPUTE 0 or 1. Prints `failed TIMEOUT`, the timeout in seconds of
the process groups, and ends with its standard input.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import headway.torch
from worker.patience import be_patient

TIMEOUT_S = 45


class Fails(torch.autograd.Function):
    """Raises in the second backward pass."""

    passes: ClassVar[int] = 0

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Fails.passes += 1
        if Fails.passes == 2:
            raise ValueError("failed on purpose")
        return gradient


class Model(torch.nn.Module):
    """Two layers; the gradients of the last one are computed in any case."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        fails: Any = Fails
        result: torch.Tensor = self.last(fails.apply(self.first(values)))
        return result


def main() -> None:
    gate: Any = sys.argv[1]
    be_patient()
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))
    # After the first pass, the first bucket holds the last layer alone.
    model = DistributedDataParallel(Model(), bucket_cap_mb=0.0002)
    headway.torch.attach(model, gate=gate, compute=sys.argv[2] == "1")
    try:
        for _ in range(2):
            model(torch.randn(4, 8)).sum().backward()
    except ValueError:
        groups: Any = dist.distributed_c10d._world.pg_map
        timeouts = {group._get_backend(torch.device("cpu")).options._timeout for group in groups}
        print("failed", *(int(one.total_seconds()) for one in timeouts), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
