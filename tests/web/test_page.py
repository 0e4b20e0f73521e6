"""The page of recorded runs in a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from builders import make_job
from headway.domain.cluster import Cluster
from headway.domain.workload import Workload
from headway.results.timeline.file import read_timeline
from headway.web.files import write_page
from headway.web.run_data import RunData
from results.recording import record

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=\"document.title='broken into'\">"
CLUSTER = Cluster(4, 2, servers_per_rack=2)
WORKLOAD = Workload(
    [
        make_job(HOSTILE, gpus=4, iterations=40, gradient_bytes=80_000_000, model=HOSTILE),
        make_job("beta", gpus=4, iterations=30, arrival_ns=50_000_000, gradient_bytes=80_000_000),
        make_job("gamma", gpus=2, iterations=400, arrival_ns=100_000_000, memory_bytes=9 * 2**30),
        make_job("delta", gpus=8, iterations=20, arrival_ns=200_000_000, memory_bytes=9 * 2**30),
    ]
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the timelines of two policies."""
    folder = tmp_path_factory.mktemp("runs")
    policies = {"one": "ff+srsf+srsf:1", "two": "ff+srsf+srsf:2"}
    for name, policy in policies.items():
        record(folder / f"{name}.parquet", WORKLOAD, CLUSTER, policy=policy)
    return [folder / f"{name}.parquet" for name in policies]


@pytest.fixture(scope="module")
def exported(runs: list[Path]) -> str:
    """Return the address of a file with both runs."""
    path = runs[0].with_name("runs.html")
    write_page([RunData(read_timeline(run), run.stem) for run in runs], str(path))
    return path.as_uri()


def moment_after_click(page: Page, x: float, y: float) -> float:
    """Click in the bars; return the moment that this chose, which the next frame shows."""
    moment = page.locator("#moment")
    before = moment.input_value()
    page.mouse.click(x, y)
    expect(moment).not_to_have_value(before)
    return float(moment.input_value().replace(",", ""))


def go_to(page: Page, moment: float) -> None:
    page.locator("#moment").fill(str(moment))
    page.locator("#moment").press("Enter")
    page.locator("#moment").blur()


def pixels(page: Page, canvas: str, colour: str) -> int:
    """Return how many pixels of a canvas have one of the theme's colours."""
    script = """([canvas, colour]) => {
        const style = getComputedStyle(document.documentElement).getPropertyValue(`--${colour}`);
        const wanted = [1, 3, 5].map((at) => parseInt(style.trim().slice(at, at + 2), 16));
        const { width, height } = document.querySelector(canvas);
        const context = document.querySelector(canvas).getContext("2d");
        const { data } = context.getImageData(0, 0, width, height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) {
          if (wanted.every((value, part) => data[at + part] === value)) found += 1;
        }
        return found;
    }"""
    found: int = page.evaluate(script, [canvas, colour])
    return found


def figure(page: Page, name: str) -> str:
    found = page.locator(".figures div", has=page.get_by_text(name, exact=True))
    return found.locator("dd").inner_text()


