"""The keeper of a testbed with a penalty: lowers a host's rate while messages run on it.

It runs in the background from `up` to `down`. A worker connects to its socket, sends its host's
number and a line feed, then `+` before each message and `-` after it; each of these is answered
with one byte once the rates are set. A connection that closes ends its messages.

Run as `python -m headway.testbed.keeper NAME`, it puts itself into a session of its own, prints
its process number, waits for a line, and prints another when it listens.
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

LOOK_S = 1.0
"""How often the keeper looks whether its testbed is still there."""

_ANSWER = b"."
_MOST_BYTES = 4096


class _Control:
    """A `tc` that stays in one namespace; a change takes 0.03 ms, a new process 3 ms."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        words = ["tc", "-netns", namespace, "-batch", "-"]
        self._tc = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def change(self, device: str, words: str) -> None:
        """Ask for a change; `wait` returns when it is made."""
        assert self._tc.stdin is not None
        # tc says nothing about a change that went well: the question after it makes it answer.
        lines = f"class change dev {device} {words}\nclass show dev {device} classid {DATA}\n"
        try:
            self._tc.stdin.write(lines.encode())
            self._tc.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def wait(self) -> None:
        """Wait until the last change is made."""
        assert self._tc.stdout is not None
        if not self._tc.stdout.readline():
            raise self._ended()

    def _ended(self) -> MachineError:
        return MachineError(f"tc ended in {self._namespace}.")


class _Links:
    """The links of all hosts, and the messages that run on each."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._switch = _Control(testbed.switch)
        self._hosts = {host: _Control(testbed.namespace(host)) for host in testbed.numbers}
        self._messages: Counter[int] = Counter()
        # This also waits until every tc is where it belongs, so that `down` finds it there.
        for host in testbed.numbers:
            self._set(host)

    def add(self, host: int, messages: int) -> None:
        """Count messages that begin (or end, below 0) on a host, and set both ends of its link."""
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


class _Worker:
    """A connection: the host it spoke of, and its messages that have begun and not ended."""

    def __init__(self, connection: socket.socket, links: _Links, testbed: Testbed) -> None:
        self._connection, self._links, self._testbed = connection, links, testbed
        self._greeting = b""
        self._host: int | None = None
        self._running = 0

    def hear(self) -> bool:
        """Do what the worker asks; False once the connection has ended or makes no sense."""
        try:
            words = self._connection.recv(_MOST_BYTES)
            if not words:
                return False
            if self._host is None:
                words = self._greet(words)
            for word in words:
                step = {ord("+"): 1, ord("-"): -1}[word]
                self._count(step)
                self._connection.send(_ANSWER)
        except (OSError, ValueError, KeyError, InputError):
            return False
        return True

    def leave(self) -> None:
        """End what is left of the worker's messages."""
        self._connection.close()
        if self._running and self._host is not None:
            self._links.add(self._host, -self._running)

    def _greet(self, words: bytes) -> bytes:
        """Take the host's number; return what follows it."""
        number, line_feed, rest = (self._greeting + words).partition(b"\n")
        if not line_feed:
            self._greeting = number
            if len(number) > 8:
                raise ValueError("too long for a host's number")
            return b""
        self._host = self._testbed.checked(int(number))
        return rest

    def _count(self, step: int) -> None:
        if self._host is None or self._running + step < 0:
            raise ValueError("a message that never began")
        self._running += step
        self._links.add(self._host, step)


def _serve(testbed: Testbed, listener: socket.socket, links: _Links) -> None:
    """Answer workers until the testbed is gone."""
    state = path_of(testbed.name)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ, None)
        while state.exists():
            for key, _ in selector.select(LOOK_S):
                worker: _Worker | None = key.data
                if worker is None:
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    worker = _Worker(connection, links, testbed)
                    selector.register(connection, selectors.EVENT_READ, worker)
                elif not worker.hear():
                    selector.unregister(key.fileobj)
                    worker.leave()


def main() -> None:
    """Become a process of its own, say so, and serve once told to go."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    print(os.getpid(), flush=True)
    # Whoever started this writes down the number first. Nothing to read: it was interrupted.
    if not sys.stdin.readline():
        return
    testbed = find(sys.argv[1])
    if testbed is None or testbed.socket is None:
        return
    os.chdir("/")
    with socket.socket(socket.AF_UNIX) as listener:
        testbed.socket.unlink(missing_ok=True)
        listener.bind(str(testbed.socket))
        listener.listen(socket.SOMAXCONN)
        try:
            links = _Links(testbed)
            # Were whoever started this killed by now, the next `up` would find all in order.
            with contextlib.suppress(BrokenPipeError):
                print("ready", flush=True)
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            _serve(testbed, listener, links)
        except (HeadwayError, OSError) as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
