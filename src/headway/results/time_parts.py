"""Where the jobs' time went: waiting, computing, sending, their own messages, other jobs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.domain.job import Job
    from headway.results.schema import Result, Settings
    from headway.results.usage import Integers

PARTS = ("waiting", "computing", "sending", "own_messages", "contention")


def parts_ns(result: Result) -> dict[str, Integers]:
    """Return the parts of each job's completion time, which add up to it.

    Waiting is the time in the queue; computing and sending are what its iterations take on its GPUs
    and between its servers if messages take no time, and what they add if none slows another. Own
    messages is what the messages of a job with a graph add by slowing and holding back each other
    if it is alone on its GPUs, under the same admission. Contention is the rest: waiting for GPUs
    and for the network that it shares with other jobs.
    """
    rounds = np.array([job.iterations for job in result.workload], np.int64)
    computing, own_messages = rounds * result.compute_ns, rounds * result.own_messages_ns
    alone = [
        0 if job.graph is not None else _all_reduce_alone_ns(job, gpus, result.settings)
        for job, gpus in zip(result.workload, result.gpus, strict=True)
    ]
    sending = rounds * (np.array(alone, np.int64) + result.free_sending_ns)
    waiting = result.start_ns - result.arrival_ns
    # What an all-reduce takes alone is rounded to whole nanoseconds, once for each message.
    running = result.finish_ns - result.start_ns - computing - own_messages
    contention = np.maximum(0, running - sending)
    sending = running - contention
    return dict(zip(PARTS, (waiting, computing, sending, own_messages, contention), strict=True))


def shown_parts_ns(parts: dict[str, Integers]) -> dict[str, Integers]:
    """Return the parts by the names that they are shown with.

    Own messages are among them only if those of some job meet.
    """
    return {
        name.replace("_", " "): part
        for name, part in parts.items()
        if name != "own_messages" or part.any()
    }


def _all_reduce_alone_ns(job: Job, gpus: Sequence[int], settings: Settings) -> int:
    """Return what a job's all-reduce takes on these GPUs if no other message is in flight."""
    cluster, network = settings.cluster, settings.network
    servers = cluster.servers_of(gpus)
    if len(servers) < 2:
        return 0
    factor = cluster.fabric.alone(gpus, uplinks=network.messages_meet)
    cost = factor * network.byte_weight(len(servers)) * network.b_ns_per_byte
    bucket_bytes = None if settings.buckets_if_shared else settings.bucket_bytes
    size = bucket_bytes or max(1, job.gradient_bytes)
    whole, rest = divmod(job.gradient_bytes, size)
    latency_ns = network.latency_ns(len(servers))
    buckets = [(whole, size), (1, rest)] if rest or not whole else [(whole, size)]
    return sum(count * max(1, latency_ns + math.ceil(part * cost)) for count, part in buckets)
