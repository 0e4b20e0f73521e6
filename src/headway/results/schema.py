"""What a simulation returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.compute_times import compute_times, estimated_pairs
from headway.domain.workload import Workload
from headway.network.contention import NetworkModel
from headway.results.columns import job_columns, job_table
from headway.results.display import result_html, result_text
from headway.results.time_parts import parts_ns
from headway.results.timeline.sinks import Timeline
from headway.results.usage import Integers, TypeUse, seat_compute_ns, use_by_type

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Summary:
    """Key figures of a run; only `wall_s`, the time spent in the engine, varies between runs.

    The exact figures are, with 95% probability, within the margins; those of an exact run are 0.
    """

    average_jct_s: float
    average_jct_margin_s: float
    median_jct_s: float
    p95_jct_s: float
    makespan_s: float
    makespan_margin_s: float
    average_gpu_utilization: float
    energy_j: float
    simulated_tasks: int
    skipped_tasks: int
    """How many of them needed no event, because they repeat others exactly."""
    sampled_share: float
    """How many of the tasks were estimated from others, between 0 and 1."""
    wall_s: float


def margin_name(figure: str) -> str:
    """Return the name that the margin of a summary's figure has, if there is one."""
    return figure.removesuffix("_s") + "_margin_s"


def margin_of(figures: Mapping[str, Any], name: str) -> float:
    """Return the margin of one of a summary's figures, 0 if it is exact or has none."""
    return float(figures.get(margin_name(name), 0.0))


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that determines a run, except the workload."""

    cluster: Cluster
    network: NetworkModel
    placement: str
    priority: str
    admission: str
    seed: int
    bucket_bytes: int | None = None
    buckets_if_shared: bool = False
    accuracy: float | None = None
    """The accuracy of sampling that was asked for; None is exact."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without what a cluster or its groups need not say."""
        values = asdict(self)
        optional = (
            *("servers_per_rack", "oversubscription", "groups", "profiles"),
            *("rails", "tiers", "exclusive"),
        )
        _drop_defaults(values["cluster"], Cluster, optional)
        for group in values["cluster"].get("groups", ()):
            _drop_defaults(group, ServerGroup, ("rails", "switches"))
        return values


def _drop_defaults(values: dict[str, Any], kind: type[Any], names: Sequence[str]) -> None:
    """Delete the values of these fields of a dataclass that are their defaults."""
    for each in fields(kind):
        if each.name in names and values[each.name] == each.default:
            del values[each.name]


def _no_graphs() -> Integers:
    """Return what messages add in graphs where no job has one, for any number of jobs."""
    return np.zeros(1, np.int64)


