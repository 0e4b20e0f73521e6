"""The operator log: lines of JSON that never delay the scheduler."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headway.domain.errors import InputError
from headway.live import operator_log
from headway.live.operator_log import BackgroundHandler, configure


@contextmanager
def logging_to_pipe() -> Iterator[tuple[logging.Logger, int]]:
    """Return a logger that writes to a pipe, and the pipe's other end."""
    reading, writing = os.pipe()
    logger = logging.Logger("test")
    handler = BackgroundHandler(writing)
    handler.setFormatter(operator_log.JsonFormatter())
    logger.addHandler(handler)
    try:
        yield logger, reading
    finally:
        os.close(reading)  # Ends a blocked write.
        handler.flush()
        os.close(writing)


def test_an_entry_is_a_line_of_json_with_time_level_event_and_values() -> None:
    with logging_to_pipe() as (logger, pipe):
        logger.warning("node lost", extra={"values": {"node": "n1"}})
        entry = json.loads(os.read(pipe, 4096))
    assert entry.pop("time").endswith("+00:00")
    assert entry == {"level": "warning", "event": "node lost", "node": "n1"}


def test_an_error_comes_with_its_traceback() -> None:
    with logging_to_pipe() as (logger, pipe):
        logger.error("launch failed", exc_info=RuntimeError("no such luck"))
        entry = json.loads(os.read(pipe, 4096))
    assert entry["error"] == "RuntimeError('no such luck')"
    assert "no such luck" in entry["trace"]


def test_a_pipe_that_nobody_reads_blocks_no_logging_and_dropped_lines_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator_log, "MAX_WAITING_LINES", 10)
    with logging_to_pipe() as (logger, pipe):
        for number in range(100):  # Far more than a pipe of 64 KB holds.
            logger.info("x" * 10_000, extra={"values": {"number": number}})
        monkeypatch.setattr(operator_log, "FLUSH_TIMEOUT_S", 0.01)
        logger.handlers[0].flush()  # Returns although the lines cannot be written.
        monkeypatch.setattr(operator_log, "FLUSH_TIMEOUT_S", 60.0)
        received: list[bytes] = []

        def read() -> None:
            with open(pipe, "rb", closefd=False) as file:
                for line in file:
                    received.append(line)
                    if b'"last"' in line:
                        return

        reader = threading.Thread(target=read)
        reader.start()
        logger.handlers[0].flush()
        logger.info("last")
        reader.join()
    *entries, last = [json.loads(line) for line in received]
    assert last["event"] == "last"
    # The writer may have made room while lines arrived: then there are several notices.
    notices = [entry for entry in entries if entry["event"] == "log lines dropped"]
    assert {notice["level"] for notice in notices} == {"warning"}
    assert len(entries) - len(notices) + sum(notice["lines"] for notice in notices) == 100


def test_an_error_that_repeats_is_written_once_in_a_while_with_its_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with logging_to_pipe() as (logger, pipe):
        monkeypatch.setattr(operator_log, "_LOGGER", logger)
        monkeypatch.setattr(operator_log, "_repeats", operator_log.Repeats())
        for _ in range(100):
            operator_log.failure("cannot accept", OSError(24, "Too many open files"))
        operator_log.failure("another", OSError(24, "Too many open files"))
        monkeypatch.setattr(operator_log, "REPEAT_S", 0.0)
        monkeypatch.setattr(operator_log, "FLUSH_TIMEOUT_S", 60.0)
        operator_log.failure("cannot accept", OSError(24, "Too many open files"))
        logger.handlers[0].flush()
        entries = [json.loads(line) for line in os.read(pipe, 2**16).splitlines()]
    assert [(one["event"], one.get("repeats")) for one in entries] == [
        ("cannot accept", None),
        ("another", None),
        ("cannot accept", 99),
    ]
    assert [one["problem"] for one in entries] == ["Too many open files"] * 3
    assert not any("trace" in one for one in entries)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InputError, match=r"log-level: unknown level\. Did you mean 'debug'"):
        configure("debgu")
