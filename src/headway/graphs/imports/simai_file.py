"""Reads SimAI's workload text: a header with the sizes of parallel groups, then a row a layer.

A row has twelve columns: a name, a number without meaning, then for the forward pass, the input's
gradient and the weight's gradient the time (ns), the kind and the size (bytes) of a message, and
last the time of the weight's update (ns).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_GPUS
from headway.files import open_input

POLICIES = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER")
"""The training loops that are understood: the first word of a file."""

MAX_FILE_BYTES = 2**27
_COLUMNS = 12
_MAX_ROWS = 2**20

FORWARD, INPUT, WEIGHT = range(3)
"""The three parts of a row."""

_KINDS = {
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
    "BROADCAST": "all-gather",
}
_SUFFIXES = ("_DP_EP", "_EP", "")


@dataclass(frozen=True, slots=True)
class Part:
    """The computing of one part of a row, and the message after it."""

    time_ns: int
    name: str
    """What the file calls the message; NONE if there is none."""
    kind: str
    """The kind of the graph's message, empty if there is none."""
    group: str
    """The ranks of the message: tp, dp, ep or dp-ep."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """A layer: its name, and its forward pass, input's gradient and weight's gradient."""

    line: int
    name: str
    parts: tuple[Part, Part, Part]


@dataclass(frozen=True, slots=True)
class SimaiWorkload:
    """A workload text. Sizes of groups are 1 where the header has none; `gpus` may be None."""

    source: str
    tensor: int
    expert: int
    pipeline: int
    microbatches: int
    gpus: int | None
    pipeline_bytes: int
    rows: list[Row]


def read_simai(path: str) -> SimaiWorkload:
    """Read a workload text of SimAI, or standard input for `-`.

    Raises:
        InputError: The text is something else, or what it says makes no sense.
    """
    source = "standard input" if path == "-" else path
    lines = _lines(path, source)
    header = lines[0].split() if lines else []
    if not header or header[0] not in POLICIES:
        first = shown(header[0]) if header else "nothing"
        raise InputError(
            f"must begin with {' or '.join(POLICIES)}, not {first}.", source=source, line=1
        )
    values = _header(header, source)
    rows = _rows(lines, source)
    gpus = values.get("all_gpus")
    return SimaiWorkload(
        source=source,
        tensor=values.get("model_parallel_NPU_group", 1),
        expert=values.get("ep", 1),
        pipeline=values.get("pp", 1),
        microbatches=values.get("ga", 1),
        gpus=gpus,
        pipeline_bytes=values.get("pp_comm", 0),
        rows=rows,
    )


def _lines(path: str, source: str) -> list[str]:
    with open_input(path) as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"has more than {MAX_FILE_BYTES:,} bytes.", source=source)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 text: byte 0x{data[error.start]:02x}.",
            source=source,
            line=data.count(b"\n", 0, error.start) + 1,
        ) from None
    return text.split("\n")


_LEAST = {"model_parallel_NPU_group": 1, "ep": 1, "pp": 1, "ga": 1, "all_gpus": 1}
_MOST = {"pp_comm": MAX_BYTES}


def _header(words: Sequence[str], source: str) -> Mapping[str, int]:
    """Return the numbers of the header; keys may end in a colon."""
    values: dict[str, int] = {}
    known = {*_LEAST, *_MOST, "vpp", "checkpoints", "checkpoint_initiates"}
    place = 1
    while place < len(words):
        key = words[place].removesuffix(":")
        place += 1
        if key not in known:
            # SimAI passes over words that it does not know.
            continue
        if place == len(words):
            raise InputError("has no number.", source=source, line=1, field=key)
        least, most = _LEAST.get(key, 0), _MOST.get(key, MAX_GPUS)
        values[key] = _number(words[place], least, most, source, 1, key)
        place += 1
        if key.startswith("checkpoint") and values[key]:
            raise InputError(
                "must be 0: computing the forward pass again is not supported.",
                source=source,
                line=1,
                field=key,
            )
    return values


def _rows(lines: Sequence[str], source: str) -> list[Row]:
    count = _number(lines[1].strip() if len(lines) > 1 else "", 1, _MAX_ROWS, source, 2, "rows")
    rows = []
    for number, line in enumerate(lines[2:], 3):
        words = line.split()
        if not words:
            continue
        if len(words) != _COLUMNS:
            raise InputError(
                f"has {len(words):,} columns; a row has {_COLUMNS}.", source=source, line=number
            )
        forward, weight_input, weight = (
            _part(words[begin : begin + 3], begin, source, number) for begin in (2, 5, 8)
        )
        _number(words[11], 0, LONGEST_NS, source, number, "column 12")
        rows.append(Row(number, words[0], (forward, weight_input, weight)))
    if len(rows) != count:
        raise InputError(
            f"says that there are {count:,} rows, but there are {len(rows):,}.",
            source=source,
            line=2,
        )
    return rows


def _part(words: Sequence[str], begin: int, source: str, line: int) -> Part:
    """Return three columns of a row: time, kind and size."""
    time_ns = _number(words[0], 0, LONGEST_NS, source, line, f"column {begin + 1}")
    size = _number(words[2], 0, MAX_BYTES, source, line, f"column {begin + 3}")
    name = words[1]
    if name == "NONE":
        return Part(time_ns, name, "", "", 0)
    suffix = next(one for one in _SUFFIXES if name.endswith(one))
    stem = name.removesuffix(suffix)
    if stem not in _KINDS:
        raise InputError(
            f"unknown kind of message {shown(name)}.{did_you_mean(stem, [*_KINDS, 'NONE'])}",
            source=source,
            line=line,
            field=f"column {begin + 2}",
        )
    plain = "dp" if begin == 8 else "tp"
    group = {"_DP_EP": "dp-ep", "_EP": "ep", "": plain}[suffix]
    return Part(time_ns, stem, _KINDS[stem], group, size)


def _number(word: str, least: int, most: int, source: str, line: int, field: str) -> int:
    """Return a number of the text; generators write some whole numbers with a decimal point."""
    try:
        value = float(word) if len(word) < 40 and word.isascii() and "_" not in word else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"must be a number, not {shown(word)}.", source=source, line=line, field=field
        )
    exact = int(word) if word.lstrip("+-").isdigit() else round(value)
    if not least <= exact <= most:
        bound = f"at least {least:,}" if exact < least else f"at most {most:,}"
        raise InputError(
            f"must be {bound}, not {shown(word)}.", source=source, line=line, field=field
        )
    return exact
