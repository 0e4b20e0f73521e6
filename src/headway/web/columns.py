"""Columns of integers as one block of bytes, small and quick to read in a browser.

A block is gzip-compressed:

1. 4 bytes: the length of the header, little-endian;
2. the header: JSON in UTF-8 with the values of the block, and under `columns` a list of
   `[name, count, planes]`;
3. the columns in that order. A value v is stored as the unsigned z = 2v if v >= 0, else -2v - 1. A
   column has `planes` bytes for each value: first the lowest bytes of all values, then the next.

Equal high bytes lie together, which gzip likes. Browsers read integers exactly up to 2**53.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.results.usage import Integers

_LEVEL = 6


def pack(values: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a block with these values in its header."""
    layout, parts = [], []
    for name, column in columns.items():
        planes, content = _planes(np.asarray(column, np.int64))
        layout.append([name, len(column), planes])
        parts.append(content)
    header = json.dumps({**values, "columns": layout}, ensure_ascii=False, allow_nan=False)
    encoded = header.encode()
    body = b"".join([len(encoded).to_bytes(4, "little"), encoded, *parts])
    return gzip.compress(body, _LEVEL, mtime=0)


def unpack(block: bytes) -> tuple[dict[str, Any], dict[str, Integers]]:
    """Return the values and the columns of a block, as the browser reads them."""
    body = gzip.decompress(block)
    first = 4 + int.from_bytes(body[:4], "little")
    values = json.loads(body[4:first])
    columns: dict[str, Integers] = {}
    for name, count, planes in values.pop("columns"):
        stored = np.zeros((count, 8), np.uint8)
        content = np.frombuffer(body, np.uint8, count * planes, first)
        stored[:, :planes] = content.reshape(planes, count).T
        unsigned = stored.view("<u8").reshape(count)
        columns[name] = (unsigned >> 1).astype(np.int64) ^ -(unsigned & 1).astype(np.int64)
        first += count * planes
    return values, columns


def steps(values: NDArray[Any]) -> Integers:
    """Return what each value adds to the one before; the first counts from 0."""
    found: Integers = values.astype(np.int64)
    found[1:] -= found[:-1].copy()
    return found


def spread(lists: Sequence[Sequence[int]], chosen: Integers) -> tuple[Integers, Integers]:
    """Return the values of the chosen lists, one after the other, and which choice each is of."""
    sizes = np.array([len(one) for one in lists], np.int64)
    flat = np.array([*chain.from_iterable(lists)], np.int64)
    first = np.cumsum(sizes) - sizes
    own = sizes[chosen]
    choice = np.repeat(np.arange(len(own)), own)
    offset = np.arange(len(choice)) - np.repeat(np.cumsum(own) - own, own)
    return flat[first[chosen[choice]] + offset], choice


def _planes(column: Integers) -> tuple[int, bytes]:
    unsigned = ((column << 1) ^ (column >> 63)).view(np.uint64)
    planes = max(1, (int(unsigned.max(initial=0)).bit_length() + 7) // 8)
    stored = unsigned.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :planes]
    return planes, stored.T.tobytes()
