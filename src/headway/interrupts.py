"""SIGINT, SIGTERM and SIGHUP end the program by an ordinary exit, so that cleanup runs.

The handler raises `SystemExit`. Where that could get lost, or nobody would see it for long, as
around compiled code, it only notes the signal: `check` acts on it soon, and if a policy never
returns, a thread ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `kill`, and a terminal that is closed."""

GRACE_S = 1.0
"""How long code that cannot be interrupted may go on after a signal."""

_received: list[int] = []
"""The signal that ends the program, if one has come."""

_sections: list[threading.Event] = []
"""The uninterruptible sections that the program is in, each with what tells its end."""

_cleanups: dict[object, Callable[[], None]] = {}


def handle_signals() -> None:
    """Install handlers that exit the program."""
    for number in ending_signals():
        signal.signal(number, _leave)
    sys.unraisablehook = _report_unless_leaving


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end the program; under `nohup` a closed terminal does not."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in SIGNALS if number != signal.SIGHUP or not ignored]


def _report_unless_leaving(lost: sys.UnraisableHookArgs) -> None:
    """Say nothing of what a signal's exit broke off: callbacks, finalizers of unfinished objects.

    An exit that gets lost there is repeated by `check`.
    """
    if not _received:
        sys.__unraisablehook__(lost)


def leave_now() -> None:
    """Ignore signals from now on, as the program is ending; exit by one that came before."""
    _ignore_signals()
    _clean_up()
    check()


def check() -> None:
    """Exit if a signal has come, even if the exit that it caused got lost."""
    if _received:
        sys.exit(_status(_received[0]))


def is_leaving() -> bool:
    """Return whether a signal has come, so that what runs now is cleanup."""
    return bool(_received)


@contextlib.contextmanager
def uninterruptible() -> Iterator[None]:
    """Run code that must not be interrupted, or ignores it: a signal is noted, for `check`.

    If the code has not ended a second after a signal, the process does, after the cleanups of
    `before_forced_exit`.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not _leave
    ):
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    ended = threading.Event()
    watchdog = threading.Thread(target=_watch, args=(reader, ended), daemon=True)
    _sections.append(ended)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watchdog.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        os.close(writer)  # This ends the thread.
        watchdog.join()
        os.close(reader)
        _sections.pop()
        check()


@contextlib.contextmanager
def before_forced_exit(cleanup: Callable[[], None]) -> Iterator[None]:
    """Have a cleanup done if the process must end without leaving the block.

    It is done again after an exit from the block: a second signal may have broken off the cleanup
    there.
    """
    key = object()
    _cleanups[key] = cleanup
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        del _cleanups[key]
        raise
    else:
        del _cleanups[key]


def _leave(number: int, _frame: FrameType | None) -> None:
    _ignore_signals()  # A second signal must not interrupt the cleanup.
    _received.append(number)
    _announce(number)
    if not _sections:
        sys.exit(_status(number))


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _watch(reader: int, ended: threading.Event) -> None:
    """Wait for a signal, and then for the section to end."""
    # A byte is the number of a signal; the end of the pipe is the end of the section.
    while received := os.read(reader, 1):
        number = received[0]
        if number in SIGNALS and not ended.wait(GRACE_S):
            _force_exit(number)


def _force_exit(number: int) -> None:
    if not _received:
        _announce(number)
    _clean_up()
    os._exit(_status(number))


def _clean_up() -> None:
    for cleanup in [*_cleanups.values()]:
        with contextlib.suppress(Exception):
            cleanup()


def _announce(number: int) -> None:
    if number == signal.SIGINT:
        # Not print(), which may be what the signal interrupted.
        os.write(2, b"\nheadway: interrupted\n")


def _status(number: int) -> int:
    return 128 + number
