"""Creating and removing testbeds, completely or not at all."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain

from headway.domain.errors import InputError, MachineError
from headway.testbed import processes, state
from headway.testbed.description import Testbed, log_of
from headway.testbed.inspection import inspect
from headway.testbed.processes import Process
from headway.testbed.shaping import CONGESTION, limits
from headway.testbed.system import batch, check_prerequisites, exists


def up(testbed: Testbed) -> bool:
    """Create a testbed; False if it is up already. A broken one is created again."""
    check_prerequisites()
    with state.locked() as lock:
        record = state.read(testbed.name)
        if record is None:
            _refuse_foreign_namespaces(testbed)
        elif record.testbed != testbed:
            raise InputError(
                f"testbed {testbed.name!r} is up with other settings ({record.testbed}): "
                f"first run headway testbed down --name {testbed.name}."
            )
        elif inspect(record).healthy:
            return False
        else:
            _remove(record, lock)
        try:
            state.write(state.Record(testbed))
            _create(testbed, lock)
            if testbed.eta > 0:
                _start_rate_controller(testbed)
        except BaseException:
            with _uninterrupted():
                _remove(state.read(testbed.name) or state.Record(testbed), lock)
            raise
    return True


def down(name: str = "default") -> bool:
    """End all processes in a testbed and remove it; False if there was none."""
    check_prerequisites()
    with state.locked() as lock:
        record = state.read(name)
        with _uninterrupted():
            if record is None:
                state.forget(name)
            else:
                _remove(record, lock)
    return record is not None


def _refuse_foreign_namespaces(testbed: Testbed) -> None:
    foreign = [namespace for namespace in testbed.namespaces if exists(namespace)]
    if foreign:
        raise InputError(
            f"namespace {foreign[0]} exists and belongs to no testbed. "
            "Choose another name, or remove it (ip netns delete)."
        )


def _create(testbed: Testbed, lock: int) -> None:
    """Create the namespaces, the bridge, the links, the addresses and, last, the limits."""
    batch("ip", [f"netns add {namespace}" for namespace in testbed.namespaces], lock)
    lines = ["link add br0 type bridge", "link set br0 up"]
    for host in testbed.numbers:
        peer = f"peer name eth0 mtu 1500 netns {testbed.namespace(host)}"
        lines.append(f"link add port{host} mtu 1500 type veth {peer}")
        lines.append(f"link set port{host} master br0 up")
    batch("ip", lines, lock, testbed.switch)
    for host in testbed.numbers:
        address = testbed.address(host)
        lines = [
            "link set lo up",
            f"address add {address}/24 dev eth0",
            "link set eth0 up",
            f"route replace 10.77.0.0/24 dev eth0 proto kernel scope link src {address} "
            f"congctl {CONGESTION}",
        ]
        batch("ip", lines, lock, testbed.namespace(host))
        batch("tc", limits(testbed, "eth0"), lock, testbed.namespace(host))
    ports = chain.from_iterable(limits(testbed, f"port{host}") for host in testbed.numbers)
    batch("tc", [*ports], lock, testbed.switch)


def _start_rate_controller(testbed: Testbed) -> None:
    """Start the rate controller; it waits until its process id is recorded."""
    with (
        open(log_of(testbed.name), "w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "headway.testbed.rate_controller", testbed.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as starter,
    ):
        assert starter.stdin is not None
        assert starter.stdout is not None
        pid = starter.stdout.readline()
        controller = Process.of(int(pid)) if pid else None
        if controller is not None:
            state.write(state.Record(testbed, controller))
            with contextlib.suppress(BrokenPipeError):
                starter.stdin.write("go\n")
                starter.stdin.flush()
        if controller is None or starter.stdout.readline() != "ready\n":
            reason = log_of(testbed.name).read_text().splitlines()[-1:] or ["no output"]
            raise MachineError(f"the rate controller did not start: {reason[0]}")


def _remove(record: state.Record, lock: int) -> None:
    """Remove whatever exists of a testbed, its state file last."""
    controller, namespaces = record.rate_controller, record.testbed.namespaces
    if controller is not None:
        processes.end(lambda: [controller.pid] if controller.alive() else [])
    processes.end(lambda: chain.from_iterable(processes.inside(namespaces).values()))
    deletions = [f"netns delete {namespace}" for namespace in namespaces if exists(namespace)]
    if deletions:
        batch("ip", deletions, lock)
    state.forget(record.testbed.name)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the block ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
