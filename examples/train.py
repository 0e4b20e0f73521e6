"""A training job for `headway submit`: the script of the tutorial "Two jobs on one network"."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import headway.torch

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(2000, 2000))
headway.torch.attach(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    loss = model(torch.randn(8, 2000)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
