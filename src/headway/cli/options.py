"""Options that several commands take, written once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headway.policies.policy_set import PolicySet

ClusterOption = Annotated[
    str, typer.Option(help="SERVERSxGPUS, or a .toml file with a [cluster] table.")
]
GpuMemoryOption = Annotated[
    float | None,
    typer.Option(help="Memory of a GPU (1 GB = 1024 MB).  [default: 16]", show_default=False),
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        help="The kind of GPU, for its power: v100, a100, h100, …  [default: v100]",
        show_default=False,
    ),
]
ExclusiveOption = Annotated[
    bool,
    typer.Option(
        "--exclusive",
        help="Give every job its GPUs to itself. Otherwise jobs share a GPU while their memory "
        "fits, unless the cluster's file or the workload says exclusive.",
    ),
]
NetworkOption = Annotated[
    str,
    typer.Option(
        help="10gbe (measured), 25gbe or 100gbe (estimated from it), no-contention, or a .toml "
        "file with a [network] table."
    ),
]
_OWN = "or FILE.py:FUNCTION for your own"
PolicyOption = Annotated[
    str,
    typer.Option(
        help="All of the policies: paper (lwf:1+ada-srsf), headway, or a combination such as "
        "ff+srsf:1@25 (@25: all-reduces are sent in buckets of 25 MB). The options below override "
        "its parts."
    ),
]
PlacementOption = Annotated[
    str | None,
    typer.Option(
        help="Which GPUs a job gets: rand, ff, ls, lwf:KAPPA, least-delay, spread, consolidate, "
        f"tiresias, apart, {_OWN}."
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(help="A priority and an admission in one: ada-srsf, srsf:1, srsf:2, …"),
]
PriorityOption = Annotated[
    str | None,
    typer.Option(
        help="Which job goes first: srsf, srtf, fifo, smallest, las, 2d-las:QUANTUM_S, "
        f"gpu-intensity, {_OWN}."
    ),
]
AdmissionOption = Annotated[
    str | None,
    typer.Option(
        help=f"When an all-reduce may start: ada-dual, srsf:N, interleave, k-way, {_OWN}."
    ),
]
BucketOption = Annotated[
    float | None,
    typer.Option(
        help="The most MB (2**20 bytes) that one message carries; 0 sends an all-reduce whole."
    ),
]
ProfilesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--profiles",
        metavar="NAME|FILE.toml",
        help="What models cost: a set that comes with Headway (`headway workload profiles` lists "
        "them) or a file of `headway calibrate model`; may be given several times, and the first "
        "that has a model counts.  [default: v100]",
        show_default=False,
    ),
]
AccuracyOption = Annotated[
    str | None,
    typer.Option(
        metavar="PERCENT",
        help="Estimate jobs that contend and never repeat from samples of this accuracy (1%), with "
        "95% intervals, which may be wider; much faster for long runs.  [default: exact]",
        show_default=False,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads", "-j", help="Runs at a time.  [default: all cores]", show_default=False
    ),
]


def policy_set(
    policy: str,
    placement: str | None,
    scheduler: str | None,
    priority: str | None,
    admission: str | None,
    bucket_mb: float | None,
) -> PolicySet:
    """Return the policies that a command's options name."""
    from headway.policies.policy_set import PolicySet

    return PolicySet.parse(policy).override(placement, scheduler, priority, admission, bucket_mb)


def files_among(*texts: str | None) -> list[str]:
    """Return the files that options for clusters, networks, profiles and policies name."""
    parts = [part for text in texts if text for part in re.split("[,+]", text)]
    tables = [part.strip() for part in parts if part.strip().endswith(".toml")]
    return tables + [part.split(".py:")[0].strip() + ".py" for part in parts if ".py:" in part]


def names_from(text: str | None) -> list[str] | None:
    """Return the names in a list separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
