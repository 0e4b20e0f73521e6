"""Connecting to the gate and proving who this worker is."""

from __future__ import annotations

import socket
import ssl
import time

from headway.gate import frames
from headway.gate.environment import WorkerEnvironment
from headway.gate.protocol import VERSION, FrameReader, ProtocolError, encode
from headway.gate.sockets import prioritize

CONNECT_TIMEOUT_S = 5.0
"""How long the gate may take to accept a connection, and to answer a Hello."""


class GateRefusedError(Exception):
    """The gate refused this worker."""


def connect(environment: WorkerEnvironment) -> socket.socket:
    """Return a connection to the gate, encrypted if there is a certificate."""
    gate = environment.gate
    if gate.path:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(CONNECT_TIMEOUT_S)
            connection.connect(gate.path)
        except BaseException:
            connection.close()
            raise
        return connection
    connection = socket.create_connection((gate.host, gate.port), CONNECT_TIMEOUT_S)
    try:
        prioritize(connection)
        if environment.certificate:
            context = ssl.create_default_context(cafile=environment.certificate)
            return context.wrap_socket(connection, server_hostname=gate.host)
    except BaseException:
        connection.close()
        raise
    return connection


def say_hello(connection: socket.socket, environment: WorkerEnvironment, rank: int) -> FrameReader:
    """Prove who this rank is; return a reader with any bytes that came after the Welcome."""
    token = environment.token
    hello = frames.Hello(VERSION, environment.job_id, environment.attempt, rank, token)
    connection.sendall(encode(hello))
    reader, deadline = FrameReader(), time.monotonic() + CONNECT_TIMEOUT_S
    while (answer := reader.next()) is None:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        data = connection.recv(4096)
        if not data:
            raise ConnectionResetError("it closed the connection")
        reader.feed(data)
    if isinstance(answer, frames.Refused):
        raise GateRefusedError(answer.text)
    if not isinstance(answer, frames.Welcome):
        raise ProtocolError(f"it answered with a {type(answer).__name__}")
    return reader
