"""Simulate: the Python around the kernel."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from headway.configuration import cluster_from, network_from
from headway.domain.accuracy import accuracy_from
from headway.domain.cluster import Cluster
from headway.domain.compute_times import ComputeTimes, compute_times
from headway.domain.errors import HeadwayError, InputError, OutOfTimeError, PolicyError, shown
from headway.domain.limits import HORIZON_NS
from headway.domain.moment import Moment
from headway.domain.records import NOBODY
from headway.domain.workload import Workload
from headway.engine import kernel
from headway.engine.compilation import compile_ahead, compiled_kernel
from headway.engine.parallel import Checkpoint, run_in_threads, thread_count
from headway.engine.progress import Progress
from headway.engine.resume import resume
from headway.engine.setup import (
    ACCELERATIONS,
    Acceleration,
    check_inputs,
    prepare,
    rows_of_an_instant,
)
from headway.engine.state import State
from headway.interrupts import check, uninterruptible
from headway.jit import MissingColumnError
from headway.network.contention import NetworkModel
from headway.policies.checks import is_watched
from headway.policies.policy_set import Choices, PolicySet
from headway.results.intervals import median_run, with_measuring_error
from headway.results.metrics import gpu_busy_ns, summarize
from headway.results.schema import Result, Settings
from headway.results.timeline.sinks import Timeline, TimelineSink
from headway.results.usage import Integers, seat_compute_ns

_FIRST_SLICE, _LARGEST_SLICE = 1_000, 1 << 18
_SLICE_S = 0.05
"""Instants and seconds between two looks at the progress and at signals. No slice passes a multiple
of the largest number of instants, so every run stops there.
"""

_SHORT_SLICE = 100
"""Instants between two looks at the time, in a run of a given length."""

_TIMELINE_ROWS = 1 << 16

_WINDOWS = (2, 4, 3)
"""Iterations of each job in the windows of a sampled simulation: one run with each of these. The
first tells whether sampling pays; the longest does not come last, so that two threads end together.
"""

_TRIAL = 1 / 8
"""Once this part of all tasks has been simulated event by event, check from time to time whether
sampling will pay. At first, while jobs arrive, less is estimated than later on.
"""

_EXACT = 0
"""The window of a run that is not sampled."""

_FEW_TASKS = 20_000_000
"""Compute tasks that do not take long to simulate exactly: fewer are not sampled."""

_log = logging.getLogger("headway")


def simulate(
    workload: Workload,
    cluster: Cluster | str = "16x4",
    *,
    network: NetworkModel | str = "10gbe",
    policy: PolicySet | str = "paper",
    seed: int = 0,
    acceleration: Acceleration = "full",
    accuracy: float | str | None = None,
    threads: int | None = None,
    initial: Moment | None = None,
    timeline: TimelineSink | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Simulate a workload on a cluster; the same arguments give the same bits everywhere.

    Args:
        workload: The jobs.
        cluster: A cluster, a shape such as `16x4` with 16 GB a GPU, or the path of a TOML file.
        network: The network between servers, its name, or the path of a TOML file.
        policy: A set of policies, or its text: `paper` (`lwf:1+ada-srsf`), `headway`, or such as
            `ff+srsf:1@25`, as `PolicySet.parse` reads it.
        seed: For policies that draw random numbers (`rand`).
        acceleration: `full`, or less, to measure what it is worth: `solo` does not skip sets of
            jobs that repeat, `fused` not even jobs that no other can delay, and `none` has an event
            for every stage of every iteration. The results are the same.
        accuracy: None is exact. Otherwise sets of jobs that share GPUs or ports and do not repeat
            are sampled, and their progress is measured this accurately: 0.01 or `1%`. The error of
            the average JCT may be larger; the margins of the result say how large. Always simulated
            exactly: fewer than 20 million compute tasks, which do not take long, and policies that
            do not promise to be steady and timeless.
        threads: Threads for a sampled simulation, which uses up to three; by default as many as
            there are cores.
        initial: A moment of a run of this workload on this cluster, to go on from. The result is
            that of the whole run; only what follows counts as simulated.
        timeline: Receives every task with its start, end and GPU. With it every task is simulated.
        progress: Called now and then during a long run; from several threads, one at a time, if
            it is sampled.

    Raises:
        InputError: An argument is not what it must be, or a job can never run.
        PolicyError: A policy does not compile, uses what it must not, decides otherwise in an equal
            run, or leaves jobs waiting for ever.
    """
    if isinstance(cluster, str):
        cluster = cluster_from(cluster)
    if isinstance(network, str):
        network = network_from(network)
    if isinstance(policy, str):
        policy = PolicySet.parse(policy)
    for name, value, kind in (
        ("workload", workload, Workload),
        ("cluster", cluster, Cluster),
        ("network", network, NetworkModel),
        ("policy", policy, PolicySet),
    ):
        if not isinstance(value, kind):
            raise InputError(f"must be a {kind.__name__}, not {shown(value)}.", field=name)
    if acceleration not in ACCELERATIONS:
        raise InputError(
            f"must be one of {', '.join(ACCELERATIONS)}, not {shown(acceleration)}.",
            field="acceleration",
        )
    wanted = None if accuracy is None else accuracy_from(accuracy)
    workers = thread_count(threads)
    if wanted is not None:
        _check_sampling(policy, acceleration, timeline)
    if initial is not None:
        initial.check(workload, cluster)
    run = _Run(workload, cluster, network, policy, seed, acceleration, wanted, initial)
    _check_decisions(run)
    if wanted is None or not can_be_sampled(workload, policy):
        return run.result(_EXACT, timeline, progress)
    return _sampled(run, workers, progress)


