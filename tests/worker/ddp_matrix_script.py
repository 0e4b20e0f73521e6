"""Trains with every combination of DDP's options, plain and attached, and compares the weights.

    python ddp_matrix_script.py CASE...

Each rank trains each case twice from the same weights. Rank 0 prints `CASE equal` or
`CASE different BY`, the largest difference of a weight.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import headway.torch
from worker.patience import be_patient

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS = 4

FLAGS = ("view", "unused", "zeroed", "accumulated", "partly")
"""gradient_as_bucket_view; find_unused_parameters with a branch that only some steps use;
zero_grad(set_to_none=False); two passes per step, the first in no_sync; some gradients set to None
at the last moment."""

CASES = [
    "+".join(("plain", *chosen))
    for count in range(len(FLAGS) + 1)
    for chosen in itertools.combinations(FLAGS, count)
]
CASES += ["static", "static+view", "static+view+zeroed"]
CASES += ["sparse", "sparse+view", "sparse+accumulated", "sparse+zeroed", "iteration+sparse"]
CASES += ["join", "join+view", "join+dynamic", "join+dynamic+view", "join+dynamic+accumulated"]
CASES += ["iteration", "iteration+view+accumulated", "iteration+join+dynamic"]


class Branches(torch.nn.Module):
    """Layers, one of which is used on demand; with `sparse`, behind an embedding."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(20, 8, sparse=True) if sparse else None
        self.first, self.branch = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.never = torch.nn.Linear(8, 8)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, values: torch.Tensor, branch: bool) -> torch.Tensor:
        if self.table is not None:
            values = self.table(values.abs().mul(7).long() % 20).mean(1)
        hidden: torch.Tensor = self.first(values).tanh()
        result: torch.Tensor = self.last(self.branch(hidden) if branch else hidden)
        return result


def train(case: str, attached: bool) -> torch.Tensor:
    """Train a model; return its weights."""
    flags = case.split("+")
    torch.manual_seed(1)
    module = Branches("sparse" in flags)
    if "unused" not in flags:
        module.never.requires_grad_(False)
    model = DistributedDataParallel(
        module,
        bucket_cap_mb=0.0002,
        gradient_as_bucket_view="view" in flags,
        find_unused_parameters="unused" in flags,
        static_graph="static" in flags,
    )
    if attached:
        headway.torch.attach(model, gate="iteration" if "iteration" in flags else "bucket")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(100 + RANK)
    # With `join` each rank has a different number of batches.
    steps = STEPS + 2 * RANK if "join" in flags else STEPS
    joining: Any = contextlib.nullcontext()
    if "join" in flags:
        joining = model.join(divide_by_initial_world_size="dynamic" not in flags)
    with joining:
        for step in range(steps):
            optimizer.zero_grad(set_to_none="zeroed" not in flags)
            passes = 2 if "accumulated" in flags else 1
            for number in range(passes):
                quiet: Any = model.no_sync() if number + 1 < passes else contextlib.nullcontext()
                with quiet:
                    branch = "unused" not in flags or (step + RANK) % 2 == 0
                    loss = model(torch.randn(5, 8), branch).square().sum()
                    if "partly" in flags and step % 2:
                        module.last.weight.grad = None
                        module.first.bias.grad = None
                    loss.backward()
            optimizer.step()
    return torch.cat([one.detach().flatten() for one in module.parameters()])


def main() -> None:
    be_patient()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in sys.argv[1:]:
        plain, attached = train(case, attached=False), train(case, attached=True)
        if RANK == 0:
            same = torch.equal(plain, attached)
            far = float((plain - attached).abs().max())
            assert plain.isfinite().all(), case
            print(case, "equal" if same else f"different {far:.2g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
