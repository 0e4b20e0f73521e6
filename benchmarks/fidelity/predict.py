"""What the simulator says of mixes, and of the half of a calibration that it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mixes import Timed

from headway.calibrate.network.samples import Sample, shots
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.network.contention import NetworkModel

_PINNED = f"{Path(__file__).parent / 'pinned.py'}:pinned"


def models(paper: NetworkModel, hosts: int) -> dict[str, NetworkModel]:
    """Return the network models to compare, all with the same measured a, b and eta."""
    ring = replace(paper, ring_size=hosts)
    return {
        "paper": paper,
        "by servers": ring,
        "max-min": replace(paper, law="max-min"),
        "max-min, by servers": replace(ring, law="max-min"),
    }


def predicted_s(mix: Sequence[Timed], hosts: int, network: NetworkModel) -> list[float]:
    """Simulate a mix with the starts as they were; return how long each message takes."""
    first = min(timed.start_s for timed in mix)
    jobs = [
        Job(
            job_id=str(index),
            arrival_ns=round((timed.start_s - first) * 1e9),
            gpus=len(timed.message.hosts),
            iterations=1,
            forward_ns=1,
            backward_ns=1,
            gradient_bytes=timed.message.message_bytes,
            memory_bytes=sum(1 << host for host in timed.message.hosts),
        )
        for index, timed in enumerate(mix)
    ]
    result = simulate(
        Workload(jobs),
        f"{hosts}x{len(mix)}",
        network=network,
        policy=f"{_PINNED}+srsf:{len(mix)}",
    )
    return [float(jct) for jct in result.jct_s]


def halves(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Split a calibration: every second size with k = 1 and 3 to fit to, the rest to predict."""
    sizes = sorted({sample.message_bytes for sample in samples})[::2]

    def known(sample: Sample) -> bool:
        return sample.message_bytes in sizes and sample.k in {1, 3}

    return [one for one in samples if known(one)], [one for one in samples if not known(one)]


def errors_of_half(rest: Sequence[Sample], network: NetworkModel) -> list[float]:
    """Return predicted / measured - 1 for every shot of the other half."""
    return [
        network.all_reduce_ns(shot.message_bytes, shot.k) / shot.time_ns - 1 for shot in shots(rest)
    ]
