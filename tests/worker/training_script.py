"""A small DDP job for tests: trains with and without the gate, and prints digests of the weights.

    python training_script.py STEPS VARIANT...

Each rank trains each variant twice from the same weights, first without the gate, then attached.
Rank 0 prints `VARIANT DIGEST DIGEST`. With PAUSE=STEP:FILE an attached training waits before that
step until the file exists and there is a gate; DEVICE (cpu) and BACKEND (gloo) say where it trains.
With SPANS=FILE it also asks for turns, computes slowly, and writes `BEGIN END` (monotonic
nanoseconds) of each attached pass to FILE.RANK.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import headway.torch
from headway.worker.session import session_of
from worker.patience import be_patient

RANK = int(os.environ["RANK"])
DEVICE = os.environ.get("DEVICE", "cpu")
BACKEND = os.environ.get("BACKEND", "gloo")


SPANS = os.environ.get("SPANS", "")


class Stamp(torch.nn.Module):
    """Records when passes begin and end, and slows each one down."""

    times: ClassVar[list[int]] = []

    def __init__(self, forward_begins: bool) -> None:
        super().__init__()
        self.forward_begins = forward_begins

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.note(self.forward_begins)
        if torch.is_grad_enabled():
            if self.forward_begins:
                values = values.detach().requires_grad_()
            returning: Any = values
            returning.register_hook(lambda _gradient: self.note(not self.forward_begins))
        # A separate tensor: hooks on the model's output run before those inside it.
        return values.clone()

    @classmethod
    def note(cls, begins: bool) -> None:
        cls.times.append(time.monotonic_ns())
        if begins:
            time.sleep(0.002)

    @classmethod
    def write(cls) -> None:
        pairs = zip(cls.times[::2], cls.times[1::2], strict=True)
        lines = [f"{begin} {end}\n" for begin, end in pairs]
        with open(f"{SPANS}.{RANK}", "a") as stream:
            stream.writelines(lines)


def pause(step: int) -> None:
    """Wait for the test's file, and a gate, before the step that PAUSE names."""
    at, _, name = os.environ.get("PAUSE", "-1:").partition(":")
    if step == int(at) and RANK == 0:
        print("pausing", flush=True)
        session = session_of(RANK)
        assert session is not None
        # A gate knows of this worker a moment before this worker knows of the gate.
        while not (Path(name).exists() and session.client.connected):
            time.sleep(0.01)


def model_of(options: dict[str, Any]) -> DistributedDataParallel:
    """Return a model with several buckets and the same weights on every call."""
    torch.manual_seed(1)
    layers: list[torch.nn.Module] = []
    for _ in range(4):
        layers += [torch.nn.Linear(32, 32), torch.nn.Tanh()]
    if SPANS:
        layers = [Stamp(forward_begins=True), *layers, Stamp(forward_begins=False)]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    return DistributedDataParallel(model, bucket_cap_mb=0.01, **options)


def train(variant: str, steps: int, attached: bool) -> str:
    """Train a model; return a digest of its weights."""
    options = {
        "static": {"static_graph": True},
        "view": {"gradient_as_bucket_view": True},
        "kept": {"gradient_as_bucket_view": True},
    }.get(variant, {})
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if attached:
        gate: Any = "iteration" if variant == "iteration" else "bucket"
        steps_ask = optimizer if SPANS else None
        headway.torch.attach(model, gate=gate, compute=bool(SPANS), optimizer=steps_ask)
    if variant == "busy":
        # A collective inside the backward pass, in the default group.
        first_layer = next(one for one in model.modules() if isinstance(one, torch.nn.Linear))
        first_layer.register_full_backward_hook(lambda *_: dist.all_reduce(torch.ones(3)) and None)
    by_hand = attached and variant == "around"
    around = headway.torch.computation if by_hand else contextlib.nullcontext
    torch.manual_seed(100 + RANK)
    for step in range(steps):
        if attached:
            pause(step)
        optimizer.zero_grad(set_to_none=variant != "kept")
        for part in range(2 if variant == "accumulated" else 1):
            last = variant != "accumulated" or part == 1
            model.require_backward_grad_sync = last
            with around():
                loss = model(torch.randn(16, 32).to(DEVICE)).square().mean()
                loss.backward()
        optimizer.step()
    with torch.no_grad():
        model(torch.ones(16, 32).to(DEVICE))
    weights = b"".join(one.detach().cpu().numpy().tobytes() for one in model.parameters())
    return hashlib.sha256(weights).hexdigest()


def reduce_by_hand(steps: int, asking: bool) -> str:
    """All-reduce without DDP; return a digest of the result."""
    torch.manual_seed(RANK)
    total = torch.zeros(100, device=DEVICE)
    for _ in range(steps):
        piece = torch.randn(100).to(DEVICE)
        if asking and SPANS:
            with headway.torch.computation(), headway.torch.computation():
                Stamp.note(True)
                Stamp.note(False)
        if asking:
            with headway.torch.communication(piece.nbytes):
                dist.all_reduce(piece)
            headway.torch.iteration()
        else:
            dist.all_reduce(piece)
        total += piece
    return hashlib.sha256(total.cpu().numpy().tobytes()).hexdigest()


def main() -> None:
    steps, variants = int(sys.argv[1]), sys.argv[2:]
    be_patient()
    torch.set_num_threads(1)
    dist.init_process_group(BACKEND)
    for variant in variants:
        digests = []
        for attached in (False, True):
            Stamp.times.clear()
            run = reduce_by_hand if variant == "by-hand" else functools.partial(train, variant)
            digests.append(run(steps, attached))
        if SPANS:
            Stamp.write()
        if RANK == 0:
            # In one piece: a warning of another thread may come between pieces.
            sys.stdout.write(f"{' '.join([variant, *digests])}\n")
            sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