class AnyResult:
    """A result, of a simulation or from a file: its figures, tables and text."""

    __slots__ = ()

    if TYPE_CHECKING:
        # Only for the type checker: subclasses have them as fields or as properties.
        @property
        def settings(self) -> Settings:
            """How it was simulated."""

        @property
        def summary(self) -> Summary:
            """The metrics of the run."""

        @property
        def origin(self) -> str | None:
            """Where the jobs come from, such as a file, if it is known."""

        @property
        def jobs(self) -> polars.DataFrame:
            """The jobs as a table, one row per job in workload order."""

        @property
        def arrival_ns(self) -> Integers:
            """When each job arrived."""

        @property
        def start_ns(self) -> Integers:
            """When each job was placed."""

        @property
        def finish_ns(self) -> Integers:
            """When each job was finished."""

        @property
        def jct_s(self) -> NDArray[np.float64]:
            """Each job's completion time: finish - arrival, in seconds."""

        @property
        def gpus(self) -> tuple[tuple[int, ...], ...]:
            """Each job's GPUs, ascending."""

        @property
        def gpu_busy_ns(self) -> Integers:
            """How long each GPU computed."""

        @property
        def exclusive_jobs(self) -> int:
            """How many of the jobs had their GPUs to themselves."""

        @property
        def estimated(self) -> list[tuple[str, str]]:
            """The (model, GPU type) pairs with estimated times."""

        @property
        def parts_ns(self) -> dict[str, Integers]:
            """Where each job's completion time went; `time_parts` has it as a table."""

        @property
        def timeline(self) -> Timeline | None:
            """Every task of the run, if it was recorded in memory."""

    @property
    def has_parts(self) -> bool:
        """Whether it is known where the jobs' time went."""
        return True

    @property
    def use_by_type(self) -> tuple[TypeUse, ...]:
        """Use and energy of the GPUs of each type, in the order of the cluster's `gpu_types`."""
        makespan_ns = int(self.finish_ns.max() - self.arrival_ns.min())
        return use_by_type(self.settings.cluster, self.gpu_busy_ns, makespan_ns)

    @property
    def time_parts(self) -> polars.DataFrame:
        """Where each job's completion time went, in seconds; the parts add up to it.

        Columns: `job_id`, `waiting_s` (in the queue), `computing_s` and `sending_s` (what its
        iterations take on its GPUs and between its servers if no message slows another),
        `own_messages_s` (what its own messages add by slowing and holding back each other), and
        `contention_s`, what sharing GPUs and the network with other jobs added.
        """
        import polars

        parts = {f"{name}_s": part / 1e9 for name, part in self.parts_ns.items()}
        return polars.DataFrame({"job_id": self.jobs["job_id"], **parts})

    def utilization(self, bins: int = 100) -> polars.DataFrame:
        """Return the use of the GPUs over time, as means over equal periods of the makespan.

        Columns: `from_s`, `to_s`, `held` (the share of the GPUs that hold a job), `busy` (the share
        that computes; null unless the run was recorded with `simulate(..., timeline=Timeline())`)
        and `queued` (the number of jobs in the queue).
        """
        from headway.results.levels import utilization

        return utilization(self, bins)

    def plot(self) -> Figure:
        """Draw the run on one page: completion times, GPUs in use, queue, time by job size."""
        from headway.results.plots import overview_figure

        return overview_figure(self)

    def plot_jct(self) -> Figure:
        """Draw the distribution of the jobs' completion times."""
        from headway.results.plots import jct_figure

        return jct_figure(self)

    def plot_use(self) -> Figure:
        """Draw the GPUs held by jobs and the length of the queue over time."""
        from headway.results.plots import use_figure

        return use_figure(self)

    def __repr__(self) -> str:
        summary = self.summary
        return (
            f"<{type(self).__name__}: {len(self.gpus):,} jobs, "
            f"average JCT {summary.average_jct_s:,.2f} s, makespan {summary.makespan_s:,.2f} s>"
        )

    def __str__(self) -> str:
        return result_text(self)

    def _repr_html_(self) -> str:
        return result_html(self)


