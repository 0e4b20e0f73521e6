"""The page on paper: A4, as Chromium prints it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from builders import make_job
from headway.domain.cluster import Cluster
from headway.domain.workload import Workload
from headway.results.timeline.file import read_timeline
from headway.web.files import write_page
from headway.web.run_data import RunData
from results.recording import record

pytestmark = pytest.mark.browser

JOBS = 130
WORKLOAD = Workload(
    [
        make_job(f"j{job}", gpus=1 + job % 4, iterations=50 + job % 7, arrival_ns=job * 30_000_000)
        for job in range(JOBS)
    ]
)
SHEET_PX = (702, 1032)
"""A4 between its margins."""

BOXES = """
() => {
  const boxes = (selector) => [...document.querySelectorAll(selector)].map((one) => {
    const { left, top, right, bottom } = one.getBoundingClientRect();
    return { name: one.className || one.id, left, top, right, bottom };
  }).filter(({ left, right }) => right > left);
  const canvases = [...document.querySelectorAll("canvas")].map((canvas) => {
    const { width, height } = canvas.getBoundingClientRect();
    return [canvas.width / width, canvas.height / height];
  });
  return {
    canvases,
    blocks: boxes(".top, .cluster-section, .time-section, .moment, .summary, .runs, .small-time,"
      + " .columns > *, .job-page > :not(.columns), .jobs-view > *"),
    widest: Math.max(...boxes("body *").map(({ right }) => right)),
    colours: getComputedStyle(document.documentElement).printColorAdjust,
  };
}
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a file with two runs."""
    folder: Path = tmp_path_factory.mktemp("printed")
    policies = {"one": "ff+srsf+srsf:1", "two": "ff+srsf+srsf:2"}
    for name, policy in policies.items():
        record(folder / f"{name}.parquet", WORKLOAD, Cluster(4, 4), policy=policy)
    path = folder / "runs.html"
    runs = [RunData(read_timeline(folder / f"{name}.parquet"), name) for name in policies]
    write_page(runs, str(path))
    return path.as_uri()


def open_tab(open_page: Callable[..., Page], exported: str, tab: str) -> Page:
    size = {"width": 1400, "height": 900}
    page = open_page(f"{exported}#{tab}", viewport=size, color_scheme="dark")
    page.wait_for_selector("body[data-exact=true]")
    return page


def laid_out(page: Page) -> Any:
    """Lay a page out as it is when it is printed, and return where everything is."""
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": SHEET_PX[0], "height": SHEET_PX[1]})
    return page.evaluate(BOXES)


def sheets(document: bytes) -> list[bytes]:
    """Return what is drawn on each sheet of a PDF."""
    found = []
    for sheet in re.findall(rb"<<[^<]*/Type /Page\n.*?endobj", document, re.DOTALL):
        number = re.search(rb"/Contents (\d+) 0 R", sheet)
        assert number
        start = document.index(b"\n" + number[1] + b" 0 obj")
        begin = document.index(b"stream\n", start) + 7
        found.append(zlib.decompress(document[begin : document.index(b"endstream", begin)]))
    return found


@pytest.mark.parametrize("tab", ["run", "jobs", "compare", "job/j7"])
def test_nothing_overlaps_or_sticks_out_on_paper(
    open_page: Callable[..., Page], exported: str, tab: str
) -> None:
    boxes = laid_out(open_tab(open_page, exported, tab))
    assert boxes["widest"] <= SHEET_PX[0] + 0.5
    # Without background graphics, colours are printed all the same.
    assert boxes["colours"] == "exact"
    for across, down in boxes["canvases"]:
        assert across == pytest.approx(3, abs=0.02)
        assert down == pytest.approx(3, abs=0.02)
    blocks = sorted(boxes["blocks"], key=lambda box: box["top"])
    for above, below in pairwise(blocks):
        apart = above["right"] <= below["left"] or below["right"] <= above["left"]
        assert apart or below["top"] >= above["bottom"] - 0.5, (above, below)


@pytest.mark.parametrize(("tab", "most"), [("run", 2), ("jobs", 4), ("compare", 2), ("job/j7", 1)])
def test_no_sheet_is_wasted(
    open_page: Callable[..., Page], exported: str, tab: str, most: int
) -> None:
    page = open_tab(open_page, exported, tab)
    printed = sheets(page.pdf(format="A4"))
    assert 1 <= len(printed) <= most
    # A title alone is less than this.
    assert min(len(sheet) for sheet in printed) > 3000
    # The screen is as it was.
    expect(page.locator("html:not([data-printing])")).to_have_count(1)
    expect(page.locator("body")).to_have_css("background-color", "rgb(20, 23, 26)")


def test_all_jobs_and_their_times_are_printed(
    open_page: Callable[..., Page], exported: str
) -> None:
    page = open_tab(open_page, exported, "jobs")
    rows = page.locator("#jobs tbody tr[data-job]")
    assert rows.count() < JOBS
    laid_out(page)
    assert rows.count() == JOBS
    jct = page.locator("#jobs tbody tr[data-job] td:last-child")
    assert min(float(text) for text in jct.all_inner_texts()) > 0
    assert page.locator("#jobs thead").bounding_box()["height"] > 10  # type: ignore[index]
