"""Sessions with Ray: on an existing cluster, or on a temporary one on the loopback interface."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headway.domain.errors import InputError, shown

AUTO = "auto"
"""The address of the cluster that runs on this machine."""

_CONNECT_S = 5.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OBJECT_STORE_BYTES = 256 * 2**20
_GET_INTERFACE_ADDRESS = 0x8915
"""SIOCGIFADDR."""


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """Connect to a cluster, or start a temporary one on the loopback interface."""
    folder = tempfile.mkdtemp(prefix="headway-ray-")
    settings = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    if address is None:
        token = Path(folder, "token")
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    if address is None or _host(address) in _LOOPBACK:
        # Despite its name: with 0, Ray listens on the loopback interface only, and does not
        # replace its address by that of another interface.
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    handler = signal.getsignal(signal.SIGTERM)
    ray = None
    try:
        # The variables first: Ray reads them once, when it is imported.
        if address is not None and address != AUTO:
            _check_listens(address)
        ray = _imported()
        if ray.is_initialized():
            raise InputError("Ray is already in use in this process; shut it down first.")
        _connect(ray, address, cpus, folder)
        with suppress(ValueError):  # Ray replaces the handler only in the main thread.
            signal.signal(signal.SIGTERM, handler)
        yield ray
    finally:
        if ray is not None:
            ray.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


def _host(address: str) -> str:
    return address.removeprefix("ray://").rpartition(":")[0].strip("[]")


def _check_listens(address: str) -> None:
    """Raise an error if nothing listens at an address; Ray itself would retry for minutes."""
    port = address.rpartition(":")[2]
    if not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 2**16 or not _host(address):
        raise InputError(
            f"must be HOST:PORT or ray://HOST:PORT, not {shown(address)}.", field="--on"
        )
    try:
        socket.create_connection((_host(address), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"no Ray cluster there: {reason}.", source=address) from None


def _imported() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise InputError(
            "this needs Ray, which is not installed: pip install '.[ray]' in Headway's checkout."
        ) from None
    return ray


def _connect(ray: Any, address: str | None, cpus: int, folder: str) -> None:
    common = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            **common,
        )
        listens_on = ray.util.get_node_ip_address()
        if listens_on != "127.0.0.1":
            raise InputError(
                f"Ray would listen on {listens_on}, beyond this machine: it was imported before "
                "Headway could configure it."
            )
        return
    try:
        ray.init(address=address, **common)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"no Ray cluster there: {reason}", source=address) from error


@contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Hold back SIGINT and SIGTERM, and yield a function that acts on any received so far.

    A signal that arrives inside Ray would end the process with another exit status.
    """
    received: list[int] = []
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        before.clear()

    def act() -> None:
        if received:
            restore()
            signal.raise_signal(received[0])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda number, _: received.append(number))
    try:
        yield act
        act()
    finally:
        restore()


def interface_of(address: str) -> str | None:
    """Return the name of the network interface with an IPv4 address; None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket.fileno(), _GET_INTERFACE_ADDRESS, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
