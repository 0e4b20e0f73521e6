"""One process of the measurement, under torchrun, on Ray or on the testbed.

Every node has as many processes as there are groups; group g is process g of every node. In a shot
of k the groups 0 to k - 1 all-reduce at the same time and the others wait. Each process times its
own part, from the barrier before the shot to the end of its all-reduce, so that no two clocks are
ever compared; the time of a group is that of its slowest process.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headway.calibrate.network.plan import ELEMENT_BYTES, Combination, Completion, Plan
from headway.calibrate.network.samples import Sample
from headway.domain.errors import InputError, MachineError
from headway.testbed.rate_client import message_on_network

_MPI = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Variables of Open MPI and MPICH with a process's local rank."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The samples, and a description of the measurement."""

    samples: list[Sample]
    about: dict[str, Any]


def is_rank() -> bool:
    """Return whether torchrun or mpirun started this process."""
    return "LOCAL_RANK" in os.environ or any(name in os.environ for name, _ in _MPI)


def measure(
    plan: Plan, progress: Callable[[float], None], gpu: int | None = None
) -> Measurement | None:
    """Take part in a measurement; return it on rank 0, and None elsewhere.

    Args:
        plan: The same on every rank.
        progress: Called on rank 0 with the share that is done.
        gpu: Index of this process's GPU among the visible ones; by default its local rank.
    """
    torch = import_torch()
    dist = torch.distributed
    local_rank, local_size = _local(plan.backend)
    if local_size < plan.concurrent:
        raise InputError(
            f"{plan.concurrent} concurrent groups need that many processes on each node, not "
            f"{local_size}: torchrun --nproc-per-node {plan.concurrent} …",
            field="--concurrent",
        )
    device = _device(torch, plan.backend, local_rank if gpu is None else gpu)
    _join(torch, plan)
    try:
        return _Rank(torch, plan, device, local_rank, local_size).measure(progress)
    except RuntimeError as error:
        raise MachineError(
            f"an all-reduce failed on {socket.gethostname()}: {first_line(error)}"
        ) from None
    finally:
        dist.destroy_process_group()


