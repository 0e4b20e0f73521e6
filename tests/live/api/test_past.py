"""`GET /v1/past`: what happened before a page was opened, from the event log."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.live.api.past import process, service
from headway.live.api.past.service import PastService, Stretch
from headway.live.core.events import (
    ComputeReady,
    IterationDone,
    MessageDone,
    MessageReady,
    WorkerLost,
)
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.errors import UnavailableError
from headway.live.executors import Attempt
from headway.live.past import stretch
from headway.live.past.log import LogReader
from headway.web.columns import unpack
from live.api.test_live_page import SHARING, Page, live_page, make_executor
from live.daemon.in_process import FakeExecutor, make_spec, running_daemon
from waiting import eventually_async
from web.asking import ask_async

SECOND_NS = 10**9


def send(daemon: Daemon, job: str, *requests: int) -> None:
    """Let a job ask to send messages."""
    for request in requests:
        daemon.pipeline.handle(
            MessageReady(
                at_ns=daemon.clock.now_ns(),
                job_id=job,
                attempt=1,
                request=request,
                message_bytes=8,
                unsent_bytes=16,
            )
        )


def end(daemon: Daemon, job: str, request: int) -> None:
    now_ns = daemon.clock.now_ns()
    daemon.pipeline.handle(MessageDone(at_ns=now_ns, job_id=job, attempt=1, request=request))


async def written(daemon: Daemon, folder: Path) -> None:
    """Wait until the log has everything: a header, and a line for each event."""
    daemon.log.flush()
    lines = 1 + daemon.core.counts.events - daemon.core.counts.ignored

    def has_all() -> bool:
        part = folder / "events.jsonl"  # a link to that of the run
        return part.exists() and part.read_bytes().count(b"\n") >= lines

    await eventually_async(has_all)


async def ask_past(app: Any, cookie: str, from_ns: int, to_ns: int) -> tuple[Any, Any]:
    target = f"/v1/past?from_ns={from_ns}&to_ns={to_ns}"
    answer = await ask_async(app, target, cookie=cookie)
    assert answer.status == 200, answer.body
    return unpack(answer.body)


def messages_of(columns: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return attempt, ready, start and end of messages as the page works them out."""
    owner, ready = (
        np.cumsum(columns[f"message_{name}_step"]).tolist() for name in ("attempt", "ready")
    )
    wait, length = columns["message_wait"].tolist(), columns["message_length"].tolist()
    return [
        (job, at, at + waited, at + waited + sent)
        for job, at, waited, sent in zip(owner, ready, wait, length, strict=True)
    ]


def test_the_past_has_messages_iterations_and_slots(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (daemon, app, cookie):
            for _ in range(2):
                await daemon.submit(make_spec(**SHARING))
            await eventually_async(lambda: daemon.registry["2"].state == "running")
            send(daemon, "1", 1)
            send(daemon, "2", 7)
            await asyncio.sleep(0.1)  # Means are less exact, the shorter messages are.
            end(daemon, "1", 1)
            daemon.pipeline.handle(
                IterationDone(at_ns=daemon.clock.now_ns(), job_id="1", attempt=1, iterations=5)
            )
            await asyncio.sleep(0.1)
            end(daemon, "2", 7)
            await written(daemon, tmp_path)
            now_ns = daemon.clock.now_ns()
            values, columns = await ask_past(app, cookie, 0, now_ns + SECOND_NS)
            assert values["attempt_of"] == ["1", "2"]
            assert values["node"] == ["n1", "n2"]
            assert values["exact"] is True
            assert values["unknown"] == []
            assert 0 < values["until"] <= daemon.clock.now_ns()
            (one, ready, granted, done), (other, *later) = messages_of(columns)
            assert (one, other) == (0, 1)
            assert ready == granted < done
            assert ready <= later[0] <= later[1] == done < later[2]
            assert columns["slot_node"].tolist() == [0, 1, 0, 1]
            assert columns["iterations"].tolist() == [5]
            assert columns["node_most"].max() == 1
            mean = columns["in_flight"].sum() / 100 * (now_ns + SECOND_NS) / stretch.PERIODS
            assert mean == pytest.approx(done - ready + later[2] - later[1], rel=0.2)

    asyncio.run(main())


def test_too_many_messages_become_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretch, "MAX_MESSAGES", 3)

    async def main() -> None:
        async with running_daemon(tmp_path, make_executor()) as daemon:
            await daemon.submit(make_spec(**SHARING))
            await eventually_async(lambda: daemon.registry["1"].state == "running")
            for request in range(4):
                send(daemon, "1", request)
                await asyncio.sleep(0.02)
                end(daemon, "1", request)
            await written(daemon, tmp_path)
        reader = LogReader(tmp_path / "events.jsonl")
        reader.read()
        reader.close()
        last_ns = reader.activity.now_ns - reader.ahead_ns
        values, columns = unpack(
            stretch.stretch(reader.activity, reader.ahead_ns, 0, last_ns, last_ns)
        )
        assert values["exact"] is False
        assert "message_wait" not in columns
        exact = reader.activity.messages()
        sent_ns = int((exact.end_ns - exact.start_ns).sum())
        period_ns = last_ns / stretch.PERIODS
        assert columns["sending"].sum() / 255 * period_ns == pytest.approx(sent_ns, rel=0.1)
        assert columns["node_mean"].sum() / 100 * period_ns == pytest.approx(2 * sent_ns, rel=0.1)
        # A stretch has what overlaps it.
        (first, *_) = exact.ready_ns.tolist()
        before = stretch.stretch(
            reader.activity, reader.ahead_ns, 0, first - reader.ahead_ns, last_ns
        )
        assert unpack(before)[1]["message_wait"].tolist() == []

    asyncio.run(main())


