"""A past live run in a browser, from its log: replayed, exported, opened without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from headway.live.core.events import (
    IterationDone,
    JobExited,
    JobRestored,
    JobSpec,
    JobSubmitted,
    MessageDone,
    Slot,
)
from headway.live.past.recording import read_recording
from headway.web.files import write_page
from headway.web.run_data import RunData
from live.past.test_activity import UNIX_NS, Log, nodes, sent
from web.test_page import pixels

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SECOND_NS = 10**9
HOSTILE = "<img src=x onerror=\"document.title='broken into'\">"


def figures(page: Page, moment: float) -> str:
    """Return the figures at a moment."""
    page.locator("#moment").fill(str(moment))
    page.locator("#moment").press("Enter")
    expect(page.locator("#now")).to_contain_text(f"{20 + int(moment):02d}.")
    return page.locator(".figures").inner_text().replace("\n", " ")


def test_a_log_is_shown_with_its_messages_and_what_is_unknown(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    log = Log(tmp_path)
    spec = JobSpec(command=("x",), gpus=2, memory_bytes=1, name=HOSTILE)
    log.begin(0, UNIX_NS)  # 22:13:20 in London
    log.add(
        *nodes(0),
        JobSubmitted(at_ns=0, job_id="1", spec=spec),
        JobSubmitted(at_ns=0, job_id="2", spec=spec),
        sent(SECOND_NS, 1),
        sent(2 * SECOND_NS, 1, "2"),
        MessageDone(at_ns=4 * SECOND_NS, job_id="1", attempt=1, request=1),
        MessageDone(at_ns=6 * SECOND_NS, job_id="2", attempt=1, request=1),
        JobExited(at_ns=7 * SECOND_NS, job_id="2", attempt=1, code=1),
    )
    log.begin(8 * SECOND_NS, UNIX_NS + 18 * SECOND_NS)
    slots = (Slot("a", 0), Slot("b", 0))
    log.add(
        *nodes(8 * SECOND_NS),
        JobRestored(
            at_ns=8 * SECOND_NS, job_id="1", spec=spec, submitted_ns=0, attempts=1, slots=slots
        ),
        sent(8_500_000_000, 2),
        MessageDone(at_ns=8_900_000_000, job_id="1", attempt=1, request=2),
        JobExited(at_ns=10 * SECOND_NS, job_id="1", attempt=1, code=0),
    )
    path = tmp_path / "run.html"
    write_page([RunData(read_recording(str(tmp_path)), "state")], str(path))
    page = open_page(path.as_uri(), timezone_id="Europe/London")
    expect(page.locator("#title")).to_contain_text("2 jobs · 2 nodes, 2 slots")
    # Messages come after the first drawing.
    page.wait_for_selector("body[data-exact=true]")
    at_three = figures(page, 3)
    assert "messages in flight 1" in at_three
    assert "messages waiting 1" in at_three
    assert page.locator("#now").inner_text() == "22:13:23.000"
    rows = page.locator(".messages tbody tr")
    expect(rows).to_contain_text(["67% of 3.00 s", "has waited 1.00 s for admission"])
    expect(rows.first).to_contain_text("a and b")
    page.evaluate("location.hash = 'job/1'")
    expect(page.locator("#sentence")).to_contain_text("Sends among nodes a and b")
    page.evaluate("location.hash = 'run'")
    assert "messages in flight 1" in figures(page, 5)
    # No scheduler was there, and the job went on.
    unknown = figures(page, 12)
    assert "messages in flight –" in unknown
    assert "slots in use 2 of 2" in unknown
    assert "messages in flight 0" in figures(page, 19)
    assert page.locator("img").count() == 0
    page.locator("#play").click()
    expect(page.locator("#now")).not_to_have_text("22:13:39.000")


def test_a_log_says_how_its_jobs_ended(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    log = Log(tmp_path)
    spec = JobSpec(command=("x",), gpus=2, memory_bytes=1)
    log.begin(0, UNIX_NS)
    log.add(
        *nodes(0),
        *(JobSubmitted(at_ns=0, job_id=job, spec=spec) for job in "123"),
        JobExited(at_ns=4 * SECOND_NS, job_id="1", attempt=1, code=0),
        JobExited(at_ns=5 * SECOND_NS, job_id="2", attempt=1, code=1),
        IterationDone(at_ns=7 * SECOND_NS, job_id="3", attempt=1, iterations=1),
    )
    path = tmp_path / "run.html"
    write_page([RunData(read_recording(str(tmp_path)), "state")], str(path))
    page = open_page(f"{path.as_uri()}#jobs")
    page.locator("#moment").fill("7")
    page.locator("#moment").press("Enter")
    rows = page.locator("table.jobs tbody tr")
    expect(rows.filter(has_text="Failed 2.00 s ago.")).to_have_class("failed")
    expect(rows.filter(has_text="Finished 3.00 s ago.")).to_contain_text("done")
    expect(rows.filter(has_text="Failed 2.00 s ago.")).to_contain_text("failed")
    expect(rows.filter(has_text="Runs.")).to_contain_text("running")
    page.locator("#moment").blur()
    page.keyboard.press("1")
    expect(page.locator(".figures")).to_contain_text("1 of 3failed1")
    assert pixels(page, "#gantt", "failed") > 1000  # more than the name beside the bar
