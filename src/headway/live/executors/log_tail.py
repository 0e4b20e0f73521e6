"""Reading a log of bounded size while it grows: the file NAME, and the older half NAME.1.

A job can replace its log with anything, so only regular files are read, and no link is followed.
"""

from __future__ import annotations

import os
from pathlib import Path

from headway.live.executors.node_tools import open_regular


class LogTail:
    """Reads a log from its oldest byte on, and follows it when NAME is moved to NAME.1."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handles: list[int] = []  # the file being read, and the next one if there is one

    def read(self, max_bytes: int) -> bytes:
        """Return the next bytes; none if the end is reached for now."""
        data = b""
        while len(data) < max_bytes:
            more = os.read(self._handles[0], max_bytes - len(data)) if self._handles else b""
            data += more
            if more:
                continue
            if len(self._handles) == 2:
                os.close(self._handles.pop(0))
            elif not self._open_next():
                break
            # The file may have grown before it was moved: read to its end once more.
        return data

    def close(self) -> None:
        """Close all files."""
        while self._handles:
            os.close(self._handles.pop())

    def _open_next(self) -> bool:
        """Open the file after the one being read; False if there is none."""
        # In this order: a move between the two calls shows one file twice, and hides none.
        found = [*self._open(str(self._path)), *self._open(f"{self._path}.1")]
        found.reverse()
        # A file that no longer has either name was deleted: everything left comes after it.
        after = 0
        if self._handles:
            here = os.fstat(self._handles[0])
            after = max(
                (
                    i + 1
                    for i, handle in enumerate(found)
                    if os.path.samestat(os.fstat(handle), here)
                ),
                default=0,
            )
        for index, handle in enumerate(found):
            if index == after:
                self._handles.append(handle)
            else:
                os.close(handle)
        return after < len(found)

    @staticmethod
    def _open(path: str) -> list[int]:
        try:
            return [open_regular(path)]
        except OSError:
            return []
