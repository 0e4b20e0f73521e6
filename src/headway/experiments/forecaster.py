"""The forecasting process of a scheduler: simulates its cluster on from one state after another.

`headway serve` runs it as `python -m headway.experiments.forecaster`. It keeps nothing between two
requests (`headway.live.core.forecast`), and yields the processor to everything else. It ends with
its standard input, even in the middle of a simulation, so it never outlives the scheduler.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time

NICENESS = 10
"""Enough to yield to everything else; at 19 a busy machine would let it wait for minutes."""


def answer(line: bytes) -> bytes:
    """Return the answer to a request, both as JSON."""
    import msgspec

    from headway.domain.errors import HeadwayError
    from headway.experiments.what_if import changed_present, notes, present
    from headway.live.core.forecast import Answer, Request

    found = Answer(cpu_s=0.0)
    try:
        request = msgspec.json.decode(line, type=Request)
        now = present(request.state)
        found.notes = tuple(notes(now))
        if request.change is not None:
            try:
                found.changed = changed_present(now, request.change).forecast()
            except HeadwayError as error:
                found.refused = str(error)
        if not found.refused:
            found.now = now.forecast()
    except HeadwayError as error:
        found.problem = str(error)
    except Exception as error:
        found.problem = f"{type(error).__name__}: {' '.join(str(error).split())}."
    children = os.times()
    found.cpu_s = time.process_time() + children.children_user + children.children_system
    return msgspec.json.encode(found)


def main() -> None:
    """Answer requests until standard input ends."""
    os.nice(NICENESS)
    # What policies print must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        answers.write(answer(requests.get()) + b"\n")
        answers.flush()


def _read(requests: queue.SimpleQueue[bytes]) -> None:
    """Pass on requests, and end the process when there can be no more."""
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
