"""A Ray cluster that all tests share; processes that a test leaves behind are killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.executors.ray_on_testbed import RayOnTestbed, running_ray


@pytest.fixture(autouse=True)
def _kill_leftovers(tmp_path: Path) -> Iterator[None]:
    yield
    mine = f"HEADWAY_ATTEMPT_FOLDER={tmp_path}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mine in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayOnTestbed]:
    with running_ray() as cluster:
        yield cluster
