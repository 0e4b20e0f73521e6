"""The status of a testbed: its hosts, the current rates of its links, and any problems."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headway.domain.errors import InputError, MachineError, did_you_mean
from headway.testbed import processes, state
from headway.testbed.description import Testbed
from headway.testbed.shaping import DATA
from headway.testbed.system import check_prerequisites, query, query_json

_RATE = re.compile(r" rate (\d+)([KMG]?)bit ")
_FACTOR = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host; a rate is None if its limit is missing."""

    host: int
    address: str
    sends_mbit: float | None
    receives_mbit: float | None
    pids: tuple[int, ...]
    """The processes in the host, except those of the testbed itself."""


@dataclass(frozen=True, slots=True)
class Status:
    """A testbed, its hosts, and one sentence for each problem."""

    testbed: Testbed
    hosts: tuple[HostStatus, ...]
    problems: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def status(name: str = "default") -> Status:
    """Return the status of a testbed."""
    check_prerequisites()
    with state.locked(shared=True):
        record = state.read(name)
        if record is None:
            up = state.names()
            hint = did_you_mean(name, up) if up else " None is up."
            raise InputError(f"there is no testbed {name!r}.{hint}")
        return inspect(record)


def statuses() -> list[Status]:
    """Return the status of every testbed."""
    check_prerequisites()
    with state.locked(shared=True):
        return [inspect(record) for record in map(state.read, state.names()) if record is not None]


def inspect(record: state.Record) -> Status:
    """Check every part of a testbed."""
    testbed = record.testbed
    problems: list[str] = []
    switch = _Namespace(testbed.switch, problems)
    switch.check("br0", {})
    inside = processes.inside(testbed.namespaces)
    controller = _controller(record)
    if testbed.eta > 0 and controller is None:
        problems.append("the rate controller has ended")
    hosts = []
    for host in testbed.numbers:
        own = _Namespace(testbed.namespace(host), problems)
        own.check("lo", {})
        own.check("eth0", {"address": testbed.address(host)})
        switch.check(f"port{host}", {"master": "br0"})
        sends, receives = (
            _checked_rate(namespace, device, testbed, problems)
            for namespace, device in ((own, "eth0"), (switch, f"port{host}"))
        )
        pids = tuple(
            pid
            for pid in inside[own.name]
            if controller is None or processes.session(pid) not in (controller, None)
        )
        hosts.append(HostStatus(host, testbed.address(host), sends, receives, pids))
    return Status(testbed, tuple(hosts), tuple(problems))


def _controller(record: state.Record) -> int | None:
    """Return the rate controller's process id; one without a socket is about to end."""
    controller, socket = record.rate_controller, record.testbed.socket
    if controller is None or socket is None or not socket.exists() or not controller.alive():
        return None
    return controller.pid


class _Namespace:
    """The links and limits in a namespace; a missing namespace is reported once."""

    def __init__(self, name: str, problems: list[str]) -> None:
        self.name = name
        self.found = False
        self._problems = problems
        self._links: dict[str, dict[str, Any]] = {}
        try:
            for link in query_json("ip", "address", "show", namespace=name):
                self._links[link["ifname"]] = link
            self.found = True
        except MachineError:
            problems.append(f"namespace {name} is missing")

    def check(self, device: str, wanted: dict[str, str]) -> None:
        """Report a device that is missing, down, or lacks its bridge or address."""
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
        """Return the rate limit of a device's data in Mbit/s, as tc rounds it (to 1 in 1000)."""
        words = ("class", "show", "dev", device, "classid", DATA)
        try:
            # tc prints no JSON for classes.
            rate = _RATE.search(query("tc", *words, namespace=self.name))
        except MachineError:
            return None  # The device is missing, or was just removed.
        return None if rate is None else int(rate[1]) * _FACTOR[rate[2]] / 1e6


def _checked_rate(
    namespace: _Namespace, device: str, testbed: Testbed, problems: list[str]
) -> float | None:
    """Return a link's rate in Mbit/s, and report one that cannot be right."""
    rate, full = namespace.rate_mbit(device), testbed.rate_mbit
    wrong = rate is None or rate > full or (testbed.eta == 0 and rate != full)
    if namespace.found and wrong:
        problems.append(f"{device} in {namespace.name} is not limited to its rate")
    return rate
