"""A process group of this process alone."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel


def ddp_model(*layers: torch.nn.Module) -> DistributedDataParallel:
    """Return a small model in DistributedDataParallel, with these layers added after that."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    finally:
        dist.destroy_process_group()
    model.module.extend(layers)
    return model
