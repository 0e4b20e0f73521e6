"""Drives a soak: submits jobs, kills, cancels, and watches, until every job has ended."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from headway.domain.errors import InputError
from soaking import job as job_script
from soaking.check import Fate, Line, line_from
from soaking.daemon import Daemon, SoakError, kill_shim
from soaking.plan import Plan, Rates, daemon_kills, plan_of

FINISHED = ("done", "failed", "cancelled")
MOST_UNFINISHED = 16
STALL_S = 120.0
LOOK_S = 0.1


class Sample(NamedTuple):
    """The scheduler's memory after so many jobs have ended."""

    life: int
    ended: int
    memory_bytes: int


class Soak:
    """Submits, looks, kills and cancels, until every job has ended."""

    def __init__(self, folder: Path, jobs: int, seed: int, rates: Rates) -> None:
        self.folder, self._jobs = folder, jobs
        (folder / "lives").mkdir()
        ledger = folder / job_script.LEDGER
        ledger.touch()
        self._stream = ledger.open()
        self._part = ""
        self.ledger: list[Line] = []
        self.daemon = Daemon(folder)
        self._plans = [plan_of(number, seed, rates) for number in range(jobs)]
        self._kills = daemon_kills(jobs // 2, seed, rates)
        self._calm = False  # in the second half
        self._again_s: float | None = None
        self._starts = 0
        self.fates: dict[str, Fate] = {}
        self._unfinished: dict[str, Fate] = {}
        self._doubtful: Plan | None = None  # submitted, and not answered
        self._cancels: list[Fate] = []
        self.samples: list[Sample] = []
        self.offsets_ns: dict[str, tuple[int, int]] = {}  # by log: how sure, and what
        self._moved_s = self._looked_s = self._said_s = time.monotonic()

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return len(self.fates) - len(self._unfinished)

    def run(self) -> None:
        """Do it all."""
        while self._plans or self._unfinished or self._doubtful:
            self.read()
            self._kill()
            try:
                if self.daemon.gone:
                    self._begin_life()
                self._submit()
                self._cancel()
                self._look()
            except InputError as error:
                if not self.daemon.doomed:
                    raise SoakError(f"the scheduler refuses: {error}") from None
                self.daemon.wait_for_kill()
            if time.monotonic() > self._moved_s + STALL_S:
                raise SoakError(f"nothing happens any more: {self._stuck()}")
            time.sleep(0.01)
        self.read()

    def _begin_life(self) -> None:
        while not self.daemon.start(self._again_s):
            self._again_s = None
        self._again_s = None
        if self._doubtful is not None:
            listed = self.daemon.client.jobs(limit=4 * MOST_UNFINISHED)
            there = [one["job_id"] for one in listed if one["spec"]["name"] == self._doubtful.name]
            if there:
                self._submitted(self._doubtful, there[0])
            else:
                self._plans.insert(0, self._doubtful)
            self._doubtful = None

    def read(self) -> None:
        """Read what is new in the ledger, and do what it asks for."""
        text = self._part + self._stream.read()
        *lines, self._part = text.split("\n")
        for line in map(line_from, lines):
            self.ledger.append(line)
            self._moved_s = time.monotonic()
            if line.what == "start" and line.rank == 0:
                self._starts += 1
            elif line.what == "cancel" and line.job in self.fates:
                self._cancels.append(self.fates[line.job])

    def _kill(self) -> None:
        """Kill the scheduler when it is time for that, and shims that have just begun."""
        for fate in self._unfinished.values():
            for attempt in fate.plan.shims_at_start - fate.shims_killed:
                folder = self.daemon.state / "attempts" / f"{fate.job}.{attempt}"
                if kill_shim(folder):
                    fate.shims_killed.add(attempt)
        if self._kills and self._starts >= self._kills[0].starts and not self.daemon.doomed:
            kill = self._kills.pop(0)
            self._again_s = kill.again_s
            self.daemon.kill_in(kill.delay_s)

    def _submit(self) -> None:
        if not self._calm and self.ended >= self._jobs // 2 and not self.daemon.doomed:
            # The jobs that run go on without it: the second half's scheduler takes them over.
            self._calm = True
            self._kills.clear()
            self.daemon.end()
            self._begin_life()
        while self._plans and len(self._unfinished) < MOST_UNFINISHED:
            self._doubtful = self._plans.pop(0)
            job = self.daemon.client.submit(self._spec(self._doubtful))["job_id"]
            self._submitted(self._doubtful, job)
            self._doubtful = None

    def _spec(self, plan: Plan) -> dict[str, Any]:
        script = [
            sys.executable,
            "-S",
            job_script.__file__,
            str(self.folder),
            json.dumps(plan.told),
        ]
        return plan.spec | {
            "command": script,
            "folder": str(self.folder),
            "environment": {"PYTHONPATH": os.pathsep.join(sys.path)},
        }

    def _submitted(self, plan: Plan, job: str) -> None:
        fate = self.fates[job] = self._unfinished[job] = Fate(plan, job)
        if plan.cancel_queued:
            self._cancels.append(fate)

    def _cancel(self) -> None:
        while self._cancels:
            fate = self._cancels[0]
            fate.cancel_asked = True
            try:
                self.daemon.client.cancel(fate.job)
                fate.cancel_answered = True
            except InputError:
                if self.daemon.doomed or self.daemon.client.job(fate.job)["state"] not in FINISHED:
                    raise
            self._cancels.pop(0)

    def _look(self) -> None:
        """See what has ended, and how the scheduler is."""
        if time.monotonic() < self._looked_s + LOOK_S:
            return
        client, self._looked_s = self.daemon.client, time.monotonic()
        listed = client.jobs(limit=4 * MOST_UNFINISHED)
        going = {one["job_id"] for one in listed if one["state"] not in FINISHED}
        for job in [one for one in self._unfinished if one not in going]:
            found, fate = client.job(job), self._unfinished[job]
            if found["state"] in FINISHED:
                fate.ended, fate.ended_ns = found, time.monotonic_ns()
                del self._unfinished[job]
                self._moved_s = time.monotonic()
        self._sample()

    def _sample(self) -> None:
        """Note the scheduler's memory and its clock."""
        asked_ns = time.monotonic_ns()
        clock_ns = round(self.daemon.client.status()["clock_s"] * 1e9)
        took_ns = time.monotonic_ns() - asked_ns
        log = os.readlink(self.daemon.state / "events.jsonl")
        found = (took_ns, asked_ns + took_ns // 2 - clock_ns)
        self.offsets_ns[log] = min(found, self.offsets_ns.get(log, found))
        if memory_bytes := self.daemon.memory_bytes():
            self.samples.append(Sample(self.daemon.lives, self.ended, memory_bytes))
        if time.monotonic() > self._said_s + 5:
            self._said_s = time.monotonic()
            print(
                f"{self.ended} of {self._jobs} jobs have ended; life {self.daemon.lives} of the "
                f"scheduler, {self.samples[-1].memory_bytes / 1e6:.0f} MB",
                file=sys.stderr,
            )

    def _stuck(self) -> str:
        views = [self.daemon.client.job(job) for job in self._unfinished]
        return "; ".join(f"job {one['job_id']} is {one['state']}: {one['why']}" for one in views)