def _check_decisions(run: _Run) -> None:
    """Refuse users' policies that decide otherwise when the first instants are simulated again."""
    policies = run.policy.choices
    own = [choice for choice in policies if not choice.policy.is_built_in]
    if not own or any(is_watched(choice.policy) for choice in own):
        return
    times = compute_times(run.workload, run.cluster)
    states = [run.state(times, 0, _EXACT) for _ in range(2)]
    advance = compiled_kernel()
    check()
    with uninterruptible():
        for state in states:
            _advance(advance, state, _SHORT_SLICE, policies)
    one, other = map(_decided, states)
    if one != other:
        names = " or ".join(f"{choice.policy.kind} policy '{choice.name}'" for choice in own)
        raise PolicyError(
            f"{names} decides otherwise when the same run is repeated: it may use nothing but the "
            "cluster and its parameter."
        )


def _decided(state: State) -> list[bytes]:
    """Return what follows from the decisions so far."""
    cluster = state.cluster
    return [array.tobytes() for array in (cluster.jobs, cluster.seats, cluster.messages)]


def can_be_sampled(workload: Workload, policy: PolicySet) -> bool:
    """Return whether there are enough tasks, and policies that allow it."""
    tasks = sum(job.iterations * job.task_count for job in workload)
    return policy.choices.may_be_skipped and tasks >= _FEW_TASKS


def _check_sampling(
    policy: PolicySet, acceleration: Acceleration, timeline: TimelineSink | None
) -> None:
    """Refuse what cannot be sampled; say so where nothing will be."""
    if timeline is not None:
        raise InputError(
            "a timeline shows every task, and sampling leaves most of them out; choose one.",
            field="accuracy",
        )
    if acceleration != "full":
        raise InputError(
            f"needs the acceleration 'full', not {shown(acceleration)}.", field="accuracy"
        )
    for choice in policy.choices:
        if not (choice.policy.steady and choice.policy.timeless):
            _log.warning(
                "Simulating exactly: %s policy '%s' does not promise what sampling needs.",
                choice.policy.kind,
                choice.name,
            )


