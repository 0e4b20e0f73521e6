"""Jobs on the hosts of a testbed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import testbed as testbeds
from headway.domain.errors import InputError
from headway.live.executors import Attempt, nodes
from live.executors.driving import eventually, having, job, local, slots

A = Attempt("a", 1)
MEET = """
import os, socket
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server:
        print(server.accept()[1][0], os.environ["GLOO_SOCKET_IFNAME"])
else:
    while True:
        try:
            socket.create_connection(place).close()
        except OSError:
            continue
        break
"""


@pytest.fixture(scope="module")
def bed() -> Iterator[testbeds.Testbed]:
    made = testbeds.Testbed(f"x{os.getpid()}", hosts=2, rate_mbit=200)
    testbeds.up(made)
    yield made
    testbeds.down(made.name)


def test_ranks_meet_over_the_network_of_the_testbed(bed: testbeds.Testbed, tmp_path: Path) -> None:
    async def run() -> str:
        hosts = nodes.testbed_nodes(bed.name, 2, 2**30)
        assert [(node.name, node.address) for node in hosts] == [
            ("host1", "10.77.0.1"),
            ("host2", "10.77.0.2"),
        ]
        async with local(tmp_path, hosts) as (executor, diary):
            await executor.launch(A, job(MEET), slots("host2:0", "host1:1"), {})
            ended = await diary.end_of(A)
            assert ended.code == 0, ended
            return executor.log(A, 0).read_text()

    assert asyncio.run(run()) == "10.77.0.1 eth0\n"


def test_ranks_on_hosts_end_when_they_are_stopped(bed: testbeds.Testbed, tmp_path: Path) -> None:
    async def run() -> None:
        async with local(tmp_path, nodes.testbed_nodes(bed.name, 1, 2**30)) as (executor, diary):
            word = str(tmp_path)
            spec = job("import time; time.sleep(600)", word)
            await executor.launch(A, spec, slots("host1:0", "host2:0"), {})
            assert await eventually(lambda: len(having(word)) == 2)
            await executor.stop(A)
            assert (await diary.end_of(A)).reason == "stopped"
            assert having(word) == []

    asyncio.run(run())


def test_a_testbed_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InputError, match="there is no testbed 'no-such-one'"):
        nodes.testbed_nodes("no-such-one", 1, 1)