@dataclass(frozen=True, slots=True, repr=False)
class Result(AnyResult):
    """The outcome of a simulation: each job's times and GPUs in workload order, and a summary."""

    workload: Workload
    settings: Settings
    summary: Summary
    start_ns: Integers
    finish_ns: Integers
    gpus: tuple[tuple[int, ...], ...]
    gpu_busy_ns: Integers
    compute_ns: Integers
    """The computing of one iteration of each job on its GPUs: u_J."""
    service_ns: Integers
    """One iteration of each job alone on its GPUs and servers: s_J."""
    jct_margin_s: NDArray[np.float64]
    """How far each job's exact completion time may be from `jct_s`, with 95% probability."""
    timeline: Timeline | None = None
    """Every task of the run, if it was recorded in memory."""
    free_sending_ns: Integers = field(default_factory=_no_graphs)
    """What messages add to an iteration of each job with a graph if none slows another."""
    own_messages_ns: Integers = field(default_factory=_no_graphs)
    """How much more they add by slowing and holding back each other, alone on the job's GPUs."""

    @property
    def arrival_ns(self) -> Integers:
        """When each job arrived."""
        return np.array([job.arrival_ns for job in self.workload], np.int64)

    @property
    def jct_s(self) -> NDArray[np.float64]:
        """Each job's completion time: finish - arrival, in seconds."""
        return (self.finish_ns - self.arrival_ns) / 1e9

    def __post_init__(self) -> None:
        """Make the arrays read-only, as other figures follow from them."""
        for each in fields(self):
            if isinstance(array := getattr(self, each.name), np.ndarray):
                fixed = array.view()
                fixed.flags.writeable = False
                object.__setattr__(self, each.name, fixed)

    @property
    def energy_j(self) -> NDArray[np.float64]:
        """The energy of each job's computing, in joules: its busy GPU time at busy watts.

        What idle GPUs draw is charged to no job; the summary includes it.
        """
        cluster, types = self.settings.cluster, len(self.settings.cluster.gpu_types)
        busy_w = [gpu.busy_w for gpu in cluster.gpu_types]
        gpus = np.concatenate([np.array(own, np.int64) for own in self.gpus])
        owner = np.repeat(np.arange(len(self.gpus)), [len(own) for own in self.gpus])
        times = compute_times(self.workload, cluster)
        by_type = np.zeros((len(self.gpus), types), np.int64)
        seat_ns = seat_compute_ns(self.workload, times, gpus, cluster)
        np.add.at(by_type, (owner, cluster.type_of_gpu[gpus]), seat_ns)
        energies = [
            sum(
                job.iterations * time_ns / 1e9 * watts
                for time_ns, watts in zip(own, busy_w, strict=True)
            )
            for job, own in zip(self.workload, by_type.tolist(), strict=True)
        ]
        return np.array(energies)

    @property
    def exclusive_jobs(self) -> int:
        """How many of the jobs had their GPUs to themselves."""
        return self.workload.exclusive_jobs(self.settings.cluster)

    @property
    def estimated(self) -> list[tuple[str, str]]:
        """The (model, GPU type) pairs for which a job's times are estimated, not measured."""
        return estimated_pairs(self.workload, self.settings.cluster)

    @property
    def jobs(self) -> polars.DataFrame:
        """The jobs as a table, one row per job in workload order.

        Columns: `job_id`, `model`, `gpu_count`, `iterations`, `arrival_ns`, `start_ns`,
        `finish_ns`, `jct_s`, `jct_margin_s` (0 if exact), `waiting_s` (in the queue), `gpus` and
        `energy_j`; then `parallel`, if some jobs have it, and the jobs' labels.
        """
        return job_table(job_columns(self))

    @property
    def origin(self) -> str | None:
        """Where the jobs come from, such as a file, if it is known."""
        return self.workload.source

    @property
    def parts_ns(self) -> dict[str, Integers]:
        """Where each job's completion time went; `time_parts` has it as a table."""
        return parts_ns(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, with the keys of the JSON file."""
        from headway.results.store import to_dict

        return to_dict(self)

    def contention(self, server: int) -> polars.DataFrame:
        """Return how many messages are in flight on a server, as periods of the same number.

        Columns: `from_s`, `to_s` and `messages`. Needs `simulate(..., timeline=Timeline())`.

        Raises:
            InputError: The run has no timeline in memory, or there is no such server.
        """
        from headway.results.levels import contention
        from headway.results.timeline.recorded import RecordedRun

        return contention(RecordedRun.of(self), server)

    @property
    def links(self) -> polars.DataFrame:
        """The load of each link of the cluster, in the order of ports.

        Columns: `tier` (`server` or the name of a tier), `link`, `messages` (how many it carried,
        each bucket counted), `bytes` (the parts of these messages that went over it), `busy_ns`
        (how long at least one of them was in flight) and `busy_share` (of the makespan). Needs
        `simulate(..., timeline=Timeline())`.

        Raises:
            InputError: The run has no timeline in memory.
        """
        from headway.results.links import link_table
        from headway.results.timeline.recorded import timeline_of

        return link_table(self, timeline_of(self).tasks())

    def plot_contention(self) -> Figure:
        """Draw the messages on each server over time; needs `simulate(..., timeline=Timeline())`.

        Raises:
            InputError: The run has no timeline in memory.
        """
        from headway.results.plots import contention_figure
        from headway.results.timeline.recorded import RecordedRun

        return contention_figure(RecordedRun.of(self))
