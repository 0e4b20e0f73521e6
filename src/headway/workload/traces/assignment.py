"""Assigns what a trace lacks from a seed; each job keeps its duration and its GPUs."""

from __future__ import annotations

import hashlib

from headway.domain.job import Job
from headway.domain.models import MODELS, ModelProfile
from headway.workload.traces.parameters import published_size
from headway.workload.traces.records import TraceJob

_DRAWN_FROM = tuple(MODELS.values())

FORWARD_SHARE = (2, 5)
"""The forward pass takes two fifths of an iteration, as in the paper's four models."""


def drawn_model(job_id: str, seed: int) -> ModelProfile:
    """Return one of the paper's models, chosen by a hash of seed and id."""
    digest = hashlib.blake2b(f"{seed}:{job_id}".encode(), digest_size=8).digest()
    return _DRAWN_FROM[int.from_bytes(digest, "big") % len(_DRAWN_FROM)]


def assigned(
    job: TraceJob, arrival_ns: int, seed: int, memory_bytes: int | None, gpu_memory_bytes: int
) -> Job:
    """Return a job that computes for the trace's duration, to half a ns per iteration.

    Every job needs `memory_bytes`, if given. Otherwise a job with a share of a GPU needs that share
    of `gpu_memory_bytes`, and any other job what its model needs.
    """
    drawn = drawn_model(job.job_id, seed)
    published = None if job.model is None else published_size(job.model)
    size = published or drawn
    iterations = job.iterations
    if iterations is None:
        iteration_ns = drawn.forward_ns + drawn.backward_ns
        iterations = max(1, (2 * job.duration_ns + iteration_ns) // (2 * iteration_ns))
        part, whole = drawn.forward_ns, iteration_ns
    else:
        part, whole = FORWARD_SHARE
    # At least 2 ns, so that both passes take time.
    step_ns = max(2, (2 * job.duration_ns + iterations) // (2 * iterations))
    forward_ns = max(1, step_ns * part // whole)
    if memory_bytes is None:
        memory_bytes = size.memory_bytes
        if job.gpu_milli is not None:
            memory_bytes = gpu_memory_bytes * job.gpu_milli // 1000
    return Job(
        job_id=job.job_id,
        arrival_ns=arrival_ns,
        gpus=job.gpus,
        iterations=iterations,
        forward_ns=forward_ns,
        backward_ns=step_ns - forward_ns,
        gradient_bytes=size.gradient_bytes,
        memory_bytes=memory_bytes,
        model=job.model or drawn.name,
    )