def test_an_exported_page_shows_a_run_without_any_server(
    open_page: Callable[..., Page], exported: str
) -> None:
    page = open_page(exported, offline=True)
    assert page.title() == "one – Headway"
    expect(page.locator("#title")).to_have_text("ff + srsf + srsf:1 · 4 jobs · 4 servers, 8 GPUs")
    expect(page.locator(".summary")).to_contain_text("jobs share GPUs if their memory fits")
    # A click in the bars chooses the moment, and the map shows that moment.
    box = page.locator("#gantt").bounding_box()
    assert box is not None
    early = moment_after_click(page, box["x"] + box["width"] * 0.15, box["y"] + 40)
    expect(page.locator("#now")).to_have_text(f"{early:.3f} s")
    assert int(figure(page, "finished").split()[0]) == 0
    late = moment_after_click(page, box["x"] + box["width"] * 0.97, box["y"] + 40)
    assert late > early
    expect(page.locator("#now")).to_have_text(f"{late:.3f} s")
    assert int(figure(page, "finished").split()[0]) > 0
    label = page.locator("#cluster").get_attribute("aria-label")
    assert label is not None
    assert f"{figure(page, 'GPUs in use').split()[0]} of 8 GPUs hold a job" in label
    # Messages are exact: those of the moment are listed.
    go_to(page, 0.02)
    expect(page.locator(".messages tbody tr")).to_have_count(1)
    expect(page.locator(".messages tbody td").nth(1)).to_have_text("0–1")
    # Keys move the moment, zoom, and show all again.
    page.keyboard.press("n")
    expect(page.locator("#moment")).to_have_value("0.050")
    before = page.locator("#gantt").get_attribute("aria-label")
    page.keyboard.press("w")
    expect(page.locator("#gantt")).not_to_have_attribute("aria-label", before or "")
    page.keyboard.press("0")
    expect(page.locator("#gantt")).to_have_attribute("aria-label", before or "")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    # Replay plays to the end and stops there.
    page.locator("#speed").select_option("0.1")
    before = page.locator("#moment").input_value()
    page.locator("#play").click()
    expect(page.locator("#moment")).not_to_have_value(before)
    page.locator("#speed").select_option("36000")
    expect(page.locator("#play")).to_have_text("Play")
    expect(page.locator(".figures")).to_contain_text("4 of 4")


def test_jobs_can_be_searched_filtered_sorted_and_opened(
    open_page: Callable[..., Page], exported: str
) -> None:
    page = open_page(f"{exported}#jobs")
    rows = page.locator("#jobs tbody tr[data-job]")
    expect(rows).to_have_count(4)
    page.locator("#jobs th button", has_text="GPUs").click()
    expect(rows.first).to_have_attribute("data-job", "delta")
    page.locator("#jobs th button", has_text="GPUs").click()
    expect(rows.first).to_have_attribute("data-job", "gamma")
    page.locator("#search").fill("ETA")
    expect(rows).to_have_count(1)
    expect(page.locator("#found")).to_have_text("1 of 4 jobs")
    page.locator("#search").fill("")
    go_to(page, 0.21)
    for state in ("running", "finished", "not arrived"):
        page.locator(f"input[data-state='{state}']").uncheck()
    expect(rows).to_have_count(1)
    expect(rows.first.locator("td.now")).to_contain_text("Has waited 10 ms for 8 GPUs")
    page.get_by_role("link", name="delta").click()
    expect(page.locator(".job-page h2")).to_contain_text("delta")
    shares = page.locator("#totals tbody td:nth-child(2)").all_inner_texts()
    *parts, total = (float(text.replace(",", "")) for text in shares)
    assert sum(parts) == pytest.approx(total, abs=0.01)
    assert parts[0] > 0
    page.goto(f"{exported}#job/beta")
    expect(page.locator("#sentence")).to_contain_text("At 0.210 s:")


def test_a_click_on_a_row_opens_its_job(open_page: Callable[..., Page], exported: str) -> None:
    page = open_page(f"{exported}#jobs")
    page.locator("#jobs tr[data-job='gamma'] td.now").click()
    expect(page.locator(".job-page h2")).to_contain_text("gamma")


def test_bars_show_the_moment_of_the_slider(open_page: Callable[..., Page], exported: str) -> None:
    page = open_page(exported)
    go_to(page, 0.1)
    for _ in range(8):
        page.keyboard.press("w")
    label = page.locator("#gantt")
    for place in ("1000", "0", "500"):
        before = label.get_attribute("aria-label") or ""
        page.locator("#scrub").fill(place)
        expect(label).not_to_have_attribute("aria-label", before)
        text = label.get_attribute("aria-label") or ""
        first, last, at = (float(one) for one in re.findall(r"([\d.]+) s\b", text))
        assert first <= at <= last
        assert last - first < 1


def test_runs_are_compared(open_page: Callable[..., Page], exported: str) -> None:
    page = open_page(f"{exported}#compare")
    expect(page.locator("#runs tbody tr")).to_have_count(2)
    expect(page.locator("#faster")).to_contain_text("of 4 jobs finish sooner")
    expect(page.locator("#ecdf")).to_have_attribute("aria-label", re.compile("one.*; two"))
    expect(page.locator(".small canvas")).to_have_count(2)
    page.locator("#run-choice").select_option("1")
    expect(page.locator("#title")).to_contain_text("srsf:2")


