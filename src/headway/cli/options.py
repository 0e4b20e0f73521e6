"""Options that several commands take, written once."""

from __future__ import annotations

from typing import Annotated

import typer

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
NetworkOption = Annotated[
    str, typer.Option(help="10gbe, no-contention, or a .toml file with a [network] table.")
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
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads", "-j", help="Runs at a time.  [default: all cores]", show_default=False
    ),
]
