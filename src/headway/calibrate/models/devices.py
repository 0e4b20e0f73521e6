"""What models are measured on: a GPU or the processor, with its clock and its memory."""

from __future__ import annotations

import gc
import platform
import re
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from headway.domain.errors import InputError

CONTEXT_BYTES = 2 * 2**30
"""More than any CUDA context with its libraries takes."""

_BOARDS = (
    (r"V100-SXM2", "v100-sxm2"),
    (r"V100-PCIE", "v100-pcie"),
    (r"P100-SXM2", "p100-sxm2"),
    (r"P100-PCIE", "p100-pcie"),
    (r"\bT4$", "t4"),
    (r"A100-SXM", "a100-sxm4"),
    (r"A100.*PCIE", "a100-pcie"),
    (r"H100.*HBM3", "h100-sxm5"),
    (r"H100 PCIE", "h100-pcie"),
    (r"H200$", "h200-sxm5"),
)
"""How drivers name the boards whose types Headway knows."""


class Peak:
    """The most memory that watched passes took, in bytes."""

    bytes = 0


class Device(ABC):
    """Where passes run: marks in time, the time between two of them, the memory they took."""

    kind: str
    name: str
    gpu: str
    """The type of GPU, as clusters and profiles name it."""

    @abstractmethod
    def mark(self) -> Any:
        """Mark this point of the work, which the device may reach later."""

    @abstractmethod
    def between_ns(self, start: Any, end: Any) -> float:
        """Return the time between two marks; all work must be done."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all work is done."""

    @abstractmethod
    def clear(self) -> None:
        """Give back what earlier models held."""

    @abstractmethod
    def watch(self, held: Iterable[Tensor]) -> AbstractContextManager[Peak]:
        """Return a context that yields the `Peak` of the passes inside, given what is held."""

    @abstractmethod
    def notice(self) -> str | None:
        """Return what makes measurements on this device doubtful, if anything does."""

    def versions(self) -> dict[str, str]:
        """Return what is known of the software below the models."""
        return {
            "driver": "",
            "cuda": "",
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        }


class Processor(Device):
    """The CPU: a monotonic clock, and memory as the tensors that must be held at one time."""

    kind = "cpu"
    gpu = "cpu"

    def __init__(self) -> None:
        self.name = platform.processor() or platform.machine()

    def mark(self) -> int:
        """Return the time, in ns."""
        return time.perf_counter_ns()

    def between_ns(self, start: Any, end: Any) -> float:
        """Return the difference."""
        return float(end - start)

    def finish(self) -> None:
        """Do nothing: work is done when its call returns."""

    def clear(self) -> None:
        """Collect what is not referred to any more."""
        gc.collect()

    @contextmanager
    def watch(self, held: Iterable[Tensor]) -> Iterator[Peak]:
        """Count what is held and what the forward pass keeps for the backward pass."""
        peak = Peak()
        storages: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        for tensor in held:
            keep(tensor)
        own = dict(storages)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield peak
        peak.bytes = sum((storages | own).values())

    def notice(self) -> str | None:
        """Return nothing: other processes cannot be told from this one's own threads."""
        return None


class Gpu(Device):
    """The first visible CUDA device: events for time, the driver's view of memory."""

    kind = "cuda"

    def __init__(self) -> None:
        self.name = torch.cuda.get_device_name()
        self.gpu = gpu_name(self.name)

    def mark(self) -> torch.cuda.Event:
        """Record an event on the current stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between_ns(self, start: Any, end: Any) -> float:
        """Return the time between two events."""
        return float(start.elapsed_time(end)) * 1e6

    def finish(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()

    def clear(self) -> None:
        """Return cached memory to the device, so that the next peak is the next model's own."""
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    @contextmanager
    def watch(self, held: Iterable[Tensor]) -> Iterator[Peak]:
        """Take the allocator's peak since `clear`, and what the context holds beside it."""
        peak = Peak()
        yield peak
        self.finish()
        peak.bytes = torch.cuda.max_memory_reserved() + self._outside_bytes()

    def notice(self) -> str | None:
        """Say so when more is in use on the device than a context explains."""
        outside = self._outside_bytes()
        if outside <= CONTEXT_BYTES:
            return None
        return (
            f"{outside / 2**30:.1f} GB of {self.name} are in use beside this process's tensors; "
            "another process would make times and memory too large."
        )

    def _outside_bytes(self) -> int:
        free, total = torch.cuda.mem_get_info()
        return max(0, total - free - torch.cuda.memory_reserved())

    def versions(self) -> dict[str, str]:
        """Return them with the driver's and CUDA's."""
        return super().versions() | {
            "driver": _driver(),
            "cuda": str(torch.version.cuda or torch.version.hip or ""),
        }


def find_device(kind: str | None) -> Device:
    """Return the device of this kind; None is a GPU if there is one."""
    there = torch.cuda.is_available()
    if kind == "cuda" and not there:
        raise InputError(
            "PyTorch sees no GPU here; --device cpu measures the processor.", field="--device"
        )
    return Processor() if kind == "cpu" or not there else Gpu()


def gpu_name(board: str) -> str:
    """Return the type of GPU that a driver's name such as `NVIDIA H200` means."""
    for pattern, name in _BOARDS:
        if re.search(pattern, board, re.IGNORECASE):
            return name
    words = re.findall(r"[a-z0-9.]+", board.lower())
    return "-".join(word for word in words if word not in ("nvidia", "tesla")) or "gpu"


def _driver() -> str:
    """Return the version of NVIDIA's driver, or nothing where it cannot be asked."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip().partition("\n")[0]
