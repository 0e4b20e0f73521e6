"""Threads of a training process end before the interpreter does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headway.worker.queue_thread import QueueThread


def test_items_are_handled_in_order_before_the_thread_ends() -> None:
    handled: list[int] = []
    thread = QueueThread(handled.append, "test")
    for number in range(100):
        thread.put(number)
    thread.end()
    assert handled == list(range(100))


EXITS = """
import sys, time
from headway.worker.queue_thread import QueueThread

def handle(number):
    time.sleep(0.05)
    print(number, flush=True)

thread = QueueThread(handle, "test")
for number in range(3):
    thread.put(number)
"""


@pytest.mark.parametrize("ending", ["", "raise ValueError", "sys.exit(3)"])
def test_the_process_exits_after_the_items_in_the_queue(ending: str) -> None:
    words = [sys.executable, "-c", EXITS + ending]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["0", "1", "2"]
    assert done.returncode == {"": 0, "raise ValueError": 1, "sys.exit(3)": 3}[ending]
