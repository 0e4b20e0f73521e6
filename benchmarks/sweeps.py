"""How many small runs a second a sweep does: one thread, two threads, two workers on Ray.

    python benchmarks/sweeps.py [--rounds 3] [--seeds 100]

A round does all three, one after the other, each into a fresh folder, so that what else the machine
does meets all of them; on a busy machine, many short rounds (--rounds 20 --seeds 15) and the best
of each way tell most. Starting Ray is not counted: it is once a sweep, however long. Its workers
have run before, as threads have.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from headway.engine.parallel import run_in_threads
from headway.experiments.sweep import on_ray, sweep_of
from headway.experiments.sweep.grid import Inputs, Outcome, Runner, key_of, points
from headway.experiments.sweep.specification import Sweep
from headway.experiments.sweep.store import RunStore
from headway.ray_session import connected

WORKLOADS: dict[str, dict[str, Any]] = {
    "20 jobs": {"recipe": "paper", "jobs": 20, "iterations": [100, 600]},
    "40 jobs": {"recipe": "paper", "jobs": 40, "iterations": [500, 3000]},
    "160 jobs, the paper's": {"recipe": "paper"},
}
POLICIES = ["lwf:1+srsf:1", "lwf:1+ada-srsf", "ff+srsf:1", "ls+srsf:1", "headway"]
CLUSTERS = ["16x4", "8x8"]


@contextmanager
def fresh_store() -> Iterator[RunStore]:
    folder = tempfile.mkdtemp(prefix="headway-bench-")
    try:
        with RunStore(Path(folder)) as store:
            yield store
    finally:
        shutil.rmtree(folder)


def measure(
    sweep: Sweep, execute: Callable[[dict[str, Any], Callable[[Outcome], None]], None]
) -> float:
    """Return runs a second, with everything that a sweep writes."""
    runs = [(key_of(sweep, point), point) for point in points(sweep)]
    with fresh_store() as store:
        started = time.perf_counter()
        execute(dict(runs), store.add)
        store.write_tables(sweep, runs)
        elapsed_s = time.perf_counter() - started
        assert len(store.finished) == len(runs)
    return len(runs) / elapsed_s


def in_threads(inputs: Inputs, threads: int) -> Callable[..., None]:
    def execute(todo: dict[str, Any], keep: Callable[[Outcome], None]) -> None:
        runner = Runner(inputs)
        run_in_threads(todo.items(), lambda task, look: runner.run(*task, look), threads, keep)

    return execute


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    with connected(None, 2) as ray:
        for name, workload in WORKLOADS.items():
            sweep = sweep_of(
                {
                    "workloads": [workload],
                    "seeds": options.seeds,
                    "policies": POLICIES,
                    "clusters": CLUSTERS,
                }
            )
            inputs = Inputs.of(sweep)
            ways: dict[str, Callable[..., None]] = {
                "one thread": in_threads(inputs, 1),
                "two threads": in_threads(inputs, 2),
                "Ray, two workers": lambda todo, keep, inputs=inputs: on_ray.send(
                    ray, todo, inputs, 2, keep
                ),
            }
            warm = sweep_of(
                {"workloads": [workload], "seeds": 4, "policies": POLICIES, "clusters": CLUSTERS}
            )
            for execute in ways.values():
                measure(warm, execute)
            rates: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way, execute in ways.items():
                    rates[way].append(measure(sweep, execute))
            load = os.getloadavg()[0]
            print(f"{sweep.size:,} runs of {name}, {options.rounds} rounds, load {load:.1f}")
            for way, found in rates.items():
                ratios = [a / b for a, b in zip(found, rates["one thread"], strict=True)]
                best = max(found) / max(rates["one thread"])
                print(
                    f"  {way:<18}{median(found):8.1f} runs/s   x {median(ratios):.2f} "
                    f"({min(ratios):.2f} to {max(ratios):.2f}), best {max(found):.1f}, x {best:.2f}"
                )


if __name__ == "__main__":
    main()
