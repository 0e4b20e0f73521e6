"""Mixes of messages on the testbed: different sizes, overlapping in time and partly in hosts.

Run as a module it is one process of such a measurement: process s of every host belongs to message
s of each mix. All hosts are namespaces of one machine, so their clocks are one clock.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import combinations
from typing import Any

from headway.calibrate.network.on_testbed import ranks
from headway.calibrate.network.processes import run_all, taking_part
from headway.calibrate.network.rank import import_torch
from headway.calibrate.progress import ProgressLine
from headway.domain.errors import MachineError
from headway.testbed import Testbed
from headway.testbed.rate_client import message_on_network

SLOTS = 5
"""Messages of a mix."""

_SPAN_S = 3.0
"""Over which the messages of a mix start: two or three are on the network most of the time."""

_LEAD_S = 0.2
"""From the agreement on a start to the start."""


@dataclass(frozen=True, slots=True)
class Message:
    """One all-reduce of a mix: the hosts, counted from 0, its bytes, and when it starts."""

    hosts: tuple[int, ...]
    message_bytes: int
    offset_s: float


@dataclass(frozen=True, slots=True)
class Timed:
    """A message as it went: from its last process's start to its last process's end."""

    message: Message
    start_s: float
    end_s: float


def random_mixes(
    testbed: Testbed, count: int, seed: int, all_hosts: bool = False
) -> list[list[Message]]:
    """Draw mixes whose messages take 0.1 to 1.6 s alone between two hosts, and overlap.

    Args:
        testbed: Its rate scales the sizes.
        count: How many mixes.
        seed: Of the draw.
        all_hosts: Every message is on all hosts, instead of on a random set of two or more.
    """
    lots = random.Random(seed)
    second = testbed.rate_mbit * 1e6 / 8
    subsets = [
        hosts
        for size in range(2, testbed.hosts + 1)
        for hosts in combinations(range(testbed.hosts), size)
    ]
    mixes = []
    for _ in range(count):
        mix = []
        for _ in range(SLOTS):
            hosts = subsets[-1] if all_hosts else lots.choice(subsets)
            size = round(second * 0.1 * 16 ** lots.random()) // 4 * 4
            mix.append(Message(hosts, size, _SPAN_S * lots.random()))
        mixes.append(mix)
    return mixes


def measure_mixes(testbed: Testbed, mixes: Sequence[Sequence[Message]]) -> list[list[Timed]]:
    """Run mixes on a testbed."""
    given = json.dumps([[asdict(message) for message in mix] for mix in mixes])
    with ProgressLine("mixes") as progress:
        rows = run_all(ranks(testbed, SLOTS, 29401, [__file__, given]), progress)
    return [
        [Timed(message, *times) for message, times in zip(mix, row, strict=True)]
        for mix, row in zip(mixes, rows, strict=True)
    ]


def _take_part(text: str) -> None:
    mixes = [
        [Message(tuple(one["hosts"]), one["message_bytes"], one["offset_s"]) for one in mix]
        for mix in json.loads(text)
    ]
    with taking_part() as tell:
        torch = import_torch()
        dist: Any = torch.distributed
        dist.init_process_group("gloo", timeout=timedelta(seconds=120))
        rank = dist.get_rank()
        host, slot = divmod(rank, SLOTS)
        wanted = sorted({(s, mix[s].hosts) for mix in mixes for s in range(SLOTS)})
        groups = {
            (s, hosts): dist.new_group([one * SLOTS + s for one in hosts]) for s, hosts in wanted
        }
        data = torch.zeros(max(one.message_bytes for mix in mixes for one in mix) // 4)
        for group in (groups[key] for key in wanted if key[0] == slot and host in key[1]):
            dist.all_reduce(data[:4], group=group)  # Connections are made here, not in a mix.
        rows = []
        for number, mix in enumerate(mixes):
            rows.append(_run(dist, data, mix[slot], groups.get((slot, mix[slot].hosts)), host))
            if rank == 0:
                tell("progress", (number + 1) / len(mixes))
        everyone: Any = [None] * dist.get_world_size() if rank == 0 else None
        dist.gather_object(rows, everyone)
        if rank == 0:
            tell("result", [_together(everyone, number, mix) for number, mix in enumerate(mixes)])
        dist.destroy_process_group()


def _run(
    dist: Any, data: Any, message: Message, group: Any, host: int
) -> tuple[float, float] | None:
    """Send this process's message of a mix at its time; return its start and end."""
    dist.barrier()
    start: list[Any] = [time.monotonic() + _LEAD_S]
    dist.broadcast_object_list(start)
    if start[0] < time.monotonic():
        raise MachineError("the agreement on a start came too late.")
    if host not in message.hosts:
        return None
    time.sleep(max(0.0, start[0] + message.offset_s - time.monotonic()))
    with message_on_network():
        started = time.monotonic()
        dist.all_reduce(data[: message.message_bytes // 4], group=group)
        return started, time.monotonic()


def _together(
    everyone: list[list[tuple[float, float] | None]], number: int, mix: Sequence[Message]
) -> list[tuple[float, float]]:
    """Return the start and end of each message of a mix, from the times of its processes."""
    result = []
    for slot, message in enumerate(mix):
        times = [everyone[host * SLOTS + slot][number] for host in message.hosts]
        known = [pair for pair in times if pair is not None]
        result.append((max(pair[0] for pair in known), max(pair[1] for pair in known)))
    return result


if __name__ == "__main__":
    _take_part(sys.argv[1])
