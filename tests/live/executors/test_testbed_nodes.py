"""The local executor on the hosts of a testbed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import testbed as testbeds
from headway.domain.errors import InputError
from headway.live.executors import Attempt
from headway.live.executors.local import nodes
from live.executors.helpers import job, local_executor, make_slots, processes_with
from waiting import eventually_async

pytestmark = pytest.mark.root

A = Attempt("a", 1)
MEET = """
import os, socket
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(address) as server:
        print(server.accept()[1][0], os.environ["GLOO_SOCKET_IFNAME"])
else:
    while True:
        try:
            socket.create_connection(address).close()
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
        async with local_executor(tmp_path, hosts) as (executor, handler):
            await executor.launch(A, job(MEET), make_slots("host2:0", "host1:1"), {})
            ended = await handler.end_of(A)
            assert ended.code == 0, ended
            return executor.log(A, 0).read_text()

    assert asyncio.run(run()) == "10.77.0.1 eth0\n"


def test_ranks_on_hosts_can_be_stopped(bed: testbeds.Testbed, tmp_path: Path) -> None:
    async def run() -> None:
        hosts = nodes.testbed_nodes(bed.name, 1, 2**30)
        async with local_executor(tmp_path, hosts) as (executor, handler):
            word = str(tmp_path)
            spec = job("import time; time.sleep(600)", word)
            await executor.launch(A, spec, make_slots("host1:0", "host2:0"), {})
            await eventually_async(lambda: len(processes_with(word)) == 2)
            await executor.stop(A)
            assert (await handler.end_of(A)).reason == "stopped"
            assert processes_with(word) == []

    asyncio.run(run())


def test_an_unknown_testbed_is_an_error() -> None:
    with pytest.raises(InputError, match="there is no testbed 'no-such-one'"):
        nodes.testbed_nodes("no-such-one", 1, 1)
