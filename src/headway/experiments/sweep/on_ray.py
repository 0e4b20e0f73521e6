"""Runs on a Ray cluster: batches go out, results come back, and only this process writes to disk.

Workers get the contents of workloads and policy files, never their paths. They must have the same
Headway installed. Ray itself does not repeat anything: a batch whose worker died is taken apart and
its runs are sent again one by one, so that a run that kills its workers takes no other with it.
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
from headway.experiments.parallel import thread_count
from headway.experiments.sweep.grid import Inputs, Outcome, Point, Runner
from headway.files import make_folder, open_output
from headway.ray_session import connected, signals_held
from headway.results.store import code_version

MOST_DEATHS = 3
"""How many workers a run may kill before it counts as failed."""

_BATCH_S = 0.25
"""How long a batch should take: long against what Ray needs for one, short against a minute."""

_AHEAD = 2
"""Batches sent out for each CPU, so that none waits for this process."""

_LOOK_S = 10.0
"""How often to ask how large the cluster is."""

_WAIT_S = 0.2
"""How long a signal may have to wait."""

Task = tuple[str, Point]
"""The key of a run, and the run."""


def run_on_ray(
    todo: Mapping[str, Point],
    inputs: Inputs,
    address: str | None,
    workers: int | None,
    keep: Callable[[Outcome], None],
) -> None:
    """Run everything on the cluster at an address, or on one started here for the while.

    Args:
        todo: The runs by their keys.
        inputs: What they need.
        address: `host:port` or `ray://host:port`; without, Ray is started on this machine.
        workers: Runs at a time; by default as many as the cluster has CPUs.
        keep: Gets each outcome, in this thread.
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
    """Run everything on a cluster that is connected."""
    _Driver(ray, inputs, workers, keep).run(deque(todo.items()))


@dataclass
class _Driver:
    """Sends batches out and takes their outcomes in."""

    ray: Any
    inputs: Inputs
    workers: int | None
    keep: Callable[[Outcome], None]
    deaths: Counter[str] = field(default_factory=Counter)
    run_s: float | None = None
    """What a run takes, as far as known."""

    def run(self, todo: deque[Task]) -> None:
        """Work until every run has an outcome."""
        ray, token = self.ray, secrets.token_hex(8)
        shipped = [ray.put(self.inputs)]
        remote = ray.remote(num_cpus=1, max_retries=0)(_run_batch)
        out: dict[Any, list[Task]] = {}
        alone: deque[Task] = deque()
        looked, cpus = -math.inf, 1
        try:
            with signals_held() as act:
                while todo or alone or out:
                    if time.monotonic() - looked > _LOOK_S:
                        looked, cpus = time.monotonic(), self._cpus()
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
        """Take what a batch gave; return what has to be sent again."""
        exceptions = self.ray.exceptions
        try:
            elapsed_s, outcomes = self.ray.get(reference)
        except exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, HeadwayError) else error from None
        except exceptions.RayError as error:
            return self._bury(batch, error)
        latest = elapsed_s / len(batch)
        self.run_s = latest if self.run_s is None else 0.7 * self.run_s + 0.3 * latest
        for outcome in outcomes:
            self.keep(outcome)
        return []

    def _bury(self, batch: list[Task], error: Exception) -> list[Task]:
        """Count the death of a worker against its runs; return those to be sent again."""
        self.deaths.update(key for key, _ in batch)
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        for key, _ in batch:
            if self.deaths[key] >= MOST_DEATHS:
                problem = f"its worker died {MOST_DEATHS} times: {type(error).__name__}: {reason}."
                self.keep(Outcome(key, problem=problem))
        return [task for task in batch if self.deaths[task[0]] < MOST_DEATHS]

    def _cpus(self) -> int:
        found = int(self.ray.cluster_resources().get("CPU", 0))
        return max(1, found if self.workers is None else min(found, self.workers))

    def _size(self, left: int, cpus: int) -> int:
        """Return how many runs the next batch has: fewer towards the end, so that all end alike."""
        if not left or self.run_s is None:
            return min(left, 1)
        by_time = round(_BATCH_S / max(self.run_s, 1e-6))
        return max(1, min(by_time, left // (_AHEAD * cpus)))


_runners: dict[str, Runner] = {}
"""In a worker: what the sweep at hand needs, ready for the next batch."""


def _run_batch(
    token: str, code: str, shipped: list[Any], batch: list[Task]
) -> tuple[float, list[Outcome]]:
    """Run a batch in a worker; return the seconds it took, and the outcomes."""
    if code != code_version():
        raise InputError(
            "a worker of the Ray cluster has another Headway than this machine; install the same "
            "one everywhere."
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
