"""Measure the live page in Chromium: `python benchmarks/web/watching.py`.

A made-up scheduler with 1,000 nodes of 8 slots and 700 running jobs sends 2,000 changes of jobs a
second, as `GET /v1/live` does: four events a second, with changed jobs, all messages and all turns.
Measured while the map is zoomed and panned: frames that the browser presented in a second, and how
old what it showed was: the time from the making of an event to the end of the frame that drew it.
`--serve` only serves the page, to look at.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from playwright.sync_api import sync_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from headway.web.files import MEDIA_TYPES, static_file

NODES, SLOTS, RACK = 1000, 8, 50
JOBS, QUEUED, DONE = 700, 100, 300
EVENTS_A_SECOND, CHANGES_A_SECOND = 4, 2000
SECONDS = 15
SECOND_NS = 1_000_000_000

MEASURE = """
async (seconds) => {
  const canvas = document.getElementById("cluster");
  const box = canvas.getBoundingClientRect();
  canvas.setPointerCapture = () => {};
  const event = (name, x, y) => canvas.dispatchEvent(new PointerEvent(name, {
    pointerId: 1, button: 0, bubbles: true, clientX: box.left + x, clientY: box.top + y,
  }));
  const wheel = (deltaY) => canvas.dispatchEvent(new WheelEvent("wheel", {
    deltaY, ctrlKey: true, bubbles: true, cancelable: true,
    clientX: box.left + box.width / 2, clientY: box.top + box.height / 2,
  }));
  const lengths = [], ages = [];
  const start = performance.now();
  let before = start, shown = "", number = 0;
  wheel(-400);
  event("pointerdown", 300, 100);
  while (performance.now() - start < seconds * 1000) {
    event("pointermove", 300 + 80 * Math.sin(number / 9), 100 + 60 * Math.sin(number / 7));
    if (number % 3 === 0) wheel(number % 60 < 30 ? -30 : 30);
    number += 1;
    const now = await new Promise(requestAnimationFrame);
    lengths.push(performance.now() - before);
    before = performance.now();
    const { clock } = document.body.dataset;
    if (clock !== shown) ages.push(Date.now() - Number(clock) * 1000);
    shown = clock;
  }
  event("pointerup", 300, 100);
  const sorted = (values) => values.slice(5).sort((one, other) => one - other);
  const at = (values, share) => sorted(values)[Math.floor((values.length - 5) * share)];
  return {
    frames_a_second: lengths.length / ((performance.now() - start) / 1000),
    frame_p95_ms: at(lengths, 0.95),
    events_shown_a_second: ages.length / seconds,
    age_median_ms: at(ages, 0.5),
    age_p95_ms: at(ages, 0.95),
  };
}
"""


class MadeUpScheduler:
    """Jobs that iterate, send and wait; the clock is that of the machine, to measure ages."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        slots = [(node, slot) for node in range(NODES) for slot in range(SLOTS)]
        self._jobs: list[dict[str, Any]] = []
        used = 0
        for number in range(DONE + JOBS + QUEUED):
            ranks = self._random.choice((2, 4, 8, 8, 16))
            running = DONE <= number < DONE + JOBS and used + ranks <= len(slots)
            state = "done" if number < DONE else "running" if running else "queued"
            self._jobs.append(self._job(number, state, ranks, slots[used : used + ranks]))
            used += ranks if running else 0
        self._running = [job for job in self._jobs if job["state"] == "running"]
        self._next = itertools.cycle(self._running)

    def _job(self, number: int, state: str, ranks: int, slots: list[Any]) -> dict[str, Any]:
        now_ns = time.time_ns()
        ago_ns = self._random.randrange(60, 3600) * SECOND_NS
        left_ns = self._random.randrange(10, 1800) * SECOND_NS
        queued = state == "queued"
        return {
            "id": str(number + 1),
            "name": f"job number {number + 1}",
            "model": "resnet50",
            "state": state,
            "why": "needs 8 slots to itself; 3 are free." if queued else f"{state}.",
            "reason": "",
            "ranks": ranks,
            "submitted_ns": now_ns - ago_ns,
            "started_ns": None if queued else now_ns - ago_ns // 2,
            "finished_ns": now_ns - ago_ns // 4 if state == "done" else None,
            "attempts": 0 if queued else 1,
            "iterations": 0,
            "total_iterations": 100_000,
            "slots": [] if queued else slots,
            "stuck": "",
            "predicted_start_ns": now_ns + left_ns if queued else None,
            "predicted_finish_ns": None if state == "done" else now_ns + 2 * left_ns,
        }

    def _messages(self) -> list[dict[str, Any]]:
        size = 100 * 2**20
        return [
            {
                "job": job["id"],
                "bytes": size,
                "since_ns": time.time_ns() - SECOND_NS // 10,
                "left_bytes": None if index % 3 == 0 else self._random.randrange(size),
                "why": "its all-reduce waits." if index % 3 == 0 else "",
            }
            for index, job in enumerate(self._random.sample(self._running, len(self._running) // 2))
        ]

    def snapshot(self) -> dict[str, Any]:
        """Return everything."""
        return {
            "began_ms": 0,
            "clock_ns": time.time_ns(),
            "policy": "headway",
            "policies": ["paper", "headway", "ff+srsf:1"],
            "network": {
                "a_ns": 669_000,
                "b_ns_per_byte": 0.853,
                "eta_ns_per_byte": 0.235,
                "law": "busiest",
                "ring_size": None,
            },
            "version": "0",
            "nodes": [
                {
                    "name": f"node{number}",
                    "slots": SLOTS,
                    "rack": f"r{number // RACK}",
                    "state": "draining" if number % 97 == 5 else "lost" if number == 333 else "up",
                }
                for number in range(NODES)
            ],
            "jobs": self._jobs,
            "messages": self._messages(),
            "turns": [[*job["slots"][0], job["id"]] for job in self._running],
            "forecast": {
                "made_ns": time.time_ns(),
                "policy": "headway",
                "error": {"jobs": 12, "median_share": 0.04},
            },
            "problems": {"policy": "", "storage": "", "log": ""},
        }

    def changes(self) -> dict[str, Any]:
        """Return what has changed since the last event."""
        changed = list(itertools.islice(self._next, CHANGES_A_SECOND // EVENTS_A_SECOND))
        for job in changed:
            job["iterations"] += 1
        return {
            "jobs": changed,
            "messages": self._messages(),
            "turns": [[*job["slots"][0], job["id"]] for job in self._running],
            "clock_ns": time.time_ns(),
        }


async def _events() -> AsyncIterator[str]:
    scheduler = MadeUpScheduler()
    yield f"event: snapshot\ndata: {json.dumps(scheduler.snapshot())}\n\n"
    while True:
        await asyncio.sleep(1 / EVENTS_A_SECOND)
        yield f"event: changes\ndata: {json.dumps(scheduler.changes())}\n\n"


async def _live(request: Request) -> Response:
    return StreamingResponse(_events(), media_type="text/event-stream")


async def _file(request: Request) -> Response:
    name = request.path_params.get("name", "live.html")
    return Response(static_file(name), media_type=MEDIA_TYPES[name[name.rindex(".") :]])


def serve() -> tuple[uvicorn.Server, int]:
    """Serve the page in a thread; return the server and its port."""
    routes = [Route("/", _file), Route("/static/{name}", _file), Route("/v1/live", _live)]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="warning")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return server, server.servers[0].sockets[0].getsockname()[1]


def main() -> None:
    """Measure, or only serve."""
    server, port = serve()
    if "--serve" in sys.argv[1:]:
        print(f"http://127.0.0.1:{port}/", flush=True)
        threading.Event().wait()
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        size: Any = {"width": 1440, "height": 900}
        page = browser.new_page(viewport=size)
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("body[data-clock]")
        for what, value in page.evaluate(MEASURE, SECONDS).items():
            print(f"{what:<24}{value:10,.1f}", flush=True)
        browser.close()
    server.should_exit = True


if __name__ == "__main__":
    main()
