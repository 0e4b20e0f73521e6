"""How a testbed stands: what is there, what is missing, how fast its links are now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headway.domain.errors import InputError, MachineError, did_you_mean
from headway.testbed import processes, state
from headway.testbed.description import Testbed
from headway.testbed.shaping import DATA
from headway.testbed.system import ask, require, told

_RATE = re.compile(r" rate (\d+)([KMG]?)bit ")
_FACTOR = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host; a rate is None where its limit is missing."""

    host: int
    address: str
    sends_mbit: float | None
    receives_mbit: float | None
    pids: tuple[int, ...]
    """The processes inside, without those of the testbed itself."""


@dataclass(frozen=True, slots=True)
class Status:
    """A testbed, its hosts, and one sentence for each thing that is wrong."""

    testbed: Testbed
    hosts: tuple[HostStatus, ...]
    problems: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything is there."""
        return not self.problems


def status(name: str = "default") -> Status:
    """Return how a testbed stands."""
    require()
    with state.locked(shared=True):
        record = state.read(name)
        if record is None:
            up = state.names()
            hint = did_you_mean(name, up) if up else " None is up."
            raise InputError(f"there is no testbed {name!r}.{hint}")
        return inspect(record)


def statuses() -> list[Status]:
    """Return how every testbed stands."""
    require()
    with state.locked(shared=True):
        return [inspect(record) for record in map(state.read, state.names()) if record is not None]


def inspect(record: state.Record) -> Status:
    """Look at everything that a testbed is made of."""
    testbed = record.testbed
    problems: list[str] = []
    switch = _Namespace(testbed.switch, problems)
    switch.check("br0", {})
    inside = processes.inside(testbed.namespaces)
    keeper = _keeper(record)
    if testbed.eta > 0 and keeper is None:
        problems.append("the keeper has ended")
    hosts = []
    for host in testbed.numbers:
        own = _Namespace(testbed.namespace(host), problems)
        own.check("lo", {})
        own.check("eth0", {"address": testbed.address(host)})
        switch.check(f"port{host}", {"master": "br0"})
        sends, receives = (
            _checked_rate(place, device, testbed, problems)
            for place, device in ((own, "eth0"), (switch, f"port{host}"))
        )
        pids = tuple(
            pid
            for pid in inside[own.name]
            if keeper is None or processes.session(pid) not in (keeper, None)
        )
        hosts.append(HostStatus(host, testbed.address(host), sends, receives, pids))
    return Status(testbed, tuple(hosts), tuple(problems))


def _keeper(record: state.Record) -> int | None:
    """Return the number of the keeper's process; one without a socket is about to end."""
    keeper, socket = record.keeper, record.testbed.socket
    if keeper is None or socket is None or not socket.exists() or not keeper.alive():
        return None
    return keeper.pid


class _Namespace:
    """The links and limits found in a namespace; one that is missing is a problem, once."""

    def __init__(self, name: str, problems: list[str]) -> None:
        self.name = name
        self.found = False
        self._problems = problems
        self._links: dict[str, dict[str, Any]] = {}
        try:
            for link in ask("ip", "address", "show", namespace=name):
                self._links[link["ifname"]] = link
            self.found = True
        except MachineError:
            problems.append(f"namespace {name} is missing")

    def check(self, device: str, wanted: dict[str, str]) -> None:
        """Add a problem unless the device is there, up, and has its bridge and address."""
        if not self.found:
            return
        link = self._links.get(device)
        if link is None:
            self._problems.append(f"{device} is missing in {self.name}")
            return
        addresses = [address["local"] for address in link["addr_info"]]
        if "UP" not in link["flags"]:
            self._problems.append(f"{device} is down in {self.name}")
        elif wanted.get("master", link.get("master")) != link.get("master"):
            self._problems.append(f"{device} is not on the bridge of {self.name}")
        elif "address" in wanted and wanted["address"] not in addresses:
            self._problems.append(f"{device} in {self.name} lacks {wanted['address']}")

    def rate_mbit(self, device: str) -> float | None:
        """Return the rate that a device's data is held to, as tc rounds it (to 1 in 1000)."""
        words = ("class", "show", "dev", device, "classid", DATA)
        try:
            # Of classes tc has no JSON.
            rate = _RATE.search(told("tc", *words, namespace=self.name))
        except MachineError:
            return None  # The device is gone, or was removed this moment.
        return None if rate is None else int(rate[1]) * _FACTOR[rate[2]] / 1e6


def _checked_rate(
    place: _Namespace, device: str, testbed: Testbed, problems: list[str]
) -> float | None:
    """Return a link's rate in Mbit/s; one that cannot be right is a problem."""
    rate, full = place.rate_mbit(device), testbed.rate_mbit
    if place.found and (rate is None or rate > full or (testbed.eta == 0 and rate != full)):
        problems.append(f"{device} in {place.name} is not held to its rate")
    return rate
