"""Simulate: the Python around the kernel."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import types

from headway import jit
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError, PolicyError
from headway.domain.limits import HORIZON_NS
from headway.domain.records import TASK
from headway.domain.workload import Workload
from headway.engine import kernel
from headway.engine.setup import prepare
from headway.engine.state import EVENT, GANG, GROUP, TALLY, State
from headway.engine.timeline import TimelineSink
from headway.network.contention import NetworkModel
from headway.policies.compilation import CLUSTER, INTEGERS, SIGNATURES, records_type
from headway.policies.presets import choose_scheduler
from headway.policies.registry import Choice, choose
from headway.results.metrics import gpu_busy_ns, summarize
from headway.results.schema import Result, Settings

_SLICE_INSTANTS = 100_000
"""Instants between two looks at the progress: some tens of milliseconds."""

_TIMELINE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    fraction: float
    now_s: float
    tasks: int


def simulate(
    workload: Workload,
    cluster: Cluster | str = "16x4",
    *,
    network: NetworkModel | None = None,
    placement: str = "lwf:1",
    scheduler: str = "ada-srsf",
    priority: str | None = None,
    admission: str | None = None,
    seed: int = 0,
    timeline: TimelineSink | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Simulate a workload on a cluster; the same arguments give the same bits everywhere.

    Args:
        workload: The jobs.
        cluster: A cluster, or a shape such as `16x4` with 16 GB a GPU.
        network: The network between servers; 10 Gbit/s Ethernet unless given.
        placement: The name of a placement policy, such as `lwf:1`, or `file.py:function`.
        scheduler: A priority and an admission under one name, such as `ada-srsf` or `srsf:1`.
        priority: A priority policy instead of the scheduler's.
        admission: An admission policy instead of the scheduler's.
        seed: For policies that draw lots (`rand`).
        timeline: Takes every task's start, end and place.
        progress: Called now and then during a long run.

    Raises:
        InputError: An argument is not what it must be, or a job can never run.
        PolicyError: A policy does not compile, or leaves jobs waiting for ever.
    """
    if isinstance(cluster, str):
        cluster = Cluster.parse(cluster)
    network = network or NetworkModel()
    chosen_placement = choose("placement", placement)
    chosen_priority, chosen_admission = choose_scheduler(scheduler)
    if priority is not None:
        chosen_priority = choose("priority", priority)
    if admission is not None:
        chosen_admission = choose("admission", admission)

    rows = 0 if timeline is None else max(_TIMELINE_ROWS, 2 * (cluster.gpus + len(workload)))
    state = prepare(workload, cluster, network, seed, rows)
    policies = (
        chosen_placement.compiled(),
        chosen_placement.parameter,
        chosen_placement.policy.steady,
        chosen_priority.compiled(),
        chosen_priority.parameter,
        chosen_admission.compiled(),
        chosen_admission.parameter,
        chosen_admission.policy.steady,
    )
    wall_s = _run(state, policies, timeline, progress, chosen_placement, chosen_admission)

    jobs, seats = state.cluster.jobs, state.cluster.seats
    busy_ns = gpu_busy_ns(jobs, seats, cluster.gpus)
    return Result(
        workload=workload,
        settings=Settings(
            cluster=cluster,
            network=network,
            placement=chosen_placement.name,
            priority=chosen_priority.name,
            admission=chosen_admission.name,
            seed=seed,
        ),
        summary=summarize(jobs, busy_ns, wall_s),
        start_ns=jobs.start_ns.copy(),
        finish_ns=jobs.finish_ns.copy(),
        gpus=tuple(tuple(part.tolist()) for part in np.split(seats.gpu, jobs.first_seat[1:])),
        gpu_busy_ns=busy_ns,
    )


def is_compiled() -> bool:
    """Return whether the kernel is in the disk cache, so that a run starts at once."""
    return jit.is_cached(kernel.advance)


@cache
def _kernel() -> Callable[..., int]:
    state = types.NamedTuple(
        [
            CLUSTER,
            *(records_type(dtype) for dtype in (TALLY, GANG, GROUP, EVENT)),
            *[INTEGERS] * 9,
            records_type(TASK),
        ],
        State,
    )
    placement, priority, admission = (
        types.FunctionType(SIGNATURES[kind]) for kind in ("placement", "priority", "admission")
    )
    signature = types.int64(
        state,
        *(placement, types.float64, types.boolean),
        *(priority, types.float64),
        *(admission, types.float64, types.boolean),
        types.int64,
    )
    return jit.entry_point(kernel.advance, signature, allocates=False)


def _run(
    state: State,
    policies: tuple[Any, ...],
    timeline: TimelineSink | None,
    progress: Callable[[Progress], None] | None,
    placement: Choice,
    admission: Choice,
) -> float:
    """Drive the kernel to the end; return the seconds spent in it."""
    advance = _kernel()
    tally, jobs = state.tally, state.cluster.jobs
    compute_tasks = int((2 * jobs.iterations * jobs.gpus).sum())
    wall_s = 0.0
    status = kernel.BUDGET_SPENT
    while status != kernel.FINISHED:
        started = time.perf_counter()
        # Without the JIT, unsigned arithmetic that wraps around on purpose would warn.
        with np.errstate(over="ignore"):
            status = advance(state, *policies, _SLICE_INSTANTS)
        wall_s += time.perf_counter() - started
        if timeline is not None:
            timeline.append(state.timeline[: tally[0].timeline])
            tally[0].timeline = 0
        if progress is not None:
            tasks = int(tally[0].tasks)
            now_s = int(state.cluster.system[0].now_ns) / 1e9
            progress(Progress(min(1.0, tally[0].compute_tasks / compute_tasks), now_s, tasks))
        if status == kernel.STALLED:
            raise PolicyError(_why_stalled(state, placement, admission))
        if status == kernel.BAD_PLACEMENT:
            raise PolicyError(
                f"placement policy '{placement.name}' chose for job {tally[0].culprit} (counted "
                "from 0) a GPU twice or one that was not among the candidates."
            )
        if status == kernel.OUT_OF_TIME:
            raise InputError(
                f"the simulated time passes {HORIZON_NS:,} ns (146 years); "
                "use fewer or shorter jobs."
            )
    return wall_s


def _why_stalled(state: State, placement: Choice, admission: Choice) -> str:
    tally = state.tally[0]
    if tally.waiting > 0:
        culprit = f"admission policy '{admission.name}' leaves {tally.waiting} all-reduces waiting"
    else:
        culprit = f"placement policy '{placement.name}' leaves {tally.queue} jobs queued"
    return f"{culprit} for ever: nothing is running and nothing more will arrive."