class _Rank:
    """A process of the measurement after the rendezvous."""

    def __init__(
        self, torch: Any, plan: Plan, device: Any, local_rank: int, local_size: int
    ) -> None:
        self._torch, self._plan, self._device = torch, plan, device
        self._local_rank = local_rank
        dist = torch.distributed
        self._rank, world = dist.get_rank(), dist.get_world_size()
        self._nodes = world // local_size
        if self._nodes < 2 or world % local_size:
            raise InputError(
                f"needs at least two nodes with {local_size} processes each; there are {world} "
                "processes in all."
            )
        if self._rank % local_size != local_rank:
            raise InputError(
                f"local process {local_rank} has rank {self._rank}; ranks must fill one node after "
                "the other (mpirun --map-by slot)."
            )
        timeout = timedelta(seconds=plan.timeout_s)
        control = None if plan.backend == "mpi" else "gloo"
        self._control = dist.new_group(backend=control, timeout=timeout)
        self._group = None
        for group in range(local_size):
            ranks = [node * local_size + group for node in range(self._nodes)]
            made = dist.new_group(ranks, timeout=timeout)
            if group == local_rank:
                self._group = made
        self._data = torch.zeros(max(plan.sizes_bytes) // ELEMENT_BYTES, device=device)

    def measure(self, progress: Callable[[float], None]) -> Measurement | None:
        """Run every shot of the plan."""
        rounds = self._plan.rounds()
        completion, samples, shot = Completion.of(rounds), [], 0
        hosts = self._gathered(socket.gethostname())
        for number, combinations in enumerate(rounds):
            times = []
            for combination in combinations:
                times.append(self._shoot(combination))
                if self._rank == 0:
                    progress(completion.count(combination))
            everyone = self._gathered(times)
            if everyone is None or number < self._plan.warm_up:
                continue
            for place, combination in enumerate(combinations):
                for group in range(combination.k):
                    ranks = range(group, len(everyone), len(everyone) // self._nodes)
                    slowest = max(everyone[rank][place] for rank in ranks)
                    samples.append(
                        Sample(shot, combination.k, combination.message_bytes, group, slowest)
                    )
                shot += 1
        if hosts is None:
            return None
        return Measurement(samples, self._about(hosts))

    def _shoot(self, combination: Combination) -> int:
        """Run one shot; return this process's time in ns, or 0 if it took no part."""
        dist, part = self._torch.distributed, self._local_rank < combination.k
        data = self._data[: combination.message_bytes // ELEMENT_BYTES]
        took_ns = 0
        self._settle()
        with message_on_network() if part else nullcontext():
            # The messages of the last shot no longer count, and all of this one do.
            dist.barrier(self._control)
            if part:
                started = time.perf_counter_ns()
                dist.all_reduce(data, group=self._group)
                self._settle()
                took_ns = max(1, time.perf_counter_ns() - started)
            # Messages end at different times; a testbed's penalty is that of k until the last does.
            dist.barrier(self._control)
        return took_ns

    def _settle(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def _gathered(self, value: Any) -> list[Any] | None:
        """Gather every process's value on rank 0."""
        dist = self._torch.distributed
        values = [None] * dist.get_world_size() if self._rank == 0 else None
        dist.gather_object(value, values, group=self._control)
        return values

    def _about(self, hosts: list[str]) -> dict[str, Any]:
        torch, plan = self._torch, self._plan
        about = {
            "backend": plan.backend,
            "device": "cpu",
            "nodes": self._nodes,
            "hosts": hosts[:: len(hosts) // self._nodes],
            "torch": torch.__version__,
        }
        if self._device.type == "cuda":
            about["device"] = torch.cuda.get_device_name(self._device)
            if plan.backend == "nccl":
                about["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return about


def import_torch() -> Any:
    """Import torch, or raise an error that says how to install it."""
    try:
        import torch
        import torch.distributed
    except ImportError:
        raise MachineError("PyTorch is not installed: pip install torch.") from None
    return torch


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, as a sentence."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".:") + "."


def _local(backend: str) -> tuple[int, int]:
    """Return this process's local rank, and the number of processes on its node."""
    names = [("LOCAL_RANK", "LOCAL_WORLD_SIZE"), *(_MPI if backend == "mpi" else ())]
    for rank, size in names:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    raise InputError(
        "the processes of a node must be started by torchrun, or by mpirun with --backend mpi."
    )


def _device(torch: Any, backend: str, gpu: int) -> Any:
    dist = torch.distributed
    has = {
        "gloo": dist.is_gloo_available,
        "nccl": dist.is_nccl_available,
        "mpi": dist.is_mpi_available,
    }
    if not has[backend]():
        raise InputError(f"this PyTorch was built without {backend}.", field="--backend")
    if backend != "nccl":
        return torch.device("cpu")
    if torch.cuda.device_count() <= gpu:
        raise InputError(
            f"nccl needs a GPU for every process, and this node has {torch.cuda.device_count()}.",
            field="--backend",
        )
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


def _join(torch: Any, plan: Plan) -> None:
    """Join the other processes, or raise an error that says why that failed."""
    _check_route()
    address = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    try:
        torch.distributed.init_process_group(
            plan.backend, timeout=timedelta(seconds=plan.timeout_s)
        )
    except (RuntimeError, ValueError, OSError) as error:
        text = str(error)
        if "EADDRINUSE" in text:
            raise MachineError(
                f"the port of {address} is in use on {socket.gethostname()}; choose another one."
            ) from None
        raise MachineError(
            f"{socket.gethostname()} could not reach the other processes at {address} within "
            f"{plan.timeout_s} s: {first_line(error)}"
        ) from None


def _check_route() -> None:
    """Raise if there is no route to the first process, where torch would wait forever."""
    address = os.environ.get("MASTER_ADDR")
    if address is None:
        return
    try:
        family, _, _, _, place = socket.getaddrinfo(address, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # Looks up a route; sends nothing.
    except OSError as error:
        raise MachineError(
            f"{socket.gethostname()} has no route to {address}: {error.strerror}."
        ) from None
