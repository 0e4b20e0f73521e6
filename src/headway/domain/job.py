"""A training job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.gpus import V100
from headway.domain.graph import Graph
from headway.domain.limits import (
    HORIZON_NS,
    LONGEST_NS,
    MAX_BYTES,
    MAX_GPUS,
    MAX_ITERATIONS,
    MAX_PRIORITY,
    text,
    whole,
)
from headway.domain.models import MAX_BATCH, PAPER_PROFILES, ProfileSet
from headway.domain.profiles import batch_size_of, model_names, profile_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Label = str | int | float
MAX_LABEL = 2**53
"""The largest whole number of a label: up to here policies see it exactly."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training job: n GPUs, I iterations of forward, backward, all-reduce, or of a graph.

    `forward_ns` and `backward_ns` are its times on the type of GPU `measured_on`, at its own
    `batch_size` (the mini-batch of one GPU; None if that of its model's profile, or unknown). They
    are `estimated` if scaled from a measurement at another batch size.

    A job with a `graph` has tasks and messages instead, with times on `measured_on`: it has no
    forward, backward or gradient. `model` and `parallel`, such as `ddp` or `pp4x1f1b:8`, may then
    name what it trains and how: both or none. It has a batch size only if its graph was made from
    the layers of that model. `compute_ns` is for both kinds of job.

    A job of higher `priority` goes first, whatever the policy.

    A job that is `exclusive` has its GPUs to itself: it takes only GPUs that hold no job, and they
    take no other while it has them.

    `labels` are whatever else is known of it, texts and numbers by name, such as a user or a
    deadline: they are in results, and policies see the numbers.
    """

    job_id: str
    arrival_ns: int
    gpus: int
    iterations: int
    forward_ns: int = 0
    backward_ns: int = 0
    gradient_bytes: int = 0
    memory_bytes: int = 0
    model: str = ""
    batch_size: int | None = None
    estimated: bool = False
    measured_on: str = V100.name
    graph: Graph | None = None
    parallel: str = ""
    priority: int = 0
    exclusive: bool = False
    labels: Mapping[str, Label] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("job_id", "model", "measured_on", "parallel"):
            text(getattr(self, name), name)
        if not self.job_id:
            raise InputError("must not be empty.", field="job_id")
        whole(self.arrival_ns, "arrival_ns", 0, HORIZON_NS)
        whole(self.gpus, "gpus", 1, MAX_GPUS)
        whole(self.iterations, "iterations", 1, MAX_ITERATIONS)
        if self.graph is None:
            whole(self.forward_ns, "forward_ns", 1, LONGEST_NS)
            whole(self.backward_ns, "backward_ns", 1, LONGEST_NS)
            whole(self.gradient_bytes, "gradient_bytes", 0, MAX_BYTES)
            if self.parallel:
                raise InputError("a job without a graph has none.", field="parallel")
        else:
            self._check_graph(self.graph)
        whole(self.memory_bytes, "memory_bytes", 0, MAX_BYTES)
        whole(self.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
        if self.batch_size is not None:
            whole(self.batch_size, "batch_size", 1, MAX_BATCH)
        if not self.measured_on:
            raise InputError("must not be empty.", field="measured_on")
        if not isinstance(self.exclusive, bool):
            raise InputError(
                f"must be true or false, not {shown(self.exclusive)}.", field="exclusive"
            )
        if self.labels:
            _check_labels(self.labels)
        if self.arrival_ns + self.iterations * self.compute_ns > HORIZON_NS:
            raise InputError(
                "too many: computation alone would end after the simulator's last instant "
                f"({HORIZON_NS:,} ns, 146 years).",
                field="iterations",
            )

    @classmethod
    def of_model(
        cls,
        model: str,
        *,
        job_id: str,
        arrival_ns: int,
        gpus: int,
        iterations: int,
        profiles: Sequence[ProfileSet] = PAPER_PROFILES,
    ) -> Job:
        """Make a job that trains one of the known models."""
        found = profile_at(model, None, profiles)
        if found is None:
            known = did_you_mean(model, model_names(profiles))
            raise InputError(f"unknown model '{model}'.{known}", field="model")
        profile, _ = found
        usual = profile.batch_size == batch_size_of(model, None)
        return cls(
            job_id=job_id,
            arrival_ns=arrival_ns,
            gpus=gpus,
            iterations=iterations,
            forward_ns=profile.forward_ns,
            backward_ns=profile.backward_ns,
            gradient_bytes=profile.gradient_bytes,
            memory_bytes=profile.memory_bytes,
            model=model,
            batch_size=None if usual else profile.batch_size,
            measured_on=profile.gpu,
        )

    @property
    def compute_ns(self) -> int:
        """The computing of one iteration on GPUs of the type `measured_on`: u_J."""
        if self.graph is not None:
            return self.graph.unit_ns()
        return self.forward_ns + self.backward_ns

    @property
    def task_count(self) -> int:
        """The compute tasks of one iteration, on all GPUs."""
        return 2 * self.gpus if self.graph is None else self.graph.expanded.tasks

    @property
    def message_count(self) -> int:
        """The messages of one iteration, if each is between servers and sent whole."""
        return 1 if self.graph is None else self.graph.message_count

    @property
    def gpu_compute_ns(self) -> int:
        """The sum of the times of all tasks of one iteration, on GPUs of the type `measured_on`."""
        if self.graph is not None:
            return sum(task.duration_ns * len(task.ranks) for task in self.graph.tasks)
        return self.gpus * (self.forward_ns + self.backward_ns)

    def _check_graph(self, graph: Graph) -> None:
        if graph.ranks != self.gpus:
            raise InputError(
                f"must be {graph.ranks:,}, the ranks of the job's graph, not {self.gpus:,}.",
                field="gpus",
            )
        own = () if self.parallel else ("model", "batch_size")
        for name in ("forward_ns", "backward_ns", "gradient_bytes", *own):
            if getattr(self, name):
                raise InputError("a job with a graph has none.", field=name)
        if self.parallel and not self.model:
            raise InputError("must not be empty in a job with parallel.", field="model")
        if self.estimated and not self.parallel:
            raise InputError("the times of a graph are not estimated.", field="estimated")


def numeric_labels(jobs: Sequence[Job]) -> dict[str, NDArray[np.float64]]:
    """Return the labels that are numbers, by name and job; NaN where a job has none."""
    import numpy as np

    texts: set[str] = set()
    found: dict[str, NDArray[np.float64]] = {}
    for index, job in enumerate(jobs):
        for name, value in job.labels.items():
            if isinstance(value, str):
                texts.add(name)
            else:
                found.setdefault(name, np.full(len(jobs), np.nan))[index] = value
    return {name: values for name, values in found.items() if name not in texts}


def _check_labels(labels: Mapping[str, Label]) -> None:
    for name, value in labels.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"names must be non-empty strings, not {shown(name)}.", field="labels")
        if isinstance(value, int) and not isinstance(value, bool):
            whole(value, f"label {shown(name)}", -MAX_LABEL, MAX_LABEL)
        elif not (isinstance(value, str) or (type(value) is float and math.isfinite(value))):
            raise InputError(
                f"must be a text or a finite number, not {shown(value)}.",
                field=f"label {shown(name)}",
            )