BARS = """
() => {
  const canvas = document.getElementById("gantt"), { width } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 24, width, 100);
  const found = [];
  for (let y = 0; y < 100; y++) {
    const reds = Array.from({ length: width - 120 }, (_, x) => data[4 * (y * width + 100 + x)]);
    found.push(Math.min(...reds) < 220);
  }
  return found;
}
"""
"""In which of the upper rows of pixels there is more than lines of the axis."""


def test_all_rows_are_on_show_even_if_they_are_lower_than_a_pixel(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    jobs = [make_job(f"j{job}", gpus=1, arrival_ns=job * 1_000_000) for job in range(3000)]
    record(tmp_path / "many.parquet", Workload(jobs), Cluster(8, 8), policy="ff+srsf:1")
    path = tmp_path / "many.html"
    write_page([RunData(read_timeline(tmp_path / "many.parquet"), "many")], str(path))
    page = open_page(path.as_uri(), viewport={"width": 1200, "height": 900})
    gantt = page.locator("#gantt")
    expect(gantt).not_to_have_attribute("data-rows", "3000")
    page.keyboard.press("r")
    expect(gantt).to_have_attribute("data-rows", "3000")
    # In the order of their starts, jobs make a band from the upper left to the lower right.
    assert all(page.evaluate(BARS))
    # A point has several jobs then, and the tip names one of them.
    box = gantt.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 30, box["y"] + 60)
    expect(page.locator(".time-view .tip")).to_contain_text(re.compile("job j.*other jobs here"))
    page.keyboard.press("r")
    expect(gantt).not_to_have_attribute("data-rows", "3000")


def test_a_link_keeps_the_moment_and_the_job(open_page: Callable[..., Page], exported: str) -> None:
    page = open_page(exported)
    page.locator("#gantt").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#chosen-job")).to_contain_text("beta")
    go_to(page, 0.25)
    page.wait_for_url(re.compile(r"#run\?at=0\.25&job=beta$"))
    again = open_page(page.url)
    expect(again.locator("#moment")).to_have_value("0.250")
    expect(again.locator("#chosen-job")).to_contain_text("beta")
    # Enter opens the job's page; a job whose page was open is not chosen for that.
    again.keyboard.press("Escape")
    expect(again.locator("#chosen-job")).to_have_count(0)
    again.goto(f"{exported}#job/gamma")
    expect(again.locator(".job-page h2")).to_contain_text("gamma")
    again.keyboard.press("1")
    expect(again.locator("#moment")).to_have_value("0.250")
    expect(again.locator("#chosen-job")).to_have_count(0)
    again.locator("#gantt").focus()
    again.keyboard.press("ArrowDown")
    again.keyboard.press("Enter")
    expect(again.locator(".job-page")).to_be_visible()


def test_a_theme_lasts(open_page: Callable[..., Page], exported: str) -> None:
    page = open_page(exported, color_scheme="light")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    page.wait_for_selector("#main > *")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_differences_can_be_sorted_and_lead_to_jobs(
    open_page: Callable[..., Page], exported: str
) -> None:
    page = open_page(f"{exported}#compare")
    heads, rows = page.locator("#differences th button"), page.locator("#differences tbody tr")
    heads.nth(1).click()
    first = rows.first.get_attribute("data-job")
    heads.nth(1).click()
    expect(rows.last).to_have_attribute("data-job", first or "")
    rows.last.get_by_role("link").click()
    expect(page.locator(".job-page h2")).to_contain_text(first or "")


