"""What a live cluster is going to do, simulated from its present state, and what it would do if.

The scheduler's own view of its jobs is the start: which are placed where, how many iterations they
have left, which messages are in flight or wait, and how long iterations and messages took lately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.configuration.conversion import Text, TomlTable, given
from headway.configuration.document import Document
from headway.configuration.network_file import network_from_table
from headway.configuration.profiles import profile_fields
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError, OutOfTimeError, did_you_mean, shown
from headway.domain.gpus import V100
from headway.domain.job import Job
from headway.domain.limits import whole
from headway.domain.models import MEBIBYTE
from headway.domain.moment import Moment, StartedJob
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.experiments.live_jobs import Correction, LiveJobs, is_unknown, started_job
from headway.experiments.pace import pace_factors
from headway.live.core.forecast import Change, Forecast, JobForecast
from headway.live.core.job_state import JobState
from headway.live.core.present_state import PresentState
from headway.network.contention import NETWORKS, NetworkModel
from headway.policies.policy_set import PolicySet

HYPOTHETICAL = "(new)"
"""The id of a job that has not been submitted."""
MAX_ADDED_NODES = 1024

ENDLESS = "Its end is unknown: it was submitted without a number of iterations."
NOT_MEASURED = "Its end is unknown until one of its iterations has been measured."
UNGATED = "Its end is unknown: it does not ask the gate, so its iterations are not counted."
GUESSED = (
    "Its end is a guess: none of its iterations has been measured, so it is taken to be like the "
    "other jobs."
)

_ON_SLOTS = (JobState.STARTING, JobState.RUNNING)


@dataclass(frozen=True)
class Present:
    """A live cluster at one time, as the simulator sees it."""

    now_ns: int
    policy: str
    network: NetworkModel
    cluster: Cluster
    jobs: tuple[Job, ...]  # in the order of submission
    states: tuple[JobState, ...]
    started: tuple[StartedJob, ...]
    closed_gpus: frozenset[int]  # of draining nodes
    message_factor: float  # how many times longer messages take than by the network model
    endless: tuple[str, ...]  # jobs that were submitted without a number of iterations
    ungated: tuple[str, ...]  # jobs that do not ask the gate
    unknown: tuple[str, ...]  # jobs whose times or bytes are neither declared nor measured
    comparable: bool  # whether those of others are known, which they are taken to be like
    left_out: tuple[JobForecast, ...] = ()  # what is said of jobs that cannot be simulated

    def with_nodes(self, count: int) -> Present:
        """Return the cluster with this number of additional nodes, like the last one."""
        whole(count, "add_nodes", 1, MAX_ADDED_NODES)
        more = replace(self.cluster.groups[-1], servers=count)
        return replace(self, cluster=Cluster.of([*self.cluster.groups, more]))

    def with_job(self, job: Job) -> Present:
        """Return the cluster with one job more, submitted now.

        As with `headway submit`, one without a need for memory has its GPUs to itself.
        """
        late = replace(
            job,
            arrival_ns=self.now_ns,
            exclusive=job.memory_bytes == 0,
            gradient_bytes=Correction(1.0, self.message_factor).size_bytes(job.gradient_bytes),
        )
        return replace(self, jobs=(*self.jobs, late), states=(*self.states, JobState.QUEUED))

    def forecast(self) -> Forecast:
        """Simulate what follows, without the jobs that cannot be simulated.

        Raises:
            InputError: The policy is unknown, or an argument invalid.
            PolicyError: The policy does not compile or leaves jobs waiting for ever.
        """
        able = self
        while True:
            try:
                return able._forecast()
            except InputError as error:
                culprit = error.job_id
                if isinstance(error, OutOfTimeError):
                    longest = max(able.jobs, key=lambda job: job.iterations * job.compute_ns)
                    culprit = longest.job_id
                if culprit is None or culprit == HYPOTHETICAL:
                    raise
                able = able._without(culprit, error)

    def _without(self, job_id: str, error: InputError) -> Present:
        """Return the present without a job; its GPUs, if it has any, take no others."""
        left_out = next(index for index, job in enumerate(self.jobs) if job.job_id == job_id)
        kept = [index for index in range(len(self.jobs)) if index != left_out]
        number = {index: place for place, index in enumerate(kept)}
        held = {gpu for one in self.started if one.job == left_out for gpu in one.gpus}
        row = JobForecast(job_id, self.states[left_out], None, None, _cannot_be_simulated(error))
        return replace(
            self,
            jobs=tuple(self.jobs[index] for index in kept),
            states=tuple(self.states[index] for index in kept),
            started=tuple(
                replace(one, job=number[one.job]) for one in self.started if one.job in number
            ),
            closed_gpus=self.closed_gpus | held,
            left_out=(*self.left_out, row),
        )

    def _forecast(self) -> Forecast:
        refused = self._refused()
        able = [index for index in range(len(self.jobs)) if index not in refused]
        ends: dict[int, tuple[int, int]] = {}
        if able:
            number = {index: place for place, index in enumerate(able)}
            moment = Moment(
                self.now_ns,
                tuple(replace(one, job=number[one.job]) for one in self.started),
                settled=False,
                closed_gpus=self.closed_gpus,
            )
            result = simulate(
                Workload([self.jobs[index] for index in able]),
                self.cluster,
                network=self.network,
                policy=self.policy,
                initial=moment,
            )
            times = zip(result.start_ns.tolist(), result.finish_ns.tolist(), strict=True)
            ends = dict(zip(able, times, strict=True))
        simulated = (
            self._forecast_of(job.job_id, state, ends.get(index), refused.get(index, ""))
            for index, (job, state) in enumerate(zip(self.jobs, self.states, strict=True))
        )
        return Forecast.of(self.now_ns, self.policy, (*simulated, *self.left_out))

    def _forecast_of(
        self, job_id: str, state: JobState, times: tuple[int, int] | None, refused: str
    ) -> JobForecast:
        """Return what is known of a job: its simulated start and end, or why it has none."""
        if times is None:
            return JobForecast(job_id, state, None, None, refused)
        start_ns, finish_ns = times
        if job_id in self.endless:
            return JobForecast(job_id, state, start_ns, None, ENDLESS)
        if job_id in self.ungated:
            return JobForecast(job_id, state, start_ns, None, UNGATED)
        if job_id in self.unknown:
            if self.comparable:
                return JobForecast(job_id, state, start_ns, finish_ns, GUESSED)
            return JobForecast(job_id, state, start_ns, None, NOT_MEASURED)
        return JobForecast(job_id, state, start_ns, finish_ns)

    def _refused(self) -> dict[int, str]:
        """Return why jobs do not fit, even if nothing else were on these nodes."""
        started = {one.job for one in self.started}
        kinds, kind_of = self.cluster.gpu_types, self.cluster.type_of_gpu.tolist()
        room: Counter[int] = Counter(
            kinds[kind].memory_bytes
            for gpu, kind in enumerate(kind_of)
            if gpu not in self.closed_gpus
        )
        found = {}
        for index, job in enumerate(self.jobs):
            slots = sum(gpus for size, gpus in room.items() if size >= job.memory_bytes)
            if index not in started and slots < job.gpus:
                kind = f"with {-(-job.memory_bytes // MEBIBYTE):,} MB"
                kind = "to itself" if job.exclusive else kind
                needs = f"It needs {job.gpus:,} slot{'s' * (job.gpus > 1)} {kind}"
                found[index] = f"{needs}; nodes that take jobs have {slots or 'none'}."
        return found


class HypotheticalJob(TomlTable):
    """A job that might be submitted: as in a submission, but for what matters to a simulation."""

    gpus: int
    iterations: int
    model: Text | None = None
    forward_ns: int | None = None
    backward_ns: int | None = None
    gradient_bytes: int | None = None
    memory_bytes: int | None = None
    priority: int | None = None


def hypothetical_job(content: Mapping[str, Any]) -> Job:
    """Return the job that a what-if request describes.

    A model's profile provides the times, the gradient size and the memory that are not given.

    Raises:
        InputError: It names the field and says what is wrong.
    """
    fields = given(Document(content).convert(HypotheticalJob))
    model = fields.pop("model", None)
    if model is not None:
        fields = profile_fields(model, f"unknown model {shown(model)}.", "model") | fields
    if "forward_ns" not in fields or "backward_ns" not in fields:
        raise InputError("needs a model, or forward_ns and backward_ns.", field="submit")
    return Job(job_id=HYPOTHETICAL, arrival_ns=0, **fields)


def changed_present(now: Present, change: Change) -> Present:
    """Return the present with what a request changes.

    Raises:
        InputError: A part of the change makes no sense.
    """
    if change.policy is not None:
        PolicySet.parse(change.policy)
        now = replace(now, policy=change.policy)
    if isinstance(change.network, str):
        if change.network not in NETWORKS:
            guess = did_you_mean(change.network, NETWORKS)
            raise InputError(f"unknown network {shown(change.network)}.{guess}", field="network")
        now = replace(now, network=NETWORKS[change.network])
    elif change.network is not None:
        now = replace(now, network=network_from_table(change.network))
    if change.add_nodes is not None:
        now = now.with_nodes(change.add_nodes)
    if change.submit is not None:
        now = now.with_job(hypothetical_job(change.submit))
    return now


def notes(now: Present) -> list[str]:
    """Return sentences on what a forecast of this state does not know."""
    found = []
    if now.endless:
        found.append(
            "Submitted without a number of iterations, so that nobody knows when they end; for the "
            "others they are taken to be half done: "
            f"{', '.join(now.endless)}."
        )
    if now.ungated:
        found.append(
            "Not at the gate, so that nobody knows how far they are; for the others they are taken "
            f"to have just begun: {', '.join(now.ungated)}."
        )
    if now.unknown:
        like = "the other jobs" if now.comparable else "a ResNet-50"
        found.append(f"Not measured yet, and taken to be like {like}: {', '.join(now.unknown)}.")
    return found


def present(state: PresentState) -> Present:
    """Return what a scheduler's `GET /v1/state` says, without the jobs that cannot be simulated.

    Raises:
        InputError: It has no nodes, so nothing can run, or its policy is unknown.
        PolicyError: Its policy does not compile or leaves jobs waiting for ever.
    """
    left_out: dict[str, str] = {}
    while True:
        try:
            return _present(state, left_out)
        except InputError as error:
            if error.job_id is None:
                raise
            left_out[error.job_id] = _cannot_be_simulated(error)


def _cannot_be_simulated(error: InputError) -> str:
    return f"It cannot be simulated, and the others are predicted without it: {error}"


def _present(state: PresentState, left_out: Mapping[str, str]) -> Present:
    if not state.nodes:
        raise InputError("the scheduler has no nodes.")
    first_gpu: dict[str, int] = {}
    groups: list[ServerGroup] = []
    closed: set[int] = set()
    gpus = 0
    for node in state.nodes:
        first_gpu[node.node] = gpus
        kind = replace(V100, memory_bytes=max(1, node.memory_bytes))
        groups.append(ServerGroup(1, node.slots, kind))
        if node.draining:
            closed |= set(range(gpus, gpus + node.slots))
        gpus += node.slots
    cluster = Cluster.of(groups)
    unfinished = [job for job in state.jobs if job.state in (*_ON_SLOTS, JobState.QUEUED)]
    jobs = [job for job in unfinished if job.job_id not in left_out]
    without = [job for job in unfinished if job.job_id in left_out]
    for job in without:
        nodes = [slot for slot in job.slots if slot.node in first_gpu]
        closed |= {first_gpu[slot.node] + slot.index for slot in nodes}
    live = LiveJobs.of(jobs, state)
    placed = [
        index
        for index, job in enumerate(jobs)
        if job.state in _ON_SLOTS and all(slot.node in first_gpu for slot in job.slots)
    ]
    pace = _pace(live, placed, first_gpu, state, cluster)
    corrections = [live.correction(index, pace) for index in range(len(jobs))]
    return Present(
        now_ns=state.clock_ns,
        policy=state.policy,
        network=state.network,
        cluster=cluster,
        jobs=tuple(_job(live, index, one) for index, one in enumerate(corrections)),
        states=tuple(job.state for job in jobs),
        started=tuple(
            started_job(jobs[index], index, first_gpu, state, corrections[index])
            for index in placed
        ),
        closed_gpus=frozenset(closed),
        message_factor=live.message_factor,
        endless=tuple(job.job_id for job in jobs if job.total_iterations is None),
        ungated=tuple(job.job_id for job in jobs if job.ungated),
        unknown=tuple(job.job_id for job in jobs if is_unknown(job) and not job.ungated),
        comparable=bool(live.typical),
        left_out=tuple(
            JobForecast(job.job_id, job.state, None, None, left_out[job.job_id]) for job in without
        ),
    )


def _job(live: LiveJobs, index: int, correction: Correction) -> Job:
    """Return a job for the simulator; an error names it."""
    try:
        return live.job(index, correction)
    except InputError as error:
        error.job_id = live.jobs[index].job_id
        raise


def _pace(
    live: LiveJobs,
    placed: Sequence[int],
    first_gpu: Mapping[str, int],
    state: PresentState,
    cluster: Cluster,
) -> dict[int, float]:
    """Return the pace factors of the jobs whose iterations have been observed."""
    observed_ns = {
        index: one
        for index in placed
        if (one := live.jobs[index].observed.iteration_ns) is not None
    }
    training = [
        started_job(live.jobs[index], index, first_gpu, state, Correction())
        for index in placed
        if live.jobs[index].iterations > 0
    ]

    def job(index: int, factor: float) -> Job:
        return _job(live, index, live.correction(index, {index: factor}))

    return pace_factors(training, job, observed_ns, cluster, state.network, state.policy)
