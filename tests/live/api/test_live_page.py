"""The page of a live scheduler: who may see it, and the stream of what it shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headway.live.api import live_pages
from headway.live.api.app import make_app
from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.forecasts.service import ForecastService
from headway.live.api.past.service import PastService
from headway.live.core.events import NEVER_STARTED, Slot
from headway.live.core.forecast import Forecast, JobForecast
from headway.live.core.job_state import JobState
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.job_record import MAX_HISTORY, JobRecord
from headway.live.executors import Attempt, ExecutorNode
from headway.web.guard import HEADERS
from live.daemon.in_process import FakeExecutor, make_spec, running_daemon
from waiting import PATIENCE_S, eventually_async
from web.asking import HOST, Answer, ask_async, make_scope

TOKEN = "t" * 32
BEARER = {"authorization": f"Bearer {TOKEN}"}
SHARING = {"gpus": 2, "memory_bytes": 2**20}
"""A job on both nodes, which shares their slots with others."""
SIZE = 10**12
"""Of a message that is on its way for as long as a test needs."""


class Page:
    """A reader of `/v1/live`: what it has been sent, put together as a page would."""

    def __init__(
        self, app: Any, cookie: str, read: Callable[[Any], Awaitable[None]] | None = None
    ) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.state: dict[str, Any] = {}
        self.bytes_read = 0
        self.jobs: dict[str, dict[str, Any]] = {}
        self.ended = asyncio.ensure_future(
            app(make_scope("/v1/live", cookie=cookie), self._receive, read or self._send)
        )
        self._left = asyncio.Event()

    async def _receive(self) -> Any:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            return
        self.bytes_read += len(message["body"])
        for event in message["body"].decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.splitlines() if line[:1] != ":")
            if "data" in fields:
                self._take(fields["event"], json.loads(fields["data"]))

    def _take(self, kind: str, values: dict[str, Any]) -> None:
        assert (kind == "snapshot") == (not self.events)
        assert kind in ("snapshot", "changes")
        self.events.append((kind, values))
        self.state |= {name: one for name, one in values.items() if name not in ("jobs", "gone")}
        self.jobs |= {job["id"]: job for job in values.get("jobs", ())}
        for job in values.get("gone", ()):
            del self.jobs[job]

    async def close(self) -> None:
        self._left.set()
        await asyncio.wait_for(self.ended, PATIENCE_S)


def make_executor(slots: int = 1) -> FakeExecutor:
    executor = FakeExecutor(slots)
    executor.nodes = [ExecutorNode(name, "127.0.0.1", slots, 2**30) for name in ("n1", "n2")]
    return executor


@contextlib.asynccontextmanager
async def live_page(
    folder: Path, executor: FakeExecutor | None = None
) -> AsyncIterator[tuple[Daemon, Any, str]]:
    """Run a daemon; return it, its app and the cookie of a signed-in page."""
    async with running_daemon(folder, executor or make_executor()) as daemon:
        calls = DaemonCalls()
        forecasts = ForecastService(daemon, calls, enabled=False)
        past = PastService(daemon, folder / "events.jsonl")
        app = make_app(daemon, TOKEN, {}, calls, forecasts, past)
        yield daemon, app, (await sign_in(app)).cookie


async def make_link(app: Any, host: str = HOST, scheme: str = "http") -> str:
    answer = await ask_async(app, "/v1/sign-in", method="POST", host=host, scheme=scheme, **BEARER)
    assert answer.status == 200
    link: str = json.loads(answer.body)["link"]
    assert link.startswith(f"{scheme}://{host}/?token=")
    return link


async def sign_in(app: Any, host: str = HOST, scheme: str = "http") -> Answer:
    target = (await make_link(app, host, scheme)).removeprefix(f"{scheme}://{host}")
    answer = await ask_async(app, target, host=host, scheme=scheme)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    return answer


READS = ("/v1/status", "/v1/jobs", "/v1/nodes", "/metrics")


def test_a_signed_in_page_may_use_the_api_and_no_one_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (_, app, cookie):
            page = await ask_async(app, "/", cookie=cookie)
            assert (page.status, page.headers.items() >= HEADERS.items()) == (200, True)
            assert b"<title>Headway</title>" in page.body
            assert b"static/live.js" in page.body
            assert (await ask_async(app, "/static/live.js", cookie=cookie)).status == 200
            assert (await ask_async(app, "/static/none.js", cookie=cookie)).status == 404
            for path in READS:
                answer = await ask_async(app, path, cookie=cookie)
                assert (answer.status, answer.headers.items() >= HEADERS.items()) == (200, True)
            for path in ("/", "/static/live.js", "/v1/live", *READS):
                for refused in (
                    {"cookie": ""},
                    {"cookie": "headway-4321=x"},
                    {"cookie": cookie, "host": "evil.example:4321"},
                    {"cookie": cookie, "host": "127.0.0.1:4322"},
                    {"cookie": cookie.replace("4321", "4322"), "host": "127.0.0.1:4322"},
                    {"cookie": cookie, "authorization": "Bearer wrong"},
                ):
                    answer = await ask_async(app, path, **refused)
                    assert answer.status == 401
                    assert answer.headers["connection"] == "close"
            # The descriptions of the API load scripts from elsewhere.
            assert (await ask_async(app, "/docs", cookie=cookie)).status == 401

    asyncio.run(main())


def test_a_page_changes_something_only_by_requests_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (daemon, app, cookie):
            drain = {"target": "/v1/nodes/n1/drain", "method": "POST", "cookie": cookie}
            for origin in (
                "",
                "null",
                "http://evil.example",
                f"https://{HOST}",
                "http://127.0.0.1",
            ):
                answer = await ask_async(app, **drain, origin=origin)
                assert (answer.status, daemon.drained) == (403, set())
            evil = {"host": "evil.example", "origin": "http://evil.example"}
            assert (await ask_async(app, **drain, **evil)).status == 401
            answer = await ask_async(app, **drain, origin=f"http://{HOST}")
            assert (answer.status, daemon.drained) == (200, {"n1"})
            # Nor does a page get links: a stolen cookie does not last.
            links = {"target": "/v1/sign-in", "method": "POST", "cookie": cookie}
            assert (await ask_async(app, **links, origin=f"http://{HOST}")).status == 401

    asyncio.run(main())


def test_a_link_works_once_and_over_tls_its_cookie_needs_tls(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (_, app, cookie):
            target = (await make_link(app)).removeprefix(f"http://{HOST}")
            assert (await ask_async(app, target, host="evil.example")).status == 403
            answer = await ask_async(app, target)
            assert answer.cookie != cookie
            assert "secure" not in answer.headers["set-cookie"].lower()
            assert (await ask_async(app, target)).status == 403
            assert (await ask_async(app, target, cookie=cookie)).status == 303
            assert (await ask_async(app, "/?token=x", cookie="")).status == 403
            secure = await sign_in(app, "cluster.example", "https")
            assert "; secure" in secure.headers["set-cookie"].lower()
            there = {"host": "cluster.example", "scheme": "https", "cookie": secure.cookie}
            assert (await ask_async(app, "/v1/policy", **there)).status == 200
            for host in ("", "a/b", "a b", "a?b", "me@cluster.example"):
                refused = await ask_async(app, "/v1/sign-in", method="POST", host=host, **BEARER)
                assert refused.status == 400

    asyncio.run(main())


def test_a_session_survives_a_restart_but_not_its_end(tmp_path: Path) -> None:
    async def first() -> tuple[str, str]:
        async with live_page(tmp_path) as (_, app, cookie):
            other = (await sign_in(app)).cookie
            leave = {"target": "/v1/sign-out", "method": "POST", "origin": f"http://{HOST}"}
            assert (await ask_async(app, **leave, cookie="", **BEARER)).status == 400
            answer = await ask_async(app, **leave, cookie=other)
            assert (answer.status, "max-age=0" in answer.headers["set-cookie"].lower()) == (
                200,
                True,
            )
            assert (await ask_async(app, "/", cookie=other)).status == 401
            return cookie, other

    async def second(cookie: str, other: str) -> None:
        async with live_page(tmp_path) as (_, app, _):
            assert (await ask_async(app, "/", cookie=cookie)).status == 200
            assert (await ask_async(app, "/", cookie=other)).status == 401

    asyncio.run(second(*asyncio.run(first())))


def test_a_page_sees_everything_at_first_and_then_every_change(tmp_path: Path) -> None:
    async def main() -> None:
        executor = make_executor()
        async with live_page(tmp_path, executor) as (daemon, app, cookie):
            for name in ("one", "<img src=x onerror=alert(1)>"):
                await daemon.submit(make_spec(name=name, iterations=10, **SHARING))
            await eventually_async(lambda: len(executor.launched) == 2)
            gate = daemon.gate_events
            for sender in ("1", "2"):
                gate.message_ready(sender, 1, 1, SIZE, SIZE)
            page = Page(app, cookie)
            await eventually_async(lambda: page.events)
            state = page.state
            assert state["nodes"] == [
                {"name": name, "slots": 1, "state": "up", "rack": None} for name in ("n1", "n2")
            ]
            assert (state["policy"], state["forecast"]) == (daemon.policy, None)
            assert state["problems"] == {"policy": "", "storage": "", "log": ""}
            assert state["network"]["law"]
            assert page.jobs["2"]["name"] == "<img src=x onerror=alert(1)>"
            job = page.jobs["1"]
            assert (job["state"], job["why"], job["slots"]) == (
                "running",
                "running on n1, n2.",
                [[0, 0], [1, 0]],
            )
            assert (job["ranks"], job["iterations"], job["total_iterations"]) == (2, 0, 10)
            assert job["submitted_ns"] <= job["started_ns"] <= state["clock_ns"]
            assert (job["predicted_start_ns"], job["predicted_finish_ns"]) == (None, None)
            in_flight, waiting = state["messages"]
            assert (in_flight["job"], in_flight["bytes"], in_flight["why"]) == ("1", SIZE, "")
            assert (waiting["job"], waiting["left_bytes"]) == ("2", None)
            assert "1 message on n1 (job 1, about" in waiting["why"]
            assert state["turns"] == []

            # A message goes on, though no event says so.
            left = in_flight["left_bytes"]
            await eventually_async(lambda: state["messages"][0]["left_bytes"] < left)

            gate.message_done("1", 1, 1)
            gate.message_done("2", 1, 1)
            gate.iteration_done("1", 1, 1, 0, 0, 0)
            gate.compute_ready("1", 1, 0, 1)
            gate.compute_ready("2", 1, 0, 1)
            await eventually_async(lambda: page.jobs["1"]["iterations"] == 1)
            await eventually_async(lambda: state["turns"] == [[0, 0, "1"]])
            assert state["messages"] == []
            gate.compute_done("1", 1, 0, 1)
            await eventually_async(lambda: state["turns"] == [[0, 0, "2"]])

            await daemon.submit(make_spec(gpus=2))
            await eventually_async(lambda: "3" in page.jobs)
            waits = "needs 2 slots to itself; 0 are free."
            assert (page.jobs["3"]["state"], page.jobs["3"]["why"]) == ("queued", waits)
            await daemon.drain("n2", True)
            await eventually_async(lambda: state["nodes"][1]["state"] == "draining")
            draining = "needs 2 slots to itself; 0 are free (not counting draining nodes: n2)."
            await eventually_async(lambda: page.jobs["3"]["why"] == draining)
            await daemon.set_policy("ff+fifo+srsf:2")
            await eventually_async(lambda: state["policy"] == "ff+fifo+srsf:2")

            predicted = (JobForecast("3", "queued", 10**15, 2 * 10**15),)
            await daemon.take_forecast(Forecast.of(10**9, "paper", predicted))
            await eventually_async(lambda: state["forecast"] is not None)
            error = {"jobs": 0, "median_share": None}
            assert state["forecast"] == {"made_ns": 10**9, "policy": "paper", "error": error}
            assert page.jobs["3"]["predicted_start_ns"] == 10**15
            assert page.jobs["3"]["predicted_finish_ns"] == 2 * 10**15

            executor.end(Attempt("1", 1), 0)
            await eventually_async(lambda: page.jobs["1"]["state"] == "done")
            done = page.jobs["1"]
            assert (done["slots"], done["why"]) == ([[0, 0], [1, 0]], "")
            assert done["finished_ns"] >= done["started_ns"]

            executor.watcher.node_lost("n1")
            await eventually_async(lambda: state["nodes"][0]["state"] == "lost")
            await eventually_async(lambda: page.jobs["2"]["reason"] == "node n1 was lost")
            executor.watcher.node_up(ExecutorNode("n3", "127.0.0.1", 4, 2**30))
            await eventually_async(lambda: len(state["nodes"]) == 3)
            assert [node["name"] for node in state["nodes"]] == ["n1", "n2", "n3"]

            # A page that comes later sees the same.
            later = Page(app, cookie)
            await eventually_async(lambda: later.events)
            # One of the two may be told of a change a moment before the other.
            await eventually_async(lambda: later.jobs == page.jobs)
            await eventually_async(
                lambda: {**later.state, "clock_ns": 0} == {**page.state, "clock_ns": 0}
            )
            await page.close()
            await later.close()

    asyncio.run(main())


def test_nothing_is_noted_or_sent_without_pages_or_changes(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path, make_executor(2)) as (daemon, app, cookie):
            assert not daemon.changes.noting
            pages = [Page(app, cookie) for _ in range(3)]
            await eventually_async(lambda: all(page.events for page in pages))
            assert bool(daemon.changes.noting)
            await daemon.submit(make_spec())
            await eventually_async(lambda: all(page.jobs for page in pages))
            await eventually_async(lambda: pages[0].jobs["1"]["state"] == "running")
            # Once all is known, there is silence.
            sent = len(pages[0].events)
            await asyncio.sleep(2.5 * live_pages.INTERVAL_S)
            assert len(pages[0].events) == sent
            # Only snapshots are of different times.
            await eventually_async(
                lambda: all(page.events[1:] == pages[0].events[1:] for page in pages)
            )
            for page in pages:
                await page.close()
            await eventually_async(lambda: not daemon.changes.noting)
            again = Page(app, cookie)
            await eventually_async(lambda: again.events)
            assert again.jobs == pages[0].jobs
            # A scheduler that stops ends the stream, even if it has just sent something.
            for pauses in range(6):
                for _ in range(pauses):
                    daemon.pages.send(b": more\n\n")
                    await asyncio.sleep(0)
                daemon.pages.send(b": the last\n\n")
                daemon.end_streams()
                await asyncio.wait_for(again.ended, PATIENCE_S)
                again = Page(app, cookie)
                await eventually_async(again.events.copy)
            await again.close()

    asyncio.run(main())


def test_only_the_latest_finished_jobs_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pages, "MAX_FINISHED", 2)

    async def main() -> None:
        executor = make_executor()
        executor.on_launch = lambda attempt: executor.end(attempt, 0)
        async with live_page(tmp_path, executor) as (daemon, app, cookie):

            async def run(jobs: int) -> None:
                for _ in range(jobs):
                    await daemon.submit(make_spec())
                    await eventually_async(lambda: not daemon.registry.unfinished())

            await run(3)
            page = Page(app, cookie)
            await eventually_async(lambda: page.events)
            assert list(page.jobs) == ["2", "3"]
            await run(1)
            await eventually_async(lambda: list(page.jobs) == ["3", "4"])
            later = Page(app, cookie)
            await eventually_async(lambda: later.events)
            await eventually_async(lambda: later.jobs == page.jobs)
            await page.close()
            await later.close()

    asyncio.run(main())


def test_a_failure_to_start_is_shown_with_its_reason(tmp_path: Path) -> None:
    async def main() -> None:
        executor = make_executor()
        executor.on_launch = lambda attempt: executor.end(attempt, NEVER_STARTED, "no memory")
        async with live_page(tmp_path, executor) as (daemon, app, cookie):
            page = Page(app, cookie)
            await eventually_async(lambda: page.events)
            await daemon.submit(make_spec())
            await eventually_async(
                lambda: page.jobs and page.jobs["1"]["why"] == "no memory; will be retried soon."
            )
            await page.close()

    asyncio.run(main())


def test_every_attempt_is_told_with_where_it_ran_and_why_it_ended(tmp_path: Path) -> None:
    async def fail_often(executor: FakeExecutor) -> list[dict[str, Any]]:
        async with live_page(tmp_path, executor) as (daemon, app, cookie):
            page = Page(app, cookie)
            await eventually_async(lambda: page.events)
            await daemon.submit(make_spec(retries=1, priority=7, **SHARING))
            executor.end(await launched(executor, 1), NEVER_STARTED, "no memory")
            executor.end(await launched(executor, 2), 1, "rank 0 exited with 1")
            third = await launched(executor, 3)
            await eventually_async(lambda: page.jobs["1"]["attempts"] == 3)
            assert page.jobs["1"]["history"][-1]["ended_ns"] is None
            executor.end(third, 1, "rank 1 was killed by SIGKILL")
            await eventually_async(lambda: page.jobs["1"]["state"] == "failed")
            history: list[dict[str, Any]] = page.jobs["1"]["history"]
            assert [(one["number"], one["nodes"], one["reason"]) for one in history] == [
                (1, [0, 1], "no memory"),
                (2, [0, 1], "rank 0 exited with 1"),
                (3, [0, 1], "rank 1 was killed by SIGKILL"),
            ]
            times = [one[name] for one in history for name in ("started_ns", "ended_ns")]
            assert times == sorted(times)
            assert page.jobs["1"]["priority"] == 7
            answer = await ask_async(app, "/v1/jobs/1", **BEARER)
            slots = [{"node": "n1", "index": 0}, {"node": "n2", "index": 0}]
            assert [one["slots"] for one in json.loads(answer.body)["history"]] == 3 * [slots]
            await page.close()
            return history

    async def is_told_again(history: list[dict[str, Any]]) -> None:
        async with live_page(tmp_path) as (_, app, cookie):
            page = Page(app, cookie)
            await eventually_async(lambda: page.events)
            found = page.jobs["1"]["history"]
            untimed = {"started_ns": 0, "ended_ns": 0}
            assert [one | untimed for one in found] == [one | untimed for one in history]
            await page.close()

    asyncio.run(is_told_again(asyncio.run(fail_often(make_executor()))))


def test_only_the_latest_attempts_of_a_job_are_described(tmp_path: Path) -> None:
    async def main() -> None:
        record = JobRecord(
            job_id="1",
            spec=make_spec(retries=1000),
            state=JobState.QUEUED,
            submitted_ns=0,
            submitted_at=0.0,
        )
        async with running_daemon(tmp_path, make_executor()) as daemon:
            daemon.registry.adopt([record])
            for number in range(1, MAX_HISTORY + 6):
                slots = (Slot("n1", 0),)
                daemon.registry.update("1", state=JobState.STARTING, attempts=number, slots=slots)
                daemon.registry.update("1", state=JobState.QUEUED, slots=(), reason=f"end {number}")
            history = daemon.registry["1"].history
            assert [one.reason for one in history] == [f"end {n}" for n in range(6, 26)]

    asyncio.run(main())


async def launched(executor: FakeExecutor, count: int) -> Attempt:
    """Wait for so many launches; return the latest attempt."""
    await eventually_async(lambda: len(executor.launched) == count)
    return executor.launched[-1]


def test_a_page_that_stops_reading_is_dropped_and_others_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (daemon, app, cookie):
            quick = Page(app, cookie)
            await eventually_async(lambda: quick.events)
            unread = asyncio.Event()

            async def read_no_events(message: Any) -> None:
                if message["type"] == "http.response.body":
                    unread.set()
                    await asyncio.Event().wait()

            slow = Page(app, cookie, read=read_no_events)
            await eventually_async(unread.is_set)
            for number in range(1, 4):
                daemon.pages.send(b": %s\n\n" % (b"x" * 2**19))
                await eventually_async(lambda number=number: quick.bytes_read > number * 2**19)  # type: ignore[misc]
            await asyncio.wait_for(slow.ended, PATIENCE_S)
            await daemon.submit(make_spec())
            await eventually_async(lambda: quick.jobs)
            await quick.close()

    asyncio.run(main())


def test_beyond_the_limit_a_page_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (daemon, app, cookie):
            while daemon.pages.subscribe(asyncio.get_running_loop()) is not None:
                pass
            answer = await ask_async(app, "/v1/live", cookie=cookie)
            assert (answer.status, json.loads(answer.body)) == (
                503,
                {"error": "too many pages are open."},
            )

    asyncio.run(main())