def test_values_are_shown_under_the_pointer(open_page: Callable[..., Page], exported: str) -> None:
    page = open_page(exported, viewport={"width": 1200, "height": 1000})
    box = page.locator("#gantt").bounding_box()
    assert box is not None
    tip = page.locator(".time-view .tip")
    page.mouse.move(box["x"] + 300, box["y"] + box["height"] - 15)
    expect(tip).to_contain_text("Waiting: jobs for GPUs ")
    page.mouse.move(box["x"] + 300, box["y"] + box["height"] - 65)
    expect(tip).to_contain_text("GPUs: hold a job 8, compute ")
    page.mouse.move(box["x"] + 300, box["y"] + box["height"] - 125)
    expect(tip).to_contain_text(re.compile("server [0-3]: messages"))
    page.goto(f"{exported}#compare")
    page.locator("#ecdf").hover(position={"x": 200, "y": 100})
    expect(page.locator(".curve .tip")).to_have_text(re.compile("JCT .* s: one .*%, two .*%"))


def test_a_server_is_found_by_its_name(open_page: Callable[..., Page], tmp_path: Path) -> None:
    record(tmp_path / "wide.parquet", WORKLOAD, Cluster(1000, 2), policy="ff+srsf:1")
    path = tmp_path / "wide.html"
    write_page([RunData(read_timeline(tmp_path / "wide.parquet"), "wide")], str(path))
    page = open_page(path.as_uri())
    page.locator("#find-server").fill("777")
    expect(page.locator("#chosen-server")).to_contain_text("server 777")
    # The map is zoomed there: the first server is so large that a click here meets it.
    page.locator("#find-server").fill("server 0")
    expect(page.locator("#chosen-server")).to_contain_text("server 0")
    page.locator("#cluster").click(position={"x": 30, "y": 10})
    expect(page.locator("#chosen-server")).to_have_count(0)
    page.locator("#find-server").fill("nowhere")
    expect(page.locator("#find-server")).to_have_attribute("aria-invalid", "")


def test_a_hostile_job_name_is_only_text(open_page: Callable[..., Page], exported: str) -> None:
    page = open_page(exported)
    go_to(page, 0.02)
    for tab in ("run", "jobs", "compare"):
        page.goto(f"{exported}#{tab}")
        page.wait_for_selector(f"body[data-tab={tab}]")
        assert page.locator("img").count() == 0
    expect(page.locator(".compare-view")).to_contain_text(HOSTILE)
    page.goto(f"{exported}#jobs")
    page.get_by_role("link", name=HOSTILE).first.click()
    expect(page.locator(".job-page h2")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert page.title() == "one – Headway"


@pytest.mark.parametrize("width", [390, 900, 1440])
def test_nothing_sticks_out_at_any_width(
    open_page: Callable[..., Page], exported: str, width: int
) -> None:
    page = open_page(exported, viewport={"width": width, "height": 800}, color_scheme="dark")
    for tab in ("run", "jobs", "compare", "job/beta"):
        page.goto(f"{exported}#{tab}")
        page.wait_for_selector(f"body[data-tab={tab.split('/')[0]}]")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, tab


def test_the_served_page_opens_by_its_link_only(
    browser: Browser, open_page: Callable[..., Page], runs: list[Path]
) -> None:
    words = [sys.executable, "-m", "headway", "view", str(runs[0]), "--no-browser"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            link = next(line.split()[1] for line in process.stderr if line.startswith("Open "))
            address = link.partition("?")[0]
            page = open_page(link)
            expect(page.locator("#title")).to_contain_text("4 jobs")
            assert page.url == address
            assert page.evaluate("document.cookie") == ""
            expect(page.locator(".messages tbody tr").first).to_be_visible()
            # A job's page says whom it waited for, as `headway explain` does.
            page.goto(f"{address}#job/beta")
            waited = page.locator("#totals tr", has_text="waiting for admission")
            expect(waited).to_contain_text(f"behind {HOSTILE}")
            shares = page.locator("#totals tbody td:nth-child(2)").all_inner_texts()
            *parts, total = (float(text.replace(",", "")) for text in shares)
            assert sum(parts) == pytest.approx(total, abs=0.01)
            page.locator(".job-time").hover(position={"x": 300, "y": 60})
            expect(page.locator(".job-page .tip")).to_contain_text(re.compile(r"^[\d.]+ s: .*\.$"))
            refused = browser.new_context()
            assert refused.request.get(address).status == 401
            assert refused.request.get(link).status == 403
            refused.close()
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