@dataclass(frozen=True, slots=True)
class _Run:
    """The arguments of a simulation, checked."""

    workload: Workload
    cluster: Cluster
    network: NetworkModel
    policy: PolicySet
    seed: int
    acceleration: Acceleration
    accuracy: float | None
    initial: Moment | None

    def state(self, times: ComputeTimes, rows: int, window: int) -> State:
        """Return the state to start from, with room for this many rows of a timeline."""
        policies = self.policy.choices
        state = prepare(
            self.workload,
            self.cluster,
            self.network,
            policies,
            times,
            self.seed,
            self.policy.bucket_bytes,
            self.acceleration,
            rows,
            window,
            self.accuracy or 0.0,
            self.policy.buckets_if_shared,
        )
        if self.initial is not None:
            state.tally[0].misplaced = resume(state, self.initial, self.workload)
            if state.tally[0].misplaced != NOBODY:
                raise _failure(kernel.BAD_PLACEMENT, state, policies)
        return state

    def result(
        self,
        window: int,
        timeline: TimelineSink | None,
        progress: Callable[[Progress], None] | None,
    ) -> Result:
        """Simulate, sampling with this window or, with `_EXACT`, exactly."""
        workload, cluster, policies = self.workload, self.cluster, self.policy.choices
        rows = 0
        if timeline is not None:
            rows = max(_TIMELINE_ROWS, 2 * rows_of_an_instant(workload, cluster))
        times = compute_times(workload, cluster)
        state = self.state(times, rows, window)
        wall_s = drive(state, policies, timeline, progress)
        free_sending_ns, own_messages_ns = _messages_alone(state, policies)
        jobs, seats, tally = state.cluster.jobs, state.cluster.seats, state.tally[0]
        seat_ns = seat_compute_ns(workload, times, seats.gpu, cluster)
        busy_ns = gpu_busy_ns(jobs, seats, cluster.gpus, seat_ns)
        result = Result(
            workload=workload,
            settings=Settings(
                cluster=cluster,
                network=self.network,
                placement=policies.placement.name,
                priority=policies.priority.name,
                admission=policies.admission.name,
                seed=self.seed,
                bucket_bytes=self.policy.bucket_bytes,
                buckets_if_shared=self.policy.buckets_if_shared,
                accuracy=self.accuracy,
            ),
            summary=summarize(
                jobs,
                cluster,
                busy_ns,
                int(tally.compute_tasks + tally.messages),
                wall_s,
                int(tally.skipped_tasks),
                int(tally.estimated_tasks),
            ),
            start_ns=jobs.start_ns.copy(),
            finish_ns=jobs.finish_ns.copy(),
            gpus=tuple(tuple(part.tolist()) for part in np.split(seats.gpu, jobs.first_seat[1:])),
            gpu_busy_ns=busy_ns,
            compute_ns=jobs.forward_ns + jobs.backward_ns,
            service_ns=jobs.service_ns.copy(),
            free_sending_ns=free_sending_ns,
            own_messages_ns=own_messages_ns,
            jct_margin_s=np.zeros(len(jobs)),
            timeline=timeline if isinstance(timeline, Timeline) else None,
        )
        if tally.estimated_tasks > 0:
            deviation_s = np.sqrt(state.job_snapshots.variance) / 1e9
            return with_measuring_error(result, deviation_s)
        return result


def iterations_after(
    workload: Workload,
    cluster: Cluster,
    *,
    network: NetworkModel,
    policy: PolicySet | str,
    initial: Moment,
    least_ns: int,
) -> tuple[int, list[int]]:
    """Go on from a moment for a while, at least for `least_ns` unless all jobs finish before.

    Return for how long, and how many iterations each job has done by then.

    Raises:
        InputError: An argument is not what it must be, or a job can never run.
        PolicyError: A policy does not compile, or leaves jobs waiting for ever.
    """
    initial.check(workload, cluster)
    if isinstance(policy, str):
        policy = PolicySet.parse(policy)
    run = _Run(workload, cluster, network, policy, 0, "fused", None, initial)
    state = run.state(compute_times(workload, cluster), 0, _EXACT)
    advance, system, status = compiled_kernel(), state.cluster.system, 0
    while status != kernel.FINISHED and system[0].now_ns < initial.time_ns + least_ns:
        status = _advance(advance, state, _SHORT_SLICE, policy.choices)
        check()
        if status not in (kernel.BUDGET_SPENT, kernel.FINISHED):
            raise _failure(status, state, policy.choices)
    jobs = state.cluster.jobs
    return int(system[0].now_ns) - initial.time_ns, (
        jobs.iterations - jobs.iterations_left
    ).tolist()


class _LittleEstimatedError(Exception):
    """The first sampled run leaves too little to estimates for sampling to pay."""


def _will_not_pay(now: Progress) -> bool:
    """Whether so little has been estimated, after a trial, that sampling is not worth it.

    It is judged after numbers of instants that are the same in every process.
    """
    simulated = now.tasks - now.skipped_tasks
    all_tasks = now.tasks / now.fraction if now.fraction > 0 else math.inf
    tried = simulated >= _TRIAL * all_tasks
    return now.instants % _LARGEST_SLICE == 0 and tried and 2 * now.estimated_tasks < simulated


def _sampling_pays(now: Progress) -> bool:
    """Whether more tasks were estimated than simulated."""
    return now.estimated_tasks > now.tasks - now.skipped_tasks


