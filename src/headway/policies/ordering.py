"""Sorting and selection for placements."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.records import Integers
from headway.jit import routine

Keys = NDArray[np.integer[Any]]

_FEW = 16
"""Up to this many items are sorted by insertion, more by a heap."""


@routine
def stable_sort(items: Integers, keys: Keys) -> None:
    """Sort items by ascending keys[item], keeping the order of equals (a merge sort)."""
    count = len(items)
    source, target = items.copy(), items.copy()
    width = 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            left, right = low, middle
            for index in range(low, high):
                if left < middle and (right >= high or keys[source[left]] <= keys[source[right]]):
                    target[index] = source[left]
                    left += 1
                else:
                    target[index] = source[right]
                    right += 1
        source, target = target, source
        width *= 2
    for index in range(count):
        items[index] = source[index]


@routine
def _sink(heap: Integers, size: int, position: int, keys: Keys) -> None:
    """Sift an item down in heap[:size], whose root has the largest (keys[item], item)."""
    item = heap[position]
    key = keys[item]
    child = 2 * position + 1
    while child < size:
        larger, its_key = heap[child], keys[heap[child]]
        if child + 1 < size:
            other, other_key = heap[child + 1], keys[heap[child + 1]]
            if other_key > its_key or (other_key == its_key and other > larger):
                larger, its_key = other, other_key
                child += 1
        if its_key < key or (its_key == key and larger < item):
            break
        heap[position] = larger
        position, child = child, 2 * child + 1
    heap[position] = item


@routine
def sort_by_key(items: Integers, keys: Keys) -> None:
    """Sort distinct items by ascending (keys[item], item), whatever order they come in."""
    count = len(items)
    if count <= _FEW:
        for end in range(1, count):
            item, key, position = items[end], keys[items[end]], end
            while position > 0:
                other, other_key = items[position - 1], keys[items[position - 1]]
                if other_key < key or (other_key == key and other < item):
                    break
                items[position] = other
                position -= 1
            items[position] = item
        return
    for position in range(count // 2 - 1, -1, -1):
        _sink(items, count, position, keys)
    for size in range(count - 1, 0, -1):
        items[0], items[size] = items[size], items[0]
        _sink(items, size, 0, keys)


@routine
def put_least_first(items: Integers, keys: Keys, count: int) -> None:
    """Put the `count` items of the least (keys[item], item) first, in the order that they had.

    The others follow in no particular order. Items are distinct. This takes one look at each item
    and a heap of `count` for those that are less than all `count` so far; a sort looks at all of
    them again and again.
    """
    if count < 1 or count >= len(items):
        return
    if count == 1:
        best = 0
        for index in range(1, len(items)):
            key, least = keys[items[index]], keys[items[best]]
            if key < least or (key == least and items[index] < items[best]):
                best = index
        items[0], items[best] = items[best], items[0]
        return
    heap = items[:count].copy()
    for position in range(count // 2 - 1, -1, -1):
        _sink(heap, count, position, keys)
    last, limit = heap[0], keys[heap[0]]
    for index in range(count, len(items)):
        item = items[index]
        if keys[item] < limit or (keys[item] == limit and item < last):
            heap[0] = item
            _sink(heap, count, 0, keys)
            last, limit = heap[0], keys[heap[0]]
    position = 0
    for index in range(len(items)):
        item = items[index]
        if keys[item] < limit or (keys[item] == limit and item <= last):
            items[index] = items[position]
            items[position] = item
            position += 1


@routine
def bring_forward(items: Integers, index: int, count: int, to: int) -> None:
    """Exchange the `count` items from `index` on with those from `to` on, where `to` <= `index`.

    They keep their order; the two stretches may overlap.
    """
    if to == index:
        return
    for i in range(count):
        items[to + i], items[index + i] = items[index + i], items[to + i]
