"""Drives a soak: submits, kills, cancels and watches until every job has ended."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from headway.domain.errors import InputError
from headway.live.daemon.errors import ConflictError
from soaking import job as job_script
from soaking.check import Fate, Line, parse_line
from soaking.plan import Plan, Rates, make_plan, scheduler_kills
from soaking.scheduler import SchedulerProcess, SoakError, kill_shim

FINISHED = ("done", "failed", "cancelled")
MAX_UNFINISHED = 16
STALL_S = 120.0
FULL_DISK_EVERY = 40
"""Jobs after which the disk is full for a while."""
FULL_DISK_S = 1.5
POLL_S = 0.1


class Sample(NamedTuple):
    """The scheduler's memory when this many jobs had ended."""

    life: int
    ended: int
    memory_bytes: int


class Soak:
    """The state of a soak."""

    def __init__(self, folder: Path, jobs: int, seed: int, rates: Rates) -> None:
        self.folder, self._jobs = folder, jobs
        (folder / "lives").mkdir()
        journal = folder / job_script.JOURNAL
        journal.touch()
        self._stream = journal.open()
        self._part = ""
        self.journal: list[Line] = []
        self.scheduler = SchedulerProcess(folder)
        self.scheduler.use_small_disk()
        self.full_disks = 0
        self._plans = [make_plan(number, seed, rates) for number in range(jobs)]
        self._kills = scheduler_kills(jobs // 2, seed, rates)
        self._second_half = False
        self._again_s: float | None = None
        self._starts = 0
        self.fates: dict[str, Fate] = {}
        self._unfinished: dict[str, Fate] = {}
        self._unconfirmed: Plan | None = None  # submitted, but not acknowledged
        self._cancels: list[Fate] = []
        self.samples: list[Sample] = []
        self.offsets_ns: dict[str, tuple[int, int]] = {}  # by log: uncertainty and offset
        self._progress_s = self._polled_s = self._reported_s = time.monotonic()
        self._interrupted = False

    @property
    def ended(self) -> int:
        """The number of jobs that have ended."""
        return len(self.fates) - len(self._unfinished)

    def interrupt(self, *_: object) -> None:
        """Handle a signal: end the soak, also where Python ignores exceptions."""
        self._interrupted = True
        raise KeyboardInterrupt

    def run(self) -> None:
        """Run all jobs to their end."""
        while self._plans or self._unfinished or self._unconfirmed:
            if self._interrupted:
                raise KeyboardInterrupt
            self.read()
            self._kill()
            try:
                if self.scheduler.gone:
                    self._begin_life()
                self._submit()
                self._cancel()
                self._look()
            except InputError as error:
                if not self.scheduler.doomed:
                    raise SoakError(f"the scheduler refused a request: {error}") from None
                self.scheduler.wait_for_kill()
            if time.monotonic() > self._progress_s + STALL_S:
                raise SoakError(f"nothing happened for {STALL_S:g} s: {self._stuck()}")
            time.sleep(0.01)
        self.read()

    def _begin_life(self) -> None:
        while not self.scheduler.start(self._again_s):
            self._again_s = None
        self._again_s = None
        if self._unconfirmed is not None:
            listed = self.scheduler.client.jobs(limit=4 * MAX_UNFINISHED)
            found = [
                one["job_id"] for one in listed if one["spec"]["name"] == self._unconfirmed.name
            ]
            if found:
                self._submitted(self._unconfirmed, found[0])
            else:
                self._plans.insert(0, self._unconfirmed)
            self._unconfirmed = None

    def read(self) -> None:
        """Read new lines of the journal, and note the cancellations they ask for."""
        text = self._part + self._stream.read()
        *lines, self._part = text.split("\n")
        for line in map(parse_line, lines):
            self.journal.append(line)
            self._progress_s = time.monotonic()
            if line.what == "start" and line.rank == 0:
                self._starts += 1
            elif line.what == "cancel" and line.job in self.fates:
                self._cancels.append(self.fates[line.job])

    def _kill(self) -> None:
        """Kill the scheduler when it is due, and shims that have just started."""
        for fate in self._unfinished.values():
            for attempt in fate.plan.shims_at_start - fate.shims_killed:
                folder = self.scheduler.state / "attempts" / f"{fate.job}.{attempt}"
                if kill_shim(folder):
                    fate.shims_killed.add(attempt)
        if self._kills and self._starts >= self._kills[0].starts and not self.scheduler.doomed:
            kill = self._kills.pop(0)
            self._again_s = kill.again_s
            self.scheduler.kill_in(kill.delay_s)

    def _submit(self) -> None:
        if not self._second_half and self.ended >= self._jobs // 2 and not self.scheduler.doomed:
            # Running jobs continue; the scheduler of the second half takes them over.
            self._second_half = True
            self._kills.clear()
            self.scheduler.stop()
            self.scheduler.lose_database()
            self._begin_life()
        if self.scheduler.small_disk and self.ended >= (self.full_disks + 1) * FULL_DISK_EVERY:
            self.full_disks += 1
            self.scheduler.fill_disk(FULL_DISK_S)
        while self._plans and len(self._unfinished) < MAX_UNFINISHED:
            self._unconfirmed = self._plans.pop(0)
            job = self.scheduler.client.submit(self._spec(self._unconfirmed))["job_id"]
            self._submitted(self._unconfirmed, job)
            self._unconfirmed = None

    def _spec(self, plan: Plan) -> dict[str, Any]:
        script = [
            sys.executable,
            "-S",
            job_script.__file__,
            str(self.folder),
            json.dumps(plan.instructions),
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
            fate.cancel_requested = True
            try:
                self.scheduler.client.cancel(fate.job)
                fate.cancel_confirmed = True
            except ConflictError as error:
                # It has ended, says a scheduler that may be killed before it can be asked again.
                if not self.scheduler.doomed:
                    state = self.scheduler.client.job(fate.job)["state"]
                    if state not in FINISHED:
                        raise SoakError(f"{error} But it is {state}.") from None
            self._cancels.pop(0)

    def _look(self) -> None:
        """Find jobs that have ended, and sample the scheduler."""
        if time.monotonic() < self._polled_s + POLL_S:
            return
        client, self._polled_s = self.scheduler.client, time.monotonic()
        listed = client.jobs(limit=4 * MAX_UNFINISHED)
        going = {one["job_id"] for one in listed if one["state"] not in FINISHED}
        for job in [one for one in self._unfinished if one not in going]:
            found, fate = client.job(job), self._unfinished[job]
            if found["state"] in FINISHED:
                fate.ended, fate.ended_ns = found, time.monotonic_ns()
                del self._unfinished[job]
                self._progress_s = time.monotonic()
        self._sample()

    def _sample(self) -> None:
        """Record the scheduler's memory and clock."""
        asked_ns = time.monotonic_ns()
        clock_ns = round(self.scheduler.client.status()["clock_s"] * 1e9)
        took_ns = time.monotonic_ns() - asked_ns
        log = os.readlink(self.scheduler.state / "events.jsonl")
        found = (took_ns, asked_ns + took_ns // 2 - clock_ns)
        self.offsets_ns[log] = min(found, self.offsets_ns.get(log, found))
        if memory_bytes := self.scheduler.memory_bytes():
            self.samples.append(Sample(self.scheduler.lives, self.ended, memory_bytes))
        if time.monotonic() > self._reported_s + 5:
            self._reported_s = time.monotonic()
            print(
                f"{self.ended} of {self._jobs} jobs have ended; run {self.scheduler.lives} of the "
                f"scheduler, {self.samples[-1].memory_bytes / 1e6:.0f} MB",
                file=sys.stderr,
            )

    def _stuck(self) -> str:
        views = [self.scheduler.client.job(job) for job in self._unfinished]
        return "; ".join(f"job {one['job_id']} is {one['state']}: {one['why']}" for one in views)