def _sampled(run: _Run, threads: int, progress: Callable[[Progress], None] | None) -> Result:
    """Simulate with all windows, unless the first leaves little to estimates: then exactly."""
    first, *others = _WINDOWS
    found: dict[int, Result | HeadwayError] = {}
    latest: dict[int, Progress] = {}
    shown = 0.0
    reporting = threading.Lock()

    def fraction(window: int) -> float:
        return latest[window].fraction if window in latest else 0.0

    def work(window: int, checkpoint: Checkpoint) -> tuple[int, Result | HeadwayError]:
        def report(now: Progress) -> None:
            nonlocal shown
            checkpoint(now)
            latest[window] = now
            if window == first and _will_not_pay(now):
                raise _LittleEstimatedError
            if progress is not None:
                with reporting:
                    of_others = sum(map(fraction, others)) / len(others)
                    shown = (fraction(first) + (of_others if first in found else 0)) / 2
                    progress(replace(now, fraction=shown))

        try:
            return window, run.result(window, None, report)
        except HeadwayError as error:
            if window == first:
                raise
            return window, error  # It does not count if the first run shows that none is needed.

    def keep(pair: tuple[int, Result | HeadwayError]) -> None:
        window, outcome = pair
        found[window] = outcome
        if window == first and not _sampling_pays(latest[first]):
            raise _LittleEstimatedError

    def report_rest(now: Progress) -> None:
        if progress is not None:
            progress(replace(now, fraction=shown + (1 - shown) * now.fraction))

    check_inputs(run.workload, run.cluster, run.network, run.seed)
    compile_ahead([run.policy.choices], run.workload.has_graphs)
    try:
        run_in_threads(_WINDOWS, work, min(len(_WINDOWS), threads), keep)
        wanted: tuple[int, ...] = _WINDOWS
    except _LittleEstimatedError:
        wanted = (first,)
    results = _taken(found, wanted)
    wall_s = sum(now.wall_s for now in latest.values())
    exact = [one for one in results if one.summary.sampled_share == 0]
    if exact:
        result = exact[0]
    elif len(results) == len(_WINDOWS):
        result = median_run(results)
    else:
        result = run.result(_EXACT, None, report_rest)
        wall_s += result.summary.wall_s
    return replace(result, summary=replace(result.summary, wall_s=wall_s))


def _taken(found: dict[int, Result | HeadwayError], windows: tuple[int, ...]) -> list[Result]:
    """Take the results with these windows, as far as there are any, or raise an error among them.

    No reference to an error remains: its traceback holds the state of its run.
    """
    results: list[Result] = []
    outcome: Result | HeadwayError | None = None
    try:
        for window in windows:
            outcome = found.get(window)
            if isinstance(outcome, HeadwayError):
                raise outcome
            if outcome is not None:
                results.append(outcome)
    finally:
        found.clear()
        del outcome
    return results


def _messages_alone(state: State, policies: Choices) -> tuple[Integers, Integers]:
    """Return what messages add to an iteration of each job with a graph that is alone.

    That is, if none slows another, and how much more if they do and the admission is asked.
    """
    jobs, steps = state.cluster.jobs, state.graph_steps
    free_ns, own_ns = np.zeros(len(jobs), np.int64), np.zeros(len(jobs), np.int64)
    for job in np.flatnonzero((jobs.graph != NOBODY) & (jobs.servers > 1)).tolist():
        check()
        unslowed_ns = steps.unslowed_ns(state, job)
        free_ns[job] = unslowed_ns - jobs[job].forward_ns
        with _blaming(state, policies):
            own_ns[job] = max(0, steps.alone_ns(state, job) - unslowed_ns)
    return free_ns, own_ns


def drive(
    state: State,
    policies: Choices,
    timeline: TimelineSink | None,
    progress: Callable[[Progress], None] | None,
) -> float:
    """Drive the kernel to the end; return the seconds spent in it."""
    advance = compiled_kernel()
    check()  # The exit of a signal can get lost in compiling, and a policy may never return.
    with uninterruptible():
        return _drive(advance, state, policies, timeline, progress)


