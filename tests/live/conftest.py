"""A Slurm cluster that all tests of a session share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live.slurm_cluster import SlurmOnThisMachine, running_slurm


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnThisMachine]:
    with running_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slurm(slurm_cluster: SlurmOnThisMachine) -> Iterator[SlurmOnThisMachine]:
    """The cluster, which is idle, in the environment of a module's tests."""
    slurm_cluster.wait_until_idle()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in slurm_cluster.environment.items():
            patch.setenv(name, value)
        yield slurm_cluster
