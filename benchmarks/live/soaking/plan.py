"""What the seed decides: every job of the soak, what befalls its attempts, and the scheduler."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

MEGABYTE = 2**20
OWN_FAILURES = 0.05
CANCELLED = 0.06
STUBBORN = 0.04
SLOW = 0.15
"""Shares of attempts that fail of themselves, of jobs that are cancelled, of jobs whose processes
do not heed SIGTERM, and of jobs that last for seconds: longer than a scheduler takes to start."""

MOST_FATES = 8
"""Attempts for which a plan says how they end; a job makes at most four, and some never start."""


class Rates(NamedTuple):
    """Shares of attempts of which a worker, or the shim, is killed; scheduler's kills for a job."""

    workers: float
    shims: float
    daemon: float


@dataclass(frozen=True)
class Plan:
    """A job: what is submitted, what its processes are told, when a user cancels it."""

    number: int
    spec: dict[str, Any]
    told: dict[str, Any]
    cancel_queued: bool
    shims_at_start: frozenset[int]
    """Attempts whose shim is killed as soon as it is seen."""

    @property
    def name(self) -> str:
        """What the scheduler knows it by, whichever number it gives."""
        return f"soak-{self.number}"


def plan_of(number: int, seed: int, rates: Rates) -> Plan:
    """Return a job's plan, which depends on the seed and its number alone."""
    draw = random.Random(f"{seed} job {number}")
    gpus, retries = draw.randint(2, 4), draw.randint(0, 3)
    iterations = draw.randint(5, 30)
    fates: dict[str, dict[str, Any]] = {}
    at_start = set()
    for attempt in range(1, MOST_FATES + 1):
        what = _fate(draw, rates)
        # Rank 0 is where the grants are.
        rank = 0 if draw.random() < 0.6 else draw.randrange(1, gpus)
        moment = draw.choice(("between", "asking", "sending", "sending"))
        fate = {"what": what, "rank": rank, "iteration": draw.randrange(iterations)}
        if what == "shim" and draw.random() < 0.4:
            at_start.add(attempt)
        elif what:
            fates[str(attempt)] = fate | {"moment": moment if rank == 0 else "between"}
    cancelled = draw.random() < CANCELLED
    queued = cancelled and draw.random() < 0.3
    slow = draw.random() < SLOW
    told = {
        "number": number,
        "iterations": iterations,
        "compute_s": draw.uniform(0.1, 0.2) if slow else draw.uniform(0.001, 0.01),
        "message_s": draw.uniform(0.001, 0.02),
        "message_bytes": draw.randint(1, 100) * MEGABYTE,
        "stubborn": draw.random() < STUBBORN,
        "cancel_at": draw.randrange(iterations) if cancelled and not queued else None,
        "fates": fates,
    }
    spec = {
        "gpus": gpus,
        "retries": retries,
        "priority": draw.randint(0, 3),
        "memory_bytes": draw.choice((0, 256 * MEGABYTE)),
        "iterations": draw.choice((None, iterations)),
        "name": f"soak-{number}",
    }
    return Plan(number, spec, told, queued, frozenset(at_start))


def _fate(draw: random.Random, rates: Rates) -> str:
    chance = draw.random()
    for what, share in (
        ("worker", rates.workers),
        ("shim", rates.shims),
        ("exit", OWN_FAILURES),
    ):
        if chance < share:
            return what
        chance -= share
    return ""


class DaemonKill(NamedTuple):
    """After so many starts of jobs, and so long; `again_s` after its next start too."""

    starts: int
    delay_s: float
    again_s: float | None


def daemon_kills(jobs: int, seed: int, rates: Rates) -> list[DaemonKill]:
    """Return when the scheduler is killed, in order."""
    draw = random.Random(f"{seed} scheduler")
    kills = []
    starts = 0.0
    while rates.daemon > 0:
        starts += draw.uniform(0.4, 1.6) / rates.daemon
        if starts >= jobs:
            break
        # A start takes about a second: this hits imports, the taking over, and what follows.
        again_s = draw.uniform(0.5, 2.0) if draw.random() < 0.25 else None
        kills.append(DaemonKill(int(starts), draw.uniform(0, 0.3), again_s))
    return kills
