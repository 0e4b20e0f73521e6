"""Everything the seed determines: the jobs, what happens to their attempts, scheduler kills."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

MEGABYTE = 2**20
OWN_FAILURES = 0.05
CANCELLED = 0.06
STUBBORN = 0.04
SLOW = 0.15
"""Shares of attempts that fail by themselves, of cancelled jobs, of jobs whose processes ignore
SIGTERM, and of jobs that take seconds: longer than a scheduler needs to start."""

STOPPED = 0.04
FLOODS = 0.02
"""Shares of attempts of which a rank is stopped (SIGSTOP), and of jobs that flood their log and the
gate."""

MAX_FATES = 8
"""Attempts covered by a plan; a job has at most four that start, and some that do not."""


class Rates(NamedTuple):
    """Shares of attempts whose worker or shim is killed, and scheduler kills per job."""

    workers: float
    shims: float
    scheduler: float


@dataclass(frozen=True)
class Plan:
    """A job: its submission, its processes' instructions, and when it is cancelled."""

    number: int
    spec: dict[str, Any]
    instructions: dict[str, Any]
    cancel_queued: bool
    shims_at_start: frozenset[int]
    """Attempts whose shim is killed as soon as it is seen."""

    @property
    def name(self) -> str:
        """Its name, the same whatever id the scheduler assigns."""
        return f"soak-{self.number}"


def make_plan(number: int, seed: int, rates: Rates) -> Plan:
    """Return a job's plan, which depends only on the seed and its number."""
    draw = random.Random(f"{seed} job {number}")
    gpus, retries = draw.randint(2, 4), draw.randint(0, 3)
    iterations = draw.randint(5, 30)
    fates: dict[str, dict[str, Any]] = {}
    at_start = set()
    for attempt in range(1, MAX_FATES + 1):
        what = _fate(draw, rates)
        # Only rank 0 holds grants.
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
    instructions = {
        "number": number,
        "iterations": iterations,
        "compute_s": draw.uniform(0.1, 0.2) if slow else draw.uniform(0.001, 0.01),
        "message_s": draw.uniform(0.001, 0.02),
        "message_bytes": draw.randint(1, 100) * MEGABYTE,
        "stubborn": draw.random() < STUBBORN,
        "floods": draw.random() < FLOODS,
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
    return Plan(number, spec, instructions, queued, frozenset(at_start))


def _fate(draw: random.Random, rates: Rates) -> str:
    chance = draw.random()
    for what, share in (
        ("worker", rates.workers),
        ("shim", rates.shims),
        ("exit", OWN_FAILURES),
        ("stop", STOPPED),
    ):
        if chance < share:
            return what
        chance -= share
    return ""


class SchedulerKill(NamedTuple):
    """A kill `delay_s` after this many job starts, and perhaps `again_s` after the restart."""

    starts: int
    delay_s: float
    again_s: float | None


def scheduler_kills(jobs: int, seed: int, rates: Rates) -> list[SchedulerKill]:
    """Return when the scheduler is killed, in order."""
    draw = random.Random(f"{seed} scheduler")
    kills = []
    starts = 0.0
    while rates.scheduler > 0:
        starts += draw.uniform(0.4, 1.6) / rates.scheduler
        if starts >= jobs:
            break
        # A start takes about a second: this hits imports, recovery and what follows.
        again_s = draw.uniform(0.5, 2.0) if draw.random() < 0.25 else None
        kills.append(SchedulerKill(int(starts), draw.uniform(0, 0.3), again_s))
    return kills
