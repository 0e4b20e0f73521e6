"""Forecasts from recorded runs: with what was observed of jobs, and without, against what happened.

    python benchmarks/live/observed.py record FOLDER [--policy P] GPUSxITERATIONS@SECOND ...
    python benchmarks/live/observed.py report FOLDER ...

`record` runs jobs of examples/train.py as the tutorials do, on this machine as two nodes with two
slots each and the network that is assumed by default, and leaves the scheduler's state in a folder.
`report` makes the scheduler's decisions again from the event logs of such folders, forecasts every
few seconds from the state at that time, and prints how far off the predicted ends of running jobs
were, by the part of a job's life. A forecast depends on nothing but the state, so that both kinds
are made of the very same runs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from scheduler_process import running_scheduler, wait_until

from headway.experiments.what_if import present
from headway.live.api.views import state_view
from headway.live.core.core import Core
from headway.live.core.events import JobExited
from headway.live.core.present_state import ObservedPace, PresentState
from headway.live.daemon.event_log.parts import log_runs, open_run
from headway.live.daemon.state_folder import StateFolder
from headway.reports.tables import Table

STEP_S = 5.0
LEAST_LEFT_S = 5.0
"""Ends that are nearer are not counted: an error of a second is none of the forecast's."""
PARTS = (("first third", 0, 1 / 3), ("middle", 1 / 3, 2 / 3), ("last third", 2 / 3, 1))

_SETTINGS = """\
[serve]
folder = "{folder}"
policy = "{policy}"
api_port = 0

[executor]
kind = "local"
nodes = 2
slots = 2
memory_mb = 2048
"""
_SCRIPT = Path(__file__).parents[2] / "examples" / "train.py"
_TIMEOUT_S = 1800.0

Errors = list[tuple[float, float]]
"""The part of a job's life at which a prediction was made, and its error."""


def record(folder: Path, policy: str, jobs: Sequence[str]) -> None:
    """Run jobs, given as GPUSxITERATIONS@SECOND, to their ends."""
    folder.mkdir(parents=True)
    script = folder / "train.py"
    text = _SCRIPT.read_text().replace("range(200)", "range(int(__import__('sys').argv[1]))")
    script.write_text(text)
    state = folder / "state"
    settings = _SETTINGS.format(folder=state, policy=policy)
    began_s, ids = time.monotonic(), []
    with running_scheduler(state, settings) as client:
        for job in jobs:
            shape, _, second = job.partition("@")
            gpus, iterations = map(int, shape.split("x"))
            time.sleep(max(0.0, began_s + float(second or 0) - time.monotonic()))
            spec = {"gpus": gpus, "iterations": iterations, "memory_bytes": 500 * 2**20}
            command = [sys.executable, str(script), str(iterations)]
            ids.append(client.submit({"command": command, "folder": str(folder), **spec})["job_id"])
        wait_until(
            lambda: all(client.job(one)["state"] == "done" for one in ids),
            _TIMEOUT_S,
            "jobs did not end",
        )


def states(folder: Path) -> tuple[list[PresentState], dict[str, int]]:
    """Return the states of a recorded run, every few seconds, and when its jobs ended."""
    link = StateFolder(folder).event_log
    found: list[PresentState] = []
    ends_ns: dict[str, int] = {}
    with open_run(link, max(log_runs(link))) as log:
        header, next_ns = log.header, 0
        core = Core(header.policy, header.network, header.seed, header.leases)
        for entry in log:
            now_ns = entry.event.at_ns
            if now_ns >= next_ns:
                found.append(asyncio.run(_state(core, header.policy, now_ns)))
                next_ns = now_ns + int(STEP_S * 1e9)
            core.handle(entry.event)
            if isinstance(entry.event, JobExited):
                ends_ns[entry.event.job_id] = now_ns
    return found, ends_ns


async def _state(core: Core, policy: str, now_ns: int) -> PresentState:
    return await state_view(core, lambda: policy, lambda: now_ns)


def without(state: PresentState) -> PresentState:
    """Return a state of which nothing was observed."""
    jobs = [msgspec.structs.replace(job, observed=ObservedPace()) for job in state.jobs]
    return msgspec.structs.replace(state, jobs=jobs, start_ns=0, exit_ns=0)


def errors(state: PresentState, ends_ns: dict[str, int]) -> Iterator[tuple[float, float]]:
    """Yield the errors of the predicted ends of running jobs."""
    now_ns, submitted = state.clock_ns, {job.job_id: job.submitted_ns for job in state.jobs}
    trains = {job.job_id for job in state.jobs if job.iterations > 0}
    for job in present(state).forecast().jobs if state.nodes else ():
        end_ns = ends_ns.get(job.job_id, 0)
        if job.finish_ns is None or job.note or job.job_id not in trains:
            continue
        if end_ns - now_ns >= LEAST_LEFT_S * 1e9:
            life_ns = end_ns - submitted[job.job_id]
            share = (now_ns - submitted[job.job_id]) / life_ns
            yield share, abs(job.finish_ns - end_ns) / (end_ns - now_ns)


def report(folders: Sequence[Path]) -> Table:
    """Return the median errors of recorded runs."""
    rows = []
    for folder in folders:
        found, ends_ns = states(folder / "state")
        for title, change in (("no", without), ("yes", lambda state: state)):
            made: Errors = [one for state in found for one in errors(change(state), ends_ns)]
            cells = [
                statistics.median([error for share, error in made if low <= share < high] or [0.0])
                for _, low, high in PARTS
            ]
            rows.append((folder.name, title, str(len(made)), *(f"{cell:.0%}" for cell in cells)))
    header = ("run", "observed", "predictions", *(f"error: {name}" for name, _, _ in PARTS))
    caption = "Median error of predicted ends, as a share of the time that was left"
    return Table("observed", caption, header, rows)


def main() -> None:
    """Record or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("record", "report"))
    parser.add_argument("arguments", nargs="+")
    parser.add_argument("--policy", default="ff+srsf:1")
    given = parser.parse_args()
    if given.what == "record":
        record(Path(given.arguments[0]), given.policy, given.arguments[1:])
    else:
        print(report([Path(one) for one in given.arguments]).to_markdown())


if __name__ == "__main__":
    main()
