"""Tries a policy of one's own in a process that can be killed, before the scheduler depends on it.

A policy decides in the scheduler's own thread: one that never returns would hold up every grant,
the API and the scheduler's end. So its file is loaded, compiled and asked to decide elsewhere
first. `python -m headway.live.daemon.policy_trial` reads a `Trial` from its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from headway.domain.errors import InputError, PolicyError, shown
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    JobExited,
    JobSpec,
    JobStarted,
    JobSubmitted,
    Launch,
    MessageDone,
    MessageReady,
    NodeUp,
)
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet

LIMITS_S = {"load": 30.0, "compile": 300.0, "decide": 30.0}
"""How long each step of a trial may take; compiling may include all that policies call."""
MAX_JOBS = 200
"""Jobs on which a policy is tried, and attempts at them."""
_MESSAGE_BYTES = 2**20


class Trial(msgspec.Struct):
    """A policy, and the nodes and the jobs to try it on beside those of `_SAMPLE`."""

    policy: str
    network: NetworkModel
    events: list[AnyEvent] = []


def is_own(policy: str) -> bool:
    """Return whether a policy comes from a file of a user."""
    return ".py:" in policy


async def try_policy(trial: Trial) -> None:
    """Return if a policy decides; those of Headway always do, and are not tried.

    Raises:
        InputError: There is no such policy.
        PolicyError: It does not compile, or one of the steps takes too long.
    """
    if not is_own(trial.policy):
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        process_group=0,  # Ctrl-C is for the scheduler.
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(msgspec.json.encode(trial))
            process.stdin.close()
            await process.stdin.wait_closed()
        for step, limit_s in LIMITS_S.items():
            try:
                line = await asyncio.wait_for(process.stdout.readline(), limit_s)
            except TimeoutError:
                problem = f"did not {step} within {limit_s:g} s when it was tried"
                raise PolicyError(f"policy {shown(trial.policy, 200)} {problem}.") from None
            if not line:
                problem = f"ended its process with code {await process.wait()} when it was tried"
                raise PolicyError(f"policy {shown(trial.policy, 200)} {problem}.")
            kind, problem = msgspec.json.decode(line, type=tuple[str, str])
            if kind:
                raise (InputError if kind == "input" else PolicyError)(problem)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _run(trial: Trial, answers: Any) -> None:
    """Go through the steps of a trial, and answer after each."""

    def answer(kind: str = "", problem: str = "") -> None:
        answers.write(msgspec.json.encode((kind, problem)) + b"\n")
        answers.flush()

    try:
        _ = PolicySet.parse(trial.policy).choices
        answer()
        cores = [Core(trial.policy, trial.network) for _ in range(2)]
        answer()
        for core, events in zip(cores, (_SAMPLE, trial.events), strict=True):
            _decide(core, events)
        answer()
    except InputError as error:
        answer("input", str(error))
    except PolicyError as error:
        answer("policy", str(error))


def _decide(core: Core, events: Iterable[AnyEvent]) -> None:
    """Let a policy decide on jobs and, one attempt after the other, on what they send."""
    launched: deque[Launch] = deque()
    at_ns = 0

    def tell(event: AnyEvent) -> None:
        nonlocal at_ns
        at_ns += 1_000_000
        event = msgspec.structs.replace(event, at_ns=at_ns)
        launched.extend(one for one in core.handle(event) if isinstance(one, Launch))

    for event in events:
        tell(event)
    sending: deque[dict[str, Any]] = deque()
    for _ in range(MAX_JOBS):
        if not launched:
            break
        one = launched.popleft()
        attempt: dict[str, Any] = {"at_ns": 0, "job_id": one.job_id, "attempt": one.attempt}
        tell(JobStarted(**attempt))
        size: dict[str, Any] = {"message_bytes": _MESSAGE_BYTES, "unsent_bytes": _MESSAGE_BYTES}
        tell(MessageReady(**attempt, request=1, **size))
        sending.append(attempt)
        while sending and not launched:
            first = sending.popleft()
            tell(MessageDone(**first, request=1))
            tell(JobExited(**first, code=0))


_SAMPLE: list[AnyEvent] = [
    *(NodeUp(at_ns=0, node=name, gpus=2, memory_bytes=2**34) for name in ("node1", "node2")),
    *(
        JobSubmitted(
            at_ns=0,
            job_id=str(number),
            spec=JobSpec(command=("x",), gpus=gpus, memory_bytes=2**32, iterations=10),
        )
        for number, gpus in enumerate((3, 3, 4, 1))
    ),
]


def main() -> None:
    """Run the trial on standard input."""
    # Should the scheduler be killed meanwhile, the kernel ends this process, whatever it computes.
    signal.alarm(int(sum(LIMITS_S.values())) + 1)
    # What policies print must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _run(msgspec.json.decode(sys.stdin.buffer.read(), type=Trial), answers)


if __name__ == "__main__":
    main()
