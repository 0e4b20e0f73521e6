"""Reads a log of bounded size as it grows: the file NAME, and NAME.1, which it was before."""

from __future__ import annotations

import os
from pathlib import Path


class Tail:
    """Reads a log from the oldest that is left of it on, also across its moving to `NAME.1`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handles: list[int] = []  # the file that is read, and the next one if there is one

    def read(self, most_bytes: int) -> bytes:
        """Return what comes next, at most so much; nothing if that is all so far."""
        data = b""
        while len(data) < most_bytes:
            more = os.read(self._handles[0], most_bytes - len(data)) if self._handles else b""
            data += more
            if more:
                continue
            if len(self._handles) == 2:
                os.close(self._handles.pop(0))
            elif not self._find_next():
                break
            # It may have grown before it was moved: it is read to its end once more.
        return data

    def close(self) -> None:
        """Close all files."""
        while self._handles:
            os.close(self._handles.pop())

    def _find_next(self) -> bool:
        """Open the file after the one that is read; False if there is none."""
        # In this order: a move between the two shows one file twice, and hides none.
        found = [*self._opened(str(self._path)), *self._opened(f"{self._path}.1")]
        found.reverse()
        # A file that has neither name any more was dropped: all that is left comes after it.
        after = 0
        if self._handles:
            here = os.fstat(self._handles[0])
            after = max(
                (at + 1 for at, one in enumerate(found) if os.path.samestat(os.fstat(one), here)),
                default=0,
            )
        for at, handle in enumerate(found):
            if at == after:
                self._handles.append(handle)
            else:
                os.close(handle)
        return after < len(found)

    @staticmethod
    def _opened(path: str) -> list[int]:
        try:
            return [os.open(path, os.O_RDONLY)]
        except FileNotFoundError:
            return []
