"""Runs on a Ray cluster: workers simulate batches, and only this process writes to disk.

Workers get the contents of workloads and policy files, never their paths, and must have the same
version of Headway. Ray retries nothing itself: if a worker dies, the runs of its batch are sent
again one by one, so that a run that kills its workers fails alone.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway import jit
from headway.domain.errors import HeadwayError, InputError
from headway.engine.parallel import thread_count
from headway.experiments.sweep.grid import Inputs, Outcome, Point, Runner
from headway.files import make_folder, open_output
from headway.ray_session import connected, signals_held
from headway.results.store import code_version

MAX_DEATHS = 3
"""The number of workers a run may kill before it counts as failed."""

_BATCH_S = 0.25
"""The target duration of a batch: long against Ray's overhead, short against a minute."""

_AHEAD = 2
"""Batches in flight per CPU, so that no CPU waits for this process."""

_CHECK_S = 10.0
"""Seconds between checks of the cluster's size."""

_WAIT_S = 0.2
"""The longest delay of a signal, in seconds."""

Task = tuple[str, Point]
"""A run with its key."""


def run_on_ray(
    todo: Mapping[str, Point],
    inputs: Inputs,
    address: str | None,
    workers: int | None,
    keep: Callable[[Outcome], None],
) -> None:
    """Do the runs on the cluster at an address, or on a temporary one on this machine.

    Args:
        todo: The runs by key.
        inputs: Their inputs.
        address: `host:port` or `ray://host:port`; without it, Ray is started on this machine.
        workers: Runs at a time; by default the number of CPUs of the cluster.
        keep: Called with each outcome, in this thread.
    """
    with connected(address, thread_count(workers)) as ray:
        send(ray, todo, inputs, workers, keep)


def send(
    ray: Any,
    todo: Mapping[str, Point],
    inputs: Inputs,
    workers: int | None,
    keep: Callable[[Outcome], None],
) -> None:
    """Do the runs on a connected cluster."""
    _Driver(ray, inputs, workers, keep).run(deque(todo.items()))


@dataclass
class _Driver:
    """Sends batches and collects their outcomes."""

    ray: Any
    inputs: Inputs
    workers: int | None
    keep: Callable[[Outcome], None]
    deaths: Counter[str] = field(default_factory=Counter)
    run_s: float | None = None
    """The moving average of a run's duration, once known."""

    def run(self, todo: deque[Task]) -> None:
        """Send batches until every run has an outcome."""
        ray, token = self.ray, secrets.token_hex(8)
        shipped = [ray.put(self.inputs)]
        remote = ray.remote(num_cpus=1, max_retries=0)(_run_batch)
        out: dict[Any, list[Task]] = {}
        alone: deque[Task] = deque()
        checked, cpus = -math.inf, 1
        try:
            with signals_held() as act:
                while todo or alone or out:
                    if time.monotonic() - checked > _CHECK_S:
                        checked, cpus = time.monotonic(), self._cpus()
                    while (todo or alone) and len(out) < _AHEAD * cpus:
                        size = self._size(len(todo), cpus)
                        batch = (
                            [alone.popleft()] if alone else [todo.popleft() for _ in range(size)]
                        )
                        out[remote.remote(token, self.inputs.code, shipped, batch)] = batch
                    ready, _ = ray.wait(list(out), timeout=_WAIT_S)
                    for reference in ready:
                        alone.extend(self._take(reference, out.pop(reference)))
                    act()
        finally:
            for reference in out:
                with suppress(Exception):
                    ray.cancel(reference, force=True)

    def _take(self, reference: Any, batch: list[Task]) -> list[Task]:
        """Collect a batch's outcomes; return the runs to be sent again."""
        exceptions = self.ray.exceptions
        try:
            elapsed_s, outcomes = self.ray.get(reference)
        except exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, HeadwayError) else error from None
        except exceptions.RayError as error:
            return self._count_death(batch, error)
        latest = elapsed_s / len(batch)
        self.run_s = latest if self.run_s is None else 0.7 * self.run_s + 0.3 * latest
        for outcome in outcomes:
            self.keep(outcome)
        return []

    def _count_death(self, batch: list[Task], error: Exception) -> list[Task]:
        """Count a worker's death against its runs; return the runs to be sent again."""
        self.deaths.update(key for key, _ in batch)
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        for key, _ in batch:
            if self.deaths[key] >= MAX_DEATHS:
                problem = f"its worker died {MAX_DEATHS} times: {type(error).__name__}: {reason}."
                self.keep(Outcome(key, problem=problem))
        return [task for task in batch if self.deaths[task[0]] < MAX_DEATHS]

    def _cpus(self) -> int:
        found = int(self.ray.cluster_resources().get("CPU", 0))
        return max(1, found if self.workers is None else min(found, self.workers))

    def _size(self, left: int, cpus: int) -> int:
        """Return the size of the next batch: smaller towards the end, to finish together."""
        if not left or self.run_s is None:
            return min(left, 1)
        by_time = round(_BATCH_S / max(self.run_s, 1e-6))
        return max(1, min(by_time, left // (_AHEAD * cpus)))


_runners: dict[str, Runner] = {}
"""In a worker: the runner of the current sweep, by its token."""


def _run_batch(
    token: str, code: str, shipped: list[Any], batch: list[Task]
) -> tuple[float, list[Outcome]]:
    """Do a batch of runs in a worker; return the seconds it took and the outcomes."""
    if code != code_version():
        raise InputError(
            "a worker of the Ray cluster has another version of Headway than this machine; install "
            "the same one everywhere."
        )
    if token not in _runners:
        import ray

        _runners.clear()
        _runners[token] = Runner(_unpacked(ray.get(shipped[0])))
    runner = _runners[token]
    started = time.perf_counter()
    outcomes = [runner.run(key, point) for key, point in batch]
    return time.perf_counter() - started, outcomes


def _unpacked(inputs: Inputs) -> Inputs:
    """Return the inputs with policy files on this machine, where compiled code is cached."""
    paths: dict[str, str] = {}
    for path, content in inputs.files.items():
        folder = jit.cache_folder() / "sent" / hashlib.sha256(content).hexdigest()[:16]
        target = folder / Path(path).name
        if not target.is_file():
            make_folder(folder)
            with open_output(target) as stream:
                stream.write(content)
        paths[path] = str(target)
    policies = tuple(policy.with_files_at(paths) for policy in inputs.policies)
    return replace(inputs, policies=policies)
