"""Readers of the API share answers and wait once it has used its share of a core."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from headway.live.api import app as api_app
from headway.live.api.daemon_calls import DaemonCalls


def test_requests_for_the_same_share_an_answer_that_is_never_older_than_they_are() -> None:
    began: list[str] = []

    async def main() -> None:
        calls = DaemonCalls()

        async def work() -> dict[str, int]:
            began.append("work")
            await asyncio.sleep(0)
            return {"answer": len(began)}

        answers = await asyncio.gather(*(calls.shared("jobs", work) for _ in range(500)))
        assert {*answers} == {b'{"answer":1}'}
        first = asyncio.create_task(calls.shared("jobs", work))
        while len(began) == 1:
            await asyncio.sleep(0)
        # It has begun: what happens now is not in its answer.
        assert json.loads(await calls.shared("jobs", work)) == {"answer": 3}
        assert json.loads(await first) == {"answer": 2}
        await asyncio.gather(calls.shared("jobs", work), calls.shared("nodes", work))
        assert len(began) == 5

    asyncio.run(main())


def test_an_answer_that_fails_fails_for_all_and_is_not_kept() -> None:
    async def main() -> None:
        calls = DaemonCalls()

        async def fail() -> None:
            raise ValueError("no")

        async def work() -> int:
            return 1

        failed = await asyncio.gather(
            calls.shared("jobs", fail), calls.shared("jobs", fail), return_exceptions=True
        )
        assert [str(error) for error in failed] == ["no", "no"]
        assert await calls.shared("jobs", work) == b"1"

    asyncio.run(main())


def test_requests_wait_once_the_api_has_used_its_share_but_never_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used_s, now_s, waited = 100.0, 1_000.0, [0.0]

    async def work(*_: Any) -> None:
        nonlocal used_s, now_s
        used_s += 0.001
        now_s += 0.001

    async def sleep(delay_s: float) -> None:
        nonlocal now_s
        waited.append(delay_s)
        now_s += delay_s

    monkeypatch.setattr(time, "thread_time", lambda: used_s)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def main() -> None:
        nonlocal used_s, now_s
        paced = api_app._Paced(work)
        call: Any = paced({}, None, None)  # type: ignore[arg-type]
        await call
        before_s = now_s
        for _ in range(100):
            await paced({}, None, None)  # type: ignore[arg-type]
        assert sum(waited) == 0.0
        for _ in range(10_000):
            await paced({}, None, None)  # type: ignore[arg-type]
        share = 10.1 / (now_s - before_s)
        assert share == pytest.approx(api_app.CORE_SHARE, rel=0.1)
        used_s += 1_000  # by a long stream
        await paced({}, None, None)  # type: ignore[arg-type]
        assert waited[-1] == pytest.approx(api_app.MAX_WAIT_S)
        now_s += 60
        await paced({}, None, None)  # type: ignore[arg-type]
        assert waited[-1] == 0.0

    asyncio.run(main())
