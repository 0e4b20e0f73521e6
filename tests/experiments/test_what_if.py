"""What a live cluster is going to do, against what it then does."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.experiments.live_jobs import LiveJobs
from headway.experiments.what_if import (
    ENDLESS,
    GUESSED,
    NOT_MEASURED,
    UNGATED,
    Present,
    changed_present,
    notes,
    present,
)
from headway.gate.frames import MeasuredBucket
from headway.live.api.views import state_view
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    ComputeReady,
    IterationDone,
    IterationProfiled,
    JobExited,
    JobSpec,
    JobStarted,
    JobSubmitted,
    MessageReady,
    NodeDrained,
    NodeUp,
    PriorityChanged,
)
from headway.live.core.forecast import Change, Common
from headway.live.core.present_state import ObservedPace, PresentState
from headway.network.contention import NetworkModel
from live.core.driver import Driver

MS = 1_000_000
TIMES = {"forward_ns": 10 * MS, "backward_ns": 20 * MS}
POLICY = "lwf:1+ada-srsf"


def state_of(core: Core, policy: str, now_ns: int) -> PresentState:
    """Return what a scheduler says of its state, as it arrives elsewhere."""
    state = asyncio.run(state_view(core, lambda: policy, lambda: now_ns))
    return msgspec.json.decode(msgspec.json.encode(state), type=PresentState)


class Watched(Driver):
    """Remembers the state that a scheduler would show at some time."""

    state: PresentState | None = None
    look_ns = 0

    def advance(self, *arguments: Any) -> None:
        if self.state is None and self.now_ns >= self.look_ns:
            self.state = state_of(self.core, POLICY, self.now_ns)
        super().advance(*arguments)


def jobs_of(dice: random.Random) -> Workload:
    """Return jobs of some seconds that arrive within one."""
    return Workload(
        [
            Job(
                job_id=f"j{number}",
                arrival_ns=dice.randint(0, 1_000 * MS),
                gpus=dice.randint(1, 4),
                iterations=dice.randint(60, 150),
                forward_ns=dice.randint(10 * MS, 20 * MS),
                backward_ns=dice.randint(20 * MS, 40 * MS),
                gradient_bytes=dice.randint(10**6, 4 * 10**7),
                memory_bytes=6,
                priority=priority,
            )
            for number, priority in enumerate((0, 0, 1, 3, -2, 0))
        ]
    )


@pytest.mark.parametrize("seed", range(6))
def test_forecasts_come_true(seed: int) -> None:
    dice = random.Random(seed)
    driver = Watched(POLICY, jobs_of(dice), Cluster(3, 2, gpu_memory_bytes=10), NetworkModel())
    driver.look_ns = dice.randint(1_100 * MS, 4_000 * MS)
    driver.run()
    assert driver.state is not None
    now = present(driver.state)
    assert now.started
    forecast = now.forecast()
    assert forecast.policy == POLICY
    for job in forecast.jobs:
        real = driver.progress[job.job_id]
        assert job.finish_ns is not None
        left_ns = real.finish_ns - now.now_ns
        # An iteration is 60 to 120 ms; a job is taken to be at the beginning of its own.
        assert abs(job.finish_ns - real.finish_ns) <= 0.03 * left_ns + 150 * MS
        if job.state == "queued" and job.start_ns is not None:
            assert abs(job.start_ns - real.start_ns) <= 0.03 * left_ns + 150 * MS
    ends = [job.finish_ns for job in forecast.jobs if job.finish_ns is not None]
    assert forecast.last_left_s == (max(ends) - now.now_ns) / 1e9


class Misjudged(Watched):
    """Jobs compute twice as long as they declare, on a network four times slower than assumed."""

    def __init__(self, workload: Workload, cluster: Cluster) -> None:
        super().__init__(POLICY, workload, cluster, NetworkModel())
        assumed = self.network
        self.network = NetworkModel(
            4 * assumed.a_ns, 4 * assumed.b_ns_per_byte, 4 * assumed.eta_ns_per_byte
        )

    def tell(self, event: AnyEvent) -> None:
        if isinstance(event, JobSubmitted):
            declared = msgspec.structs.replace(
                event.spec,
                forward_ns=(event.spec.forward_ns or 0) // 2,
                backward_ns=(event.spec.backward_ns or 0) // 2,
            )
            event = msgspec.structs.replace(event, spec=declared)
        super().tell(event)


def without_observations(state: PresentState) -> PresentState:
    jobs = [msgspec.structs.replace(job, observed=ObservedPace()) for job in state.jobs]
    return msgspec.structs.replace(state, jobs=jobs)


def left_s(driver: Watched, state: PresentState) -> dict[str, tuple[float, float]]:
    """Return the predicted and the real time that each running job has left."""
    assert driver.state is not None
    now = present(state)
    running = {now.jobs[one.job].job_id for one in now.started}
    return {
        job.job_id: (
            ((job.finish_ns or 0) - now.now_ns) / 1e9,
            (driver.progress[job.job_id].finish_ns - now.now_ns) / 1e9,
        )
        for job in now.forecast().jobs
        if job.job_id in running
    }


@pytest.mark.parametrize("seed", range(4))
def test_forecasts_go_on_at_the_speed_that_was_observed(seed: int) -> None:
    dice = random.Random(seed)
    jobs = [
        Job(
            job_id=f"j{number}",
            arrival_ns=number * MS,
            gpus=4,
            iterations=dice.randint(150, 200),
            forward_ns=dice.randint(10 * MS, 20 * MS),
            backward_ns=dice.randint(20 * MS, 40 * MS),
            gradient_bytes=dice.randint(5 * 10**6, 2 * 10**7),
            memory_bytes=5,
        )
        for number in range(2)
    ]
    driver = Misjudged(Workload(jobs), Cluster(2, 2, gpu_memory_bytes=10))
    driver.look_ns = dice.randint(6_000 * MS, 8_000 * MS)
    driver.run()
    assert driver.state is not None
    corrected = left_s(driver, driver.state)
    assert len(corrected) == 2
    for predicted_s, real_s in corrected.values():
        assert predicted_s == pytest.approx(real_s, rel=0.08, abs=0.4)
    for predicted_s, real_s in left_s(driver, without_observations(driver.state)).values():
        assert predicted_s < 0.7 * real_s


def test_a_job_is_predicted_to_be_faster_once_its_neighbour_has_ended() -> None:
    """The observed speed is that beside the others, and not taken to last."""
    times: dict[str, Any] = {"forward_ns": 5 * MS, "backward_ns": 10 * MS, "memory_bytes": 5}
    jobs = [
        Job("short", 0, 4, 150, gradient_bytes=10_000_019, **times),
        Job("long", 7, 4, 400, gradient_bytes=10_000_103, **times),
    ]
    driver = Misjudged(Workload(jobs), Cluster(2, 2, gpu_memory_bytes=10))
    driver.look_ns = 5_000 * MS
    driver.run()
    assert driver.state is not None
    pace_ns = {job.job_id: job.observed.iteration_ns for job in driver.state.jobs}
    found = left_s(driver, driver.state)
    predicted_s, real_s = found["long"]
    assert predicted_s == pytest.approx(real_s, rel=0.12)
    left = 400 - driver.state.jobs[1].iterations
    assert pace_ns["long"] is not None
    assert left * pace_ns["long"] / 1e9 > 1.15 * real_s  # what going on as now would take


def test_forecasts_are_the_same_whenever_they_are_made_from_a_state() -> None:
    driver = Misjudged(jobs_of(random.Random(3)), Cluster(3, 2, gpu_memory_bytes=10))
    driver.look_ns = 3_000 * MS
    driver.run()
    assert driver.state is not None
    assert any(job.observed.iteration_ns for job in driver.state.jobs)
    assert present(driver.state).forecast() == present(driver.state).forecast()


def trained(core: Core, job_id: str, iterations: int, each_ns: int, began_ns: int = 0) -> int:
    """Let a job do iterations that it says nothing more of; return when they are done."""
    core.handle(JobStarted(at_ns=began_ns, job_id=job_id, attempt=1))
    for done in range(1, iterations + 1):
        at_ns = began_ns + done * each_ns
        core.handle(IterationDone(at_ns=at_ns, job_id=job_id, attempt=1, iterations=done))
    return began_ns + iterations * each_ns


def test_a_job_that_never_measured_its_times_is_predicted_by_its_iterations() -> None:
    core = core_with(JobSpec(command=("x",), iterations=100))
    before = present(state_of(core, "ff+fifo+srsf:1", 1_000)).forecast().jobs[0]
    assert (before.finish_ns, before.note) == (None, NOT_MEASURED)
    now_ns = trained(core, "0", 20, 200 * MS)
    (job,) = present(state_of(core, "ff+fifo+srsf:1", now_ns)).forecast().jobs
    assert job.note == ""
    assert job.finish_ns == pytest.approx(now_ns + 80 * 200 * MS, rel=0.02)


def test_the_time_that_jobs_take_to_start_and_to_exit_is_foreseen() -> None:
    core = core_with(spec(4, 10, memory_bytes=0), spec(4, 100, memory_bytes=0))
    began_ns = 5_000 * MS
    core.handle(JobStarted(at_ns=0, job_id="0", attempt=1))
    for done in range(1, 11):
        at_ns = began_ns + done * 30 * MS
        core.handle(IterationDone(at_ns=at_ns, job_id="0", attempt=1, iterations=done))
    core.handle(JobExited(at_ns=at_ns + 2_000 * MS, job_id="0", attempt=1, code=0))
    now_ns = at_ns + 2_500 * MS
    state = state_of(core, "ff+fifo+srsf:1", now_ns)
    assert (state.start_ns, state.exit_ns) == (began_ns, 2_000 * MS)
    (job,) = present(state).forecast().jobs
    assert job.finish_ns is not None
    message_ns = NetworkModel().all_reduce_ns(10**6)
    work_ns = 100 * (30 * MS + message_ns)
    left_ns = began_ns - 500 * MS + work_ns + 2_000 * MS  # It was launched half a second ago.
    assert job.finish_ns - now_ns == pytest.approx(left_ns, abs=40 * MS)


@pytest.mark.parametrize("takes_turns", [False, True])
def test_what_jobs_measure_beside_others_on_a_gpu_counts_as_slowed_down(takes_turns: bool) -> None:
    """Both compute for 30 ms in iterations of 50 ms; alone they would not take as long."""
    core = core_with(spec(1, 1_000, memory_bytes=4), spec(1, 1_000, memory_bytes=4), nodes=1)
    for job_id in ("0", "1"):
        identity: dict[str, Any] = {"at_ns": 10, "job_id": job_id, "attempt": 1}
        core.handle(JobStarted(**identity))
        if takes_turns:
            core.handle(ComputeReady(**identity, rank=0, request=1))
        times: dict[str, Any] = {"forward_ns": 5 * MS, "optimizer_ns": 5 * MS}
        buckets = (MeasuredBucket(20 * MS, 0),)
        core.handle(IterationProfiled(**identity, **times, buckets=buckets))
    for done in range(1, 41):
        for job_id in ("0", "1"):
            at_ns = done * 50 * MS
            core.handle(IterationDone(at_ns=at_ns, job_id=job_id, attempt=1, iterations=done))
    state = state_of(core, "ff+fifo+srsf:1", 2_000 * MS)
    assert state.jobs[0].slots == state.jobs[1].slots
    correction = LiveJobs.of(state.jobs, state).correction(0, {})
    assert correction.times == pytest.approx(1.0 if takes_turns else 1 / 1.6, rel=0.01)
    assert correction.size_bytes(1_000) == 1_000  # Messages are not slowed down by that.


def spec(gpus: int, iterations: int | None = 10, **more: Any) -> JobSpec:
    times: dict[str, Any] = {"forward_ns": 10 * MS, "backward_ns": 20 * MS}
    return JobSpec(
        command=("x",), gpus=gpus, iterations=iterations, gradient_bytes=10**6, **times, **more
    )


def core_with(*specs: JobSpec, nodes: int = 2) -> Core:
    """Return a core with some nodes of two slots, and jobs."""
    core = Core("ff+fifo+srsf:1", NetworkModel())
    for number in range(nodes):
        core.handle(NodeUp(at_ns=0, node=f"n{number}", gpus=2, memory_bytes=10))
    for number, one in enumerate(specs):
        core.handle(JobSubmitted(at_ns=number, job_id=str(number), spec=one))
    return core


def seen(core: Core) -> Present:
    return present(state_of(core, "ff+fifo+srsf:1", 1_000))


def test_nodes_that_join_and_jobs_that_are_submitted_change_the_forecast() -> None:
    now = seen(core_with(spec(2), spec(2), spec(2)))
    as_it_is = now.forecast()
    third = as_it_is.jobs[2]
    assert third.start_ns == 1_000 + 300 * MS
    assert now.with_nodes(1).forecast().jobs[2].start_ns == 1_000
    new = Job("new", 0, 2, 10, 10 * MS, 20 * MS)
    later = now.with_job(new).forecast().jobs
    assert [job.job_id for job in later] == ["0", "1", "2", "new"]
    assert later[3].start_ns == 1_000 + 300 * MS
    change = Change(policy="ff+smallest+srsf:1")
    assert changed_present(now, change).forecast().policy == "ff+smallest+srsf:1"
    with pytest.raises(InputError, match="add_nodes: must be at least 1, not 0"):
        now.with_nodes(0)


def test_averages_are_over_the_jobs_of_both_sides() -> None:
    """A short job that is submitted delays the others; its own short time must not hide that."""
    now = seen(core_with(spec(4), spec(4, 1000)))
    short = Change(policy="ff+srsf+srsf:1", submit={"gpus": 4, "iterations": 20, **TIMES})
    before, after = now.forecast(), changed_present(now, short).forecast()
    assert after.average_left_s < before.average_left_s
    common = Common.of(before, after)
    assert common.jobs == 2
    assert common.now_s == pytest.approx(before.average_left_s)
    # One of the two waits for the 20 iterations of the new one.
    assert common.changed_s == pytest.approx(common.now_s + 20 * 0.030 / 2, rel=0.01)
    assert Common.of(seen(core_with()).forecast(), after).jobs == 0


def test_a_job_that_has_its_gpus_to_itself_shares_them_with_none() -> None:
    jobs = seen(core_with(spec(4), spec(1, memory_bytes=1))).forecast().jobs
    assert jobs[1].start_ns == jobs[0].finish_ns


def test_a_job_has_its_gpus_to_itself_also_where_their_memory_differs() -> None:
    core = Core("ff+fifo+srsf:1", NetworkModel())
    for node, memory_bytes in (("large", 80), ("small", 40)):
        core.handle(NodeUp(at_ns=0, node=node, gpus=1, memory_bytes=memory_bytes))
    for number, one in enumerate((spec(2), spec(1, memory_bytes=30))):
        core.handle(JobSubmitted(at_ns=number, job_id=str(number), spec=one))
    first, second = seen(core).forecast().jobs
    assert second.start_ns == first.finish_ns


def test_jobs_that_cannot_run_are_named() -> None:
    core = core_with(spec(4), spec(2), spec(5), nodes=2)
    core.handle(NodeDrained(at_ns=10, node="n1", draining=True))
    running, waiting, large = seen(core).forecast().jobs
    assert (large.start_ns, large.finish_ns) == (None, None)
    assert large.note == "It needs 5 slots to itself; nodes that take jobs have 2."
    assert (running.note, waiting.note) == ("", "")
    assert running.finish_ns is not None
    assert waiting.start_ns == running.finish_ns  # on the node that takes jobs
    core.handle(NodeDrained(at_ns=11, node="n0", draining=True))
    assert seen(core).forecast().jobs[1].start_ns is None


TOO_LONG: dict[str, dict[str, Any]] = {
    "iterations": {"iterations": 10**9, "forward_ns": 10**9, "backward_ns": 4 * 10**9},
    "an iteration": {"iterations": 1, "forward_ns": 2**61, "backward_ns": 2**61},
    "messages": {"iterations": 10**6, "forward_ns": 1, "backward_ns": 1, "gradient_bytes": 2**53},
}


@pytest.mark.parametrize("name", TOO_LONG)
@pytest.mark.parametrize("iterations_done", [0, 5])
def test_a_job_that_cannot_be_simulated_is_left_out_and_keeps_its_slots(
    name: str, iterations_done: int
) -> None:
    fields: dict[str, Any] = {"gpus": 2, "gradient_bytes": 1} | TOO_LONG[name]
    endless = JobSpec(command=("x",), **fields)
    core = core_with(spec(2), endless, spec(2), nodes=2)
    for job in ("0", "1"):
        core.handle(JobStarted(at_ns=10, job_id=job, attempt=1))
        for done in range(1, iterations_done + 1):
            at_ns = done * 50 * MS
            core.handle(IterationDone(at_ns=at_ns, job_id=job, attempt=1, iterations=done))
    forecast = seen(core).forecast()
    first, later, left_out = forecast.jobs
    assert (left_out.job_id, left_out.start_ns, left_out.finish_ns) == ("1", None, None)
    assert left_out.note.startswith("It cannot be simulated, and the others are predicted without")
    assert (first.note, later.note) == ("", "")
    assert first.finish_ns is not None
    assert later.start_ns == first.finish_ns
    # A job that cannot be submitted so is the request's fault, and refused.
    submit = {"gpus": 1, **TOO_LONG["iterations"]}
    with pytest.raises(InputError, match="too many"):
        changed_present(seen(core), Change(submit=submit)).forecast()


def test_jobs_that_take_longer_than_the_simulator_together_are_left_out_one_by_one() -> None:
    years: dict[str, Any] = {"iterations": 10**9, "forward_ns": 10**9, "backward_ns": 3 * 10**9}
    jobs = [JobSpec(command=("x",), gpus=1, gradient_bytes=0, **years) for _ in range(3)]
    core = Core("ff+fifo+srsf:1", NetworkModel())
    core.handle(NodeUp(at_ns=0, node="n0", gpus=1, memory_bytes=2**20))
    for number, one in enumerate([spec(1), *jobs]):
        core.handle(JobSubmitted(at_ns=number, job_id=str(number), spec=one))
    known = [job.job_id for job in seen(core).forecast().jobs if job.finish_ns is not None]
    assert known[0] == "0"
    assert len(known) == 2


def test_a_job_of_a_higher_priority_goes_first_in_a_forecast_too() -> None:
    small, large = spec(1), spec(2, priority=1)
    core = core_with(small, large, small, nodes=1)
    now = seen(core).forecast()
    ends = [(job.start_ns, job.finish_ns) for job in now.jobs]
    # The last one waits for the large one, for which a slot is kept.
    assert ends[0][1] == ends[1][0]
    assert ends[1][1] == ends[2][0]
    core.handle(PriorityChanged(at_ns=12, job_id="1", priority=0))
    assert seen(core).forecast().jobs[2].start_ns == 12


def test_the_end_of_a_job_that_does_not_ask_the_gate_is_unknown() -> None:
    state = state_of(core_with(spec(1), spec(1)), POLICY, 100)
    first = msgspec.structs.replace(state.jobs[0], ungated=True)
    now = present(msgspec.structs.replace(state, jobs=[first, *state.jobs[1:]]))
    silent, known = now.forecast().jobs
    assert (silent.finish_ns, silent.note) == (None, UNGATED)
    assert known.finish_ns is not None
    assert [note.split()[:3] for note in notes(now)] == [["Not", "at", "the"]]


def test_guesses_are_told() -> None:
    undeclared = JobSpec(command=("x",), iterations=5)
    now = seen(core_with(spec(1, None), spec(1), undeclared))
    assert (now.endless, now.unknown) == (("0",), ("2",))
    # What is not known is taken to be as with the others.
    assert (now.jobs[2].forward_ns, now.jobs[2].gradient_bytes) == (10 * MS, 10**6)
    assert [note.split()[0] for note in notes(now)] == ["Submitted", "Not"]
    endless, known, guessed = now.forecast().jobs
    assert (endless.finish_ns, endless.note) == (None, ENDLESS)
    assert known.note == ""
    assert guessed.finish_ns is not None
    assert guessed.note == GUESSED
    assert endless.start_ns is not None
    alone = seen(core_with(undeclared)).forecast().jobs[0]
    assert (alone.finish_ns, alone.note) == (None, NOT_MEASURED)
    with pytest.raises(InputError, match="the scheduler has no nodes"):
        seen(core_with(nodes=0))


CHANGES = {
    "an unknown policy": ({"policy": "x"}, "unknown policy 'x'"),
    "an unknown network": ({"network": "10gb"}, "network: unknown network '10gb'. Did you mean"),
    "the path of a file": ({"network": "/etc/network.toml"}, "network: unknown network"),
    "a network that lacks b": ({"network": {"a_ns": 1}}, "'b_ns_per_byte' is missing"),
    "a network with a wrong key": (
        {"network": {"a_ns": 1, "b_ns_per_byte": 1, "c": 1}},
        "c: unknown key. Known: a_ns, ",
    ),
    "a network of text": ({"network": {"a_ns": "x"}}, "a_ns: must be a whole number, not 'x'."),
    "no nodes": ({"add_nodes": 0}, "add_nodes: must be at least 1, not 0."),
    "too many nodes": ({"add_nodes": 10**9}, "add_nodes: must be at most 1,024, not 1000000000."),
    "a job without GPUs": ({"submit": {"iterations": 3}}, "'gpus' is missing"),
    "a job without times": (
        {"submit": {"gpus": 1, "iterations": 3}},
        "submit: needs a model, or forward_ns and backward_ns.",
    ),
    "a job with an unknown model": (
        {"submit": {"gpus": 1, "iterations": 3, "model": "vgg61"}},
        "model: unknown model 'vgg61'. Did you mean 'vgg16'?",
    ),
    "a job on no GPU": (
        {"submit": {"gpus": 0, "iterations": 3, "model": "vgg16"}},
        "gpus: must be at least 1",
    ),
    "a wrong key of a job": (
        {"submit": {"gpus": 1, "iterations": 3, "modell": "vgg16"}},
        "modell: unknown key. Did you mean 'model'?",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_makes_no_sense_is_refused(name: str) -> None:
    change, problem = CHANGES[name]
    with pytest.raises(InputError) as caught:
        changed_present(seen(core_with(spec(2))), msgspec.convert(change, Change))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_provides_what_a_hypothetical_job_leaves_open() -> None:
    now = seen(core_with())
    submit = {"gpus": 2, "iterations": 10, "model": "vgg16", "memory_bytes": 3, "forward_ns": 7}
    (job,) = changed_present(now, Change(submit=submit)).jobs
    assert (job.job_id, job.forward_ns, job.memory_bytes) == ("(new)", 7, 3)
    assert job.gradient_bytes > 5 * 10**8
    network = {"a_ns": 5, "b_ns_per_byte": 0.25, "law": "max-min"}
    assert changed_present(now, Change(network=network)).network == NetworkModel(
        5, 0.25, 0.0, "max-min"
    )
    assert changed_present(now, Change(network="100gbe")).network.b_ns_per_byte == 0.0853


def test_measured_iterations_go_before_estimates() -> None:
    core = core_with(spec(2))
    buckets = (MeasuredBucket(30 * MS, 10**6), MeasuredBucket(10 * MS, 10**6))
    core.handle(JobStarted(at_ns=5, job_id="0", attempt=1))
    core.handle(
        IterationProfiled(
            at_ns=6,
            job_id="0",
            attempt=1,
            forward_ns=15 * MS,
            optimizer_ns=5 * MS,
            buckets=buckets,
        )
    )
    (job,) = seen(core).forecast().jobs
    assert job.finish_ns == 1_000 + 10 * 60 * MS


def test_gradients_that_overlap_with_the_backward_pass_are_simulated_so() -> None:
    """One of two buckets is sent, and the other in flight: two iterations and a bit are left."""
    core = core_with(spec(3, 3))
    job: dict[str, Any] = {"job_id": "0", "attempt": 1}
    core.handle(JobStarted(at_ns=5, **job))
    buckets = (MeasuredBucket(40 * MS, 10 * 10**6), MeasuredBucket(10 * MS, 10 * 10**6))
    profile: dict[str, Any] = {"forward_ns": 10 * MS, "optimizer_ns": 5 * MS, "buckets": buckets}
    core.handle(IterationProfiled(at_ns=6, **job, **profile))
    sizes: dict[str, Any] = {"message_bytes": 10 * 10**6, "unsent_bytes": 10 * 10**6}
    core.handle(MessageReady(at_ns=1_000, **job, request=2, **sizes))
    now = seen(core)
    (started,) = now.started
    assert (started.messages_done, started.messages[0].number) == (frozenset({0}), 1)
    assert started.tasks_done == (3, 3, 3)
    network = NetworkModel()
    message_ns = network.all_reduce_ns(10 * 10**6)
    (found,) = now.forecast().jobs
    assert found.finish_ns is not None
    # The first bucket is sent during the rest of the backward pass.
    one_ns = 50 * MS + max(10 * MS, message_ns) + message_ns + 5 * MS
    left_ns = message_ns + 5 * MS + 2 * one_ns
    assert found.finish_ns - 1_000 == pytest.approx(left_ns, rel=0.02)
