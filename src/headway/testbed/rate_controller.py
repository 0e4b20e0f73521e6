"""The rate controller of a testbed with a penalty: lowers a link's rate while messages contend.

It runs in the background from `up` to `down`. A client connects to its socket, sends its host's
number and a line feed, then `+` before each message and `-` after it; each of these is answered
with one byte once the rates are set. Closing the connection ends its messages.

Run as `python -m headway.testbed.rate_controller NAME`, it detaches into its own session, prints
its process id, waits for a line of input, and prints `ready` once it listens.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
from collections import Counter

from headway.domain.errors import HeadwayError, InputError, MachineError
from headway.testbed.description import Testbed
from headway.testbed.shaping import DATA, data, rate_bytes_per_s
from headway.testbed.state import find, path_of

CHECK_INTERVAL_S = 1.0
"""How often it checks whether its testbed still exists."""

_ANSWER = b"."
_RECEIVE_BYTES = 4096


class _TcProcess:
    """A `tc` process that stays in one namespace; a change takes 0.03 ms, a new process 3 ms."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        words = ["tc", "-netns", namespace, "-batch", "-"]
        self._tc = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def change(self, device: str, words: str) -> None:
        """Request a change; `wait` returns once it is made."""
        assert self._tc.stdin is not None
        # tc prints nothing after a successful change: the query after it produces a line.
        lines = f"class change dev {device} {words}\nclass show dev {device} classid {DATA}\n"
        try:
            self._tc.stdin.write(lines.encode())
            self._tc.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def wait(self) -> None:
        """Wait until the requested change is made."""
        assert self._tc.stdout is not None
        if not self._tc.stdout.readline():
            raise self._ended()

    def _ended(self) -> MachineError:
        return MachineError(f"tc ended in {self._namespace}.")


class _Links:
    """The links of all hosts, and the number of messages in flight on each."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._switch = _TcProcess(testbed.switch)
        self._hosts = {host: _TcProcess(testbed.namespace(host)) for host in testbed.numbers}
        self._messages: Counter[int] = Counter()
        # This also waits until each tc has entered its namespace, where `down` looks for it.
        for host in testbed.numbers:
            self._set(host)

    def add(self, host: int, messages: int) -> None:
        """Add messages in flight on a host (negative: ended), and set both ends of its link."""
        before = self._messages[host]
        self._messages[host] = now = before + messages
        rates = {rate_bytes_per_s(self._testbed, count) for count in (before, now)}
        if len(rates) > 1:
            self._set(host)

    def _set(self, host: int) -> None:
        words = data(self._testbed, self._messages[host])
        self._hosts[host].change("eth0", words)
        self._switch.change(f"port{host}", words)
        self._hosts[host].wait()
        self._switch.wait()


class _Client:
    """A connection: its host, and its messages in flight."""

    def __init__(self, connection: socket.socket, links: _Links, testbed: Testbed) -> None:
        self._connection, self._links, self._testbed = connection, links, testbed
        self._greeting = b""
        self._host: int | None = None
        self._in_flight = 0

    def receive(self) -> bool:
        """Handle the client's bytes; False if the connection has ended or breaks the protocol."""
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
            if not data:
                return False
            if self._host is None:
                data = self._read_host(data)
            for byte in data:
                self._count({ord("+"): 1, ord("-"): -1}[byte])
                self._connection.send(_ANSWER)
        except (OSError, ValueError, KeyError, InputError):
            return False
        return True

    def close(self) -> None:
        """Close the connection and end its messages."""
        self._connection.close()
        if self._in_flight and self._host is not None:
            self._links.add(self._host, -self._in_flight)

    def _read_host(self, data: bytes) -> bytes:
        """Read the host's number; return the bytes after it."""
        number, line_feed, rest = (self._greeting + data).partition(b"\n")
        if not line_feed:
            self._greeting = number
            if len(number) > 8:
                raise ValueError("too long for a host's number")
            return b""
        self._host = self._testbed.checked(int(number))
        return rest

    def _count(self, step: int) -> None:
        if self._host is None or self._in_flight + step < 0:
            raise ValueError("a message ended that never began")
        self._in_flight += step
        self._links.add(self._host, step)


def _serve(testbed: Testbed, server: socket.socket, links: _Links) -> None:
    """Serve clients until the testbed is gone."""
    state = path_of(testbed.name)
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ, None)
        while state.exists():
            for key, _ in selector.select(CHECK_INTERVAL_S):
                client: _Client | None = key.data
                if client is None:
                    connection, _ = server.accept()
                    connection.setblocking(False)
                    client = _Client(connection, links, testbed)
                    selector.register(connection, selectors.EVENT_READ, client)
                elif not client.receive():
                    selector.unregister(key.fileobj)
                    client.close()


def main() -> None:
    """Detach, print the process id, and serve after a line of input."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    print(os.getpid(), flush=True)
    # The starter records the process id first. End of input: it was interrupted.
    if not sys.stdin.readline():
        return
    testbed = find(sys.argv[1])
    if testbed is None or testbed.socket is None:
        return
    os.chdir("/")
    with socket.socket(socket.AF_UNIX) as server:
        testbed.socket.unlink(missing_ok=True)
        server.bind(str(testbed.socket))
        server.listen(socket.SOMAXCONN)
        try:
            links = _Links(testbed)
            # If the starter was killed, the next `up` finds everything in order.
            with contextlib.suppress(BrokenPipeError):
                print("ready", flush=True)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            _serve(testbed, server, links)
        except (HeadwayError, OSError) as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
