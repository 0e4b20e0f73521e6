"""Jobs that train a model in parallel: graphs built from the layers of the model's profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headway.domain.errors import InputError, shown
from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.layers import MOST_LAYERS, Layer, equal_layers, fitted
from headway.domain.models import PAPER_PROFILES, ProfileSet
from headway.domain.profiles import profile_at
from headway.graphs.parallel import FIELD, Parallel, parse_parallel

EQUAL_LAYERS = 32
"""The layers of a model whose layers are not known, more if it is cut into more parts."""


@dataclass(frozen=True, slots=True)
class ParallelJobs:
    """Makes jobs with graphs from jobs of models; equal jobs share one graph."""

    profiles: Sequence[ProfileSet] = PAPER_PROFILES
    _graphs: dict[tuple[object, ...], tuple[Graph, bool]] = field(default_factory=dict)

    def job(self, job: Job, parallel: str) -> Job:
        """Return a job of a model with the graph of `parallel`, such as `ddp` or `pp4x1f1b:8`.

        The layers are those of the profile of the job's model, scaled in proportion to the job's
        own times and gradient. For a model without known layers they are equal, and the job's times
        are `estimated`.
        """
        totals = job.forward_ns, job.backward_ns, job.gradient_bytes
        key = (job.model, job.batch_size, *totals, job.gpus, parallel)
        if key not in self._graphs:
            self._graphs[key] = self._graph(job, parallel)
        graph, estimated = self._graphs[key]
        return replace(
            job,
            forward_ns=0,
            backward_ns=0,
            gradient_bytes=0,
            graph=graph,
            parallel=parallel,
            estimated=job.estimated or estimated,
        )

    def misfit(self, job: Job, parallel: str) -> InputError | None:
        """Return why a job's GPUs or its model's layers do not suit `parallel`, if they do not."""
        layers = self._known_layers(job)
        return parse_parallel(parallel).misfit(layers, job.gpus) if layers else None

    def _known_layers(self, job: Job) -> tuple[Layer, ...]:
        found = profile_at(job.model, job.batch_size, self.profiles)
        return () if found is None else found[0].layers

    def _graph(self, job: Job, text: str) -> tuple[Graph, bool]:
        """Return the graph, and whether its layers are a guess."""
        plan = parse_parallel(text)
        if not job.model:
            raise InputError("needs a model.", field=FIELD)
        found = profile_at(job.model, job.batch_size, self.profiles)
        optimizer_ns = 0 if found is None else found[0].optimizer_ns
        layers = self._known_layers(job)
        totals = job.forward_ns, job.backward_ns, job.gradient_bytes
        try:
            known = fitted(layers, *totals) if layers else _guessed(job, plan)
            if (misfit := plan.misfit(known, job.gpus)) is not None:
                raise misfit
            return plan.graph(known, job.gpus, optimizer_ns), not layers
        except InputError as error:
            if error.field == "gpus":
                raise
            about = error.problem if error.field == FIELD else str(error)
            where = f"{shown(text)} of {shown(job.model)}"
            raise InputError(f"{where}: {about}", field=FIELD) from None


def _guessed(job: Job, parallel: Parallel) -> tuple[Layer, ...]:
    """Return equal layers of a model whose layers are not known."""
    if parallel.sends_activations:
        raise InputError(
            "its layers are not known, so neither is what they send; give a profile with layers.",
            field=FIELD,
        )
    return equal_layers(
        min(MOST_LAYERS, max(EQUAL_LAYERS, parallel.parts)),
        forward_ns=job.forward_ns,
        backward_ns=job.backward_ns,
        parameter_bytes=job.gradient_bytes,
    )
