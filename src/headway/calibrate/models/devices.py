"""Devices to measure models on: a GPU or the CPU, with its clock and its memory."""

from __future__ import annotations

import gc
import os
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
"""More than any CUDA context with its libraries uses."""

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
"""Driver names of the built-in types of GPU."""


class Peak:
    """The peak memory of watched passes, in bytes."""

    bytes = 0


class Device(ABC):
    """A device that runs passes: time marks, the time between two marks, and peak memory."""

    kind: str
    name: str
    gpu: str
    """The type of GPU, as clusters and profiles name it."""

    @abstractmethod
    def mark(self) -> Any:
        """Mark this point in the queue of work, which the device may reach later."""

    @abstractmethod
    def between_ns(self, start: Any, end: Any) -> float:
        """Return the time between two marks, after all work is done."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all work is done."""

    @abstractmethod
    def clear(self) -> None:
        """Free the memory of earlier models."""

    @abstractmethod
    def watch(self, held: Iterable[Tensor]) -> AbstractContextManager[Peak]:
        """Return a context that yields the `Peak` of the passes inside, given the tensors held."""

    @abstractmethod
    def capacity(self) -> tuple[int, int]:
        """Return the bytes of memory, and the number of processors that compute at a time."""

    @abstractmethod
    def notice(self) -> str | None:
        """Return why measurements on this device may be unreliable, or None."""

    def versions(self) -> dict[str, str]:
        """Return the versions of the software below the models."""
        return {
            "driver": "",
            "cuda": "",
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        }


class Processor(Device):
    """The CPU: a monotonic clock, and memory as the tensors that are live at one time."""

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
        """Collect unreferenced objects."""
        gc.collect()

    @contextmanager
    def watch(self, held: Iterable[Tensor]) -> Iterator[Peak]:
        """Count the tensors held and those that the forward pass saves for the backward pass."""
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

    def capacity(self) -> tuple[int, int]:
        """Return the machine's memory and its processors."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), os.cpu_count() or 1

    def notice(self) -> str | None:
        """Return None: other processes cannot be told from this one's threads."""
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
        """Return cached memory to the device, so that the next peak is that of the next model."""
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    @contextmanager
    def watch(self, held: Iterable[Tensor]) -> Iterator[Peak]:
        """Take the allocator's peak since `clear`, plus the memory of the CUDA context."""
        peak = Peak()
        yield peak
        self.finish()
        peak.bytes = torch.cuda.max_memory_reserved() + self._outside_bytes()

    def capacity(self) -> tuple[int, int]:
        """Return the GPU's memory and its multiprocessors."""
        found = torch.cuda.get_device_properties(0)
        return found.total_memory, found.multi_processor_count

    def notice(self) -> str | None:
        """Warn if more memory is in use on the device than a context explains."""
        outside = self._outside_bytes()
        if outside <= CONTEXT_BYTES:
            return None
        return (
            f"{outside / 2**30:.1f} GB of {self.name} are in use beyond this process's tensors; "
            "another process would inflate times and memory."
        )

    def _outside_bytes(self) -> int:
        free, total = torch.cuda.mem_get_info()
        return max(0, total - free - torch.cuda.memory_reserved())

    def versions(self) -> dict[str, str]:
        """Return the versions, with those of the driver and CUDA."""
        return super().versions() | {
            "driver": _driver(),
            "cuda": str(torch.version.cuda or torch.version.hip or ""),
        }


def find_device(kind: str | None) -> Device:
    """Return the device of this kind; by default a GPU if there is one."""
    there = torch.cuda.is_available()
    if kind == "cuda" and not there:
        raise InputError(
            "PyTorch finds no GPU; use --device cpu to measure the CPU.", field="--device"
        )
    return Processor() if kind == "cpu" or not there else Gpu()


def gpu_name(board: str) -> str:
    """Return the type of GPU for a driver's name such as `NVIDIA H200`."""
    for pattern, name in _BOARDS:
        if re.search(pattern, board, re.IGNORECASE):
            return name
    words = re.findall(r"[a-z0-9.]+", board.lower())
    return "-".join(word for word in words if word not in ("nvidia", "tesla")) or "gpu"


def _driver() -> str:
    """Return the version of NVIDIA's driver, or an empty string if it is unavailable."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip().partition("\n")[0]
