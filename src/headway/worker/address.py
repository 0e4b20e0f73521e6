"""Where a worker's gate is, and the way in."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headway.domain.errors import InputError, shown
from headway.gate.protocol import VERSION, Frames, Hello, ProtocolError, Refused, Welcome, encode
from headway.gate.sockets import prefer
from headway.gate.variables import ATTEMPT, GATE, GATE_CERTIFICATE, JOB, JOB_TOKEN

CONNECT_S = 5.0
"""How long the gate may take to accept a connection and to answer its hello."""


@dataclass(frozen=True)
class Address:
    """Where the gate is, and who asks: `unix` is a path, else `host` and `port` are for TCP.

    With `certificate`, a file of the authorities to trust, TCP is encrypted.
    """

    job: str
    attempt: int
    token: str
    unix: str = ""
    host: str = ""
    port: int = 0
    certificate: str = ""
    rank: int = 0

    def __str__(self) -> str:
        return f"unix:{self.unix}" if self.unix else f"tcp:{self.host}:{self.port}"


def address_from(environment: Mapping[str, str]) -> Address | None:
    """Return what the environment says about the gate; None if it does not say where it is."""
    place = environment.get(GATE, "")
    if not place:
        return None
    attempt = environment.get(ATTEMPT, "")
    if not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10):
        raise InputError(f"must be a number, not {shown(attempt)}.", source=ATTEMPT)
    job, token = environment.get(JOB, ""), environment.get(JOB_TOKEN, "")
    if not 0 < len(job) <= 1024:
        raise InputError(f"must name a job, not {shown(job)}.", source=JOB)
    if not 0 < len(token) <= 1024:
        raise InputError("must hold the job's token.", source=JOB_TOKEN)
    kind, _, rest = place.partition(":")
    if kind == "unix" and rest:
        return Address(job, int(attempt), token, unix=rest)
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host or not (port.isascii() and port.isdigit() and len(port) < 6):
        raise InputError(f"must be unix:PATH or tcp:HOST:PORT, not {shown(place)}.", source=GATE)
    certificate = environment.get(GATE_CERTIFICATE, "")
    host = host.removeprefix("[").removesuffix("]")
    return Address(job, int(attempt), token, "", host, int(port), certificate)


class RefusedError(Exception):
    """The gate said no."""


def connect(address: Address) -> socket.socket:
    """Return a connection to the gate, encrypted where a certificate is given."""
    if address.unix:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(CONNECT_S)
            connection.connect(address.unix)
        except BaseException:
            connection.close()
            raise
        return connection
    connection = socket.create_connection((address.host, address.port), CONNECT_S)
    try:
        prefer(connection)
        if address.certificate:
            context = ssl.create_default_context(cafile=address.certificate)
            return context.wrap_socket(connection, server_hostname=address.host)
    except BaseException:
        connection.close()
        raise
    return connection


def greet(connection: socket.socket, address: Address) -> Frames:
    """Prove who this is; return what the gate has said after its welcome."""
    hello = Hello(VERSION, address.job, address.attempt, address.rank, address.token)
    connection.sendall(encode(hello))
    frames, end = Frames(), time.monotonic() + CONNECT_S
    while (answer := frames.take()) is None:
        connection.settimeout(max(end - time.monotonic(), 0.001))
        data = connection.recv(4096)
        if not data:
            raise ConnectionResetError("it closed the connection")
        frames.feed(data)
    if isinstance(answer, Refused):
        raise RefusedError(answer.text)
    if not isinstance(answer, Welcome):
        raise ProtocolError(f"it answered with a {type(answer).__name__}")
    return frames