def _drive(
    advance: Callable[[State, int], int],
    state: State,
    policies: Choices,
    timeline: TimelineSink | None,
    progress: Callable[[Progress], None] | None,
) -> float:
    tally, jobs = state.tally, state.cluster.jobs
    compute_tasks = int((jobs.iterations * state.job_progress.tasks_each).sum())
    wall_s = 0.0
    budget = _FIRST_SLICE
    status = kernel.BUDGET_SPENT
    while status != kernel.FINISHED:
        started = time.perf_counter()
        most = _LARGEST_SLICE - int(tally[0].instants) % _LARGEST_SLICE
        status = _advance(advance, state, min(budget, most), policies)
        slice_s = time.perf_counter() - started
        wall_s += slice_s
        if status == kernel.BUDGET_SPENT and slice_s < _SLICE_S / 2 and budget <= most:
            budget *= max(2, min(64, int(_SLICE_S / 2 / max(slice_s, 1e-9))))
            budget = min(budget, _LARGEST_SLICE)
        elif slice_s > _SLICE_S:
            budget = max(2, budget // 2)  # One turn of the kernel may end no instant; two do.
        if timeline is not None:
            timeline.append(state.timeline[: tally[0].timeline].view(np.recarray))
            tally[0].timeline = 0
        if progress is not None:
            done = int(tally[0].compute_tasks)
            progress(
                Progress(
                    fraction=done / compute_tasks,
                    now_s=int(state.cluster.system[0].now_ns) / 1e9,
                    wall_s=wall_s,
                    tasks=done + int(tally[0].messages),
                    skipped_tasks=int(tally[0].skipped_tasks),
                    estimated_tasks=int(tally[0].estimated_tasks),
                    instants=int(tally[0].instants),
                )
            )
        check()
        if status not in (kernel.BUDGET_SPENT, kernel.TIMELINE_FULL, kernel.FINISHED):
            raise _failure(status, state, policies)
    return wall_s


def _advance(
    advance: Callable[[State, int], int], state: State, budget: int, policies: Choices
) -> int:
    """Run the kernel for up to `budget` instants; return why it stopped."""
    with _blaming(state, policies):
        return advance(state, budget)


@contextmanager
def _blaming(state: State, policies: Choices) -> Iterator[None]:
    """Turn what policies raise into an error that names the one it came from."""
    try:
        # Without the JIT, unsigned arithmetic that wraps around on purpose would warn.
        with np.errstate(over="ignore"):
            yield
    except MissingColumnError as error:
        raise PolicyError(
            f"{_culprit(error, policies, state)} reads cluster.extra.{error.name}, but the "
            f"workload has no column {shown(error.name)} of numbers."
        ) from error
    except Exception as error:
        raise PolicyError(
            f"{_culprit(error, policies, state)} raised {type(error).__name__}: {error}"
        ) from error


def _culprit(error: Exception, policies: Choices, state: State) -> str:
    """Return which policy an error came from, and the line, as far as the error tells."""
    frames = [
        (frame.name, frame.filename, frame.lineno)
        for frame in reversed(traceback.extract_tb(error.__traceback__))
    ]
    if compiled_from := getattr(error, "compiled_from", None):
        frames.insert(0, compiled_from)
    for name, file, line in frames:
        for choice in policies:
            code = choice.policy.function.__code__
            if (name, file) == (code.co_name, code.co_filename):
                return f"{choice.policy.kind} policy '{choice.name}' (line {line})"
    for kind in state.raised():
        name, file, line = frames[0]
        where = f" (in {name}, line {line} of {os.path.basename(file)})" if compiled_from else ""
        return f"{kind} policy '{getattr(policies, kind).name}'{where}"
    return f"one of the policies {', '.join(choice.name for choice in policies)}"


def _failure(status: int, state: State, policies: Choices) -> InputError | PolicyError:
    """Return the error for a run that cannot continue."""
    tally = state.tally[0]
    if status == kernel.OUT_OF_TIME:
        return OutOfTimeError(
            f"the simulated time passes {HORIZON_NS:,} ns (146 years); use fewer or shorter jobs."
        )
    if status == kernel.BAD_PLACEMENT:
        return PolicyError(
            f"placement policy '{policies.placement.name}' gave the job with index "
            f"{tally.misplaced} a GPU twice, or one that was not among the candidates."
        )
    if tally.waiting > 0:
        culprit = f"admission policy '{policies.admission.name}' leaves messages waiting"
    else:
        culprit = f"placement policy '{policies.placement.name}' leaves jobs queued"
    return PolicyError(f"{culprit} for ever: nothing is running and nothing more will arrive.")