def test_the_past_needs_the_token_or_a_signed_in_page(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (_, app, cookie):
            target = "/v1/past?from_ns=0&to_ns=5"
            for refused in (
                {"cookie": ""},
                {"cookie": "headway-4321=x"},
                {"cookie": cookie, "host": "evil.example:4321"},
                {"cookie": cookie, "authorization": "Bearer wrong"},
            ):
                assert (await ask_async(app, target, **refused)).status == 401
            assert (await ask_async(app, target, cookie=cookie)).status == 200

    asyncio.run(main())


HOSTILE = [
    "",
    "?from_ns=0",
    "?from_ns=5&to_ns=5",
    "?from_ns=6&to_ns=5",
    "?from_ns=x&to_ns=5",
    "?from_ns=0&to_ns=1e9",
    "?from_ns=0&to_ns=9223372036854775808",
    "?from_ns=-9223372036854775807&to_ns=5",
    f"?from_ns=0&to_ns={'9' * 5000}",
    "?from_ns=0&to_ns=%D9%A3",
    "?from_ns=0;ls&to_ns=5",
    "?from_ns=%00&to_ns=5",
]


def test_times_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (_, app, cookie):
            for query in HOSTILE:
                answer = await ask_async(app, f"/v1/past{query}", cookie=cookie)
                assert answer.status == 400, query
                assert "_ns must be" in json.loads(answer.body)["error"]
            for far in ((-(2**61), -(2**60)), (2**60, 2**61), (-(2**61), 2**61)):
                values, columns = await ask_past(app, cookie, *far)
                assert [values["from"], values["to"]] == list(far)
                assert columns["message_wait"].tolist() == []

    asyncio.run(main())


def test_pages_share_answers_and_too_many_requests_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SETTLED_NS", 0)
    monkeypatch.setattr(service, "MAX_WAITING", 2)

    async def main() -> None:
        async with running_daemon(tmp_path, FakeExecutor()) as daemon:
            past = PastService(daemon, tmp_path / "events.jsonl")
            running = asyncio.ensure_future(past.run())
            try:
                one = [asyncio.ensure_future(past.block(Stretch(0, 10))) for _ in range(3)]
                two = asyncio.ensure_future(past.block(Stretch(0, 20)))
                await asyncio.sleep(0)
                with pytest.raises(UnavailableError, match="too many pages"):
                    await past.block(Stretch(0, 30))
                blocks = await asyncio.gather(*one)
                assert blocks[0] is blocks[1] is blocks[2]
                await two
                assert await past.block(Stretch(0, 10)) is blocks[0]
                assert await past.block(Stretch(0, 30))
            finally:
                running.cancel()
                await asyncio.wait([running])

    asyncio.run(main())


def test_a_damaged_run_is_left_out_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running_daemon(tmp_path, FakeExecutor()) as daemon:
            (tmp_path / "events-000000-000001.jsonl").write_text("nonsense\n")
            await written(daemon, tmp_path)
            past = PastService(daemon, tmp_path / "events.jsonl")
            running = asyncio.ensure_future(past.run())
            try:
                for to_ns in (10, 20):
                    values, _ = unpack(await past.block(Stretch(0, to_ns)))
                    assert values["node"] == ["n1"]
            finally:
                running.cancel()
                await asyncio.wait([running])

    asyncio.run(main())
    said = [one for one in caplog.records if "left out of the past" in one.getMessage()]
    assert len(said) == 1


def test_a_log_that_cannot_be_read_makes_the_past_unavailable_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FAILED_S", 3600.0)

    async def main() -> None:
        command = process.COMMAND
        monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
        async with running_daemon(tmp_path, FakeExecutor()) as daemon:
            await written(daemon, tmp_path)
            past = PastService(daemon, tmp_path / "events.jsonl")
            running = asyncio.ensure_future(past.run())
            try:
                with pytest.raises(UnavailableError, match="at present"):
                    await past.block(Stretch(0, 10))
                monkeypatch.setattr(process, "COMMAND", command)
                with pytest.raises(UnavailableError, match="at present"):
                    await past.block(Stretch(0, 10))
                monkeypatch.setattr(service, "FAILED_S", 0.0)
                assert await past.block(Stretch(0, 10))
            finally:
                running.cancel()
                await asyncio.wait([running])

    asyncio.run(main())


def test_times_before_a_restart_stay_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's clock stands still in between; the page's does not."""
    down_ns = 3600 * SECOND_NS
    real = time.time_ns

    async def main() -> None:
        executor = make_executor()
        async with running_daemon(tmp_path, executor) as daemon:
            await daemon.submit(make_spec(**SHARING))
            await eventually_async(lambda: daemon.registry["1"].state == "running")
            send(daemon, "1", 1)
            end(daemon, "1", 1)
            executor.end(Attempt("1", 1), 0)
            record = daemon.registry["1"]
            sent_ns = daemon.clock.now_ns()
            began_ns, began_unix_ns = daemon.clock.began_ns, daemon.clock.began_unix_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + down_ns)
        async with live_page(tmp_path) as (later, app, cookie):
            assert later.clock.now_ns() - sent_ns < 60 * SECOND_NS
            ahead_ns = later.clock.began_unix_ns - later.clock.began_ns
            moved_ns = (began_unix_ns - began_ns) - ahead_ns
            assert moved_ns < -down_ns + 60 * SECOND_NS
            await written(later, tmp_path)
            values, columns = await ask_past(app, cookie, 2 * moved_ns, later.clock.now_ns())
            assert values["attempt_of"] == ["1"]
            ((_, ready, _, done),) = messages_of(columns)
            assert record.ended_ns is not None
            assert record.started_ns is not None
            assert record.started_ns + moved_ns <= ready <= done <= record.ended_ns + moved_ns
            assert values["unknown"] == []
            shown = later.clock.since_then_ns(record.ended_ns, record.ended_at or 0.0)
            assert shown == pytest.approx(record.ended_ns + moved_ns, abs=SECOND_NS // 10)
            # What happens now is on the scheduler's clock.
            now_ns = later.clock.now_ns()
            assert later.clock.since_then_ns(now_ns, 0.0) == now_ns

    asyncio.run(main())


def test_after_a_kill_the_clock_continues_from_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_daemon(tmp_path, FakeExecutor()) as daemon:
            await daemon.submit(make_spec())
            await eventually_async(lambda: daemon.registry["1"].state == "running")
            later_ns = daemon.clock.now_ns() + 5 * SECOND_NS
            # Nothing that would be saved: the database does not know this time.
            daemon.pipeline.handle(
                IterationDone(at_ns=later_ns, job_id="1", attempt=1, iterations=1)
            )
            await written(daemon, tmp_path)
        async with running_daemon(tmp_path, FakeExecutor()) as after:
            assert after.clock.began_ns >= later_ns

    asyncio.run(main())


def test_requests_of_workers_are_read_as_the_core_took_them(tmp_path: Path) -> None:
    """A message waits from when it was put up for admission, not while gradients are missing."""

    async def main() -> None:
        async with live_page(tmp_path) as (daemon, app, cookie):
            await daemon.submit(make_spec(**SHARING))
            await eventually_async(lambda: daemon.registry["1"].state == "running")
            now_ns = daemon.clock.now_ns()
            compute = ComputeReady(at_ns=now_ns, job_id="1", attempt=1, rank=1, request=1)
            daemon.pipeline.handle(compute)
            ready: dict[str, Any] = {"job_id": "1", "attempt": 1, "message_bytes": 8}
            daemon.pipeline.handle(
                MessageReady(at_ns=now_ns + 10, request=1, unsent_bytes=8, **ready)
            )
            daemon.pipeline.handle(WorkerLost(at_ns=now_ns + 50, job_id="1", attempt=1, rank=1))
            daemon.pipeline.handle(MessageDone(at_ns=now_ns + 70, job_id="1", attempt=1, request=1))
            await written(daemon, tmp_path)
            _, columns = await ask_past(app, cookie, 0, now_ns + SECOND_NS)
            assert messages_of(columns) == [(0, now_ns + 50, now_ns + 50, now_ns + 70)]

    asyncio.run(main())


def test_a_page_that_is_opened_later_knows_what_time_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_page(tmp_path) as (daemon, app, cookie):
            first = Page(app, cookie)
            await eventually_async(lambda: first.events)
            await asyncio.sleep(1)  # Nothing changes.
            before_ns = daemon.clock.now_ns()
            second = Page(app, cookie)
            await eventually_async(lambda: second.events)
            assert before_ns <= second.state["clock_ns"] <= daemon.clock.now_ns()
            await first.close()
            await second.close()

    asyncio.run(main())
