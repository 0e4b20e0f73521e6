"""Alibaba's published topology of a Lingjun cluster: `topo.csv` of its dataset of 2023 (Crux).

A row is a host: its address (a hash) and the switches it is under: ASW (the leaf), PSW (the
aggregation group) and DSW (the core group). Names of ASWs repeat from PSW to PSW.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from headway.configuration.clos import factors_for
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError, shown
from headway.domain.gpus import GpuType
from headway.domain.tiers import Tier
from headway.files import open_input

COLUMNS = ("ip", "DSW", "PSW", "ASW")
LARGEST_FILE_BYTES = 2**26

Path = tuple[str, ...]
"""The switches of a host, highest first: DSW, PSW, ASW."""


def read_lingjun(
    path: str,
    gpus_per_server: int,
    gpu: GpuType,
    rails: int = 1,
    oversubscription: Sequence[float] = (1.0,),
) -> Cluster:
    """Read the hosts and their switches; the rest, which the file does not say, is given.

    Servers are numbered by DSW, PSW and ASW. `oversubscription` is that of each tier, lowest first,
    or one for all. The highest tier is left out if it has but one switch.
    """
    leaves = Counter(_hosts(path))
    paths = sorted(leaves, key=lambda names: [_natural(name) for name in names])
    tiers = ["ASW", "PSW", "DSW"]
    if len({names[0] for names in paths}) == 1:
        tiers, depth = tiers[:2], 1
    else:
        depth = 0
    groups = [
        ServerGroup(
            leaves[names],
            gpus_per_server,
            gpu,
            rails=rails,
            switches=tuple("/".join(names[depth:end]) for end in range(3, depth, -1)),
        )
        for names in paths
    ]
    factors = factors_for(tiers, oversubscription)
    return Cluster.of(groups, tiers=map(Tier, tiers, factors))


def _hosts(path: str) -> Iterator[Path]:
    """Yield the switches of each host."""
    with open_input(path) as stream:
        data = stream.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        raise InputError(f"larger than {LARGEST_FILE_BYTES:,} bytes.", source=path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("not UTF-8 text.", source=path, line=line) from None
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    seen: dict[str, int] = {}
    try:
        header = next(rows, [])
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise InputError(
                f"no column {missing[0]}; the first line must name {', '.join(COLUMNS)}.",
                source=path,
                line=1,
            )
        for row in rows:
            if row:
                yield _host(dict(zip(header, row, strict=False)), seen, path, rows.line_num)
    except csv.Error as error:
        raise InputError(f"not CSV: {error}.", source=path, line=rows.line_num) from None
    if not seen:
        raise InputError("has no hosts.", source=path)


def _host(values: dict[str, str], seen: dict[str, int], path: str, line: int) -> Path:
    for name in COLUMNS:
        if not values.get(name, "").strip():
            raise InputError("is empty.", field=name, source=path, line=line)
    address = values["ip"].strip()
    if seen.setdefault(address, line) != line:
        raise InputError(
            f"{shown(address)} is duplicated; it is on line {seen[address]} too.",
            field="ip",
            source=path,
            line=line,
        )
    return tuple(values[name].strip() for name in COLUMNS[1:])


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which S2 comes before S10."""
    parts = re.split(r"0*([0-9]+)", name)
    # Of two numbers without leading zeros, the one with more digits is larger.
    return [(len(part), part) if at % 2 else (-1, part) for at, part in enumerate(parts)]
