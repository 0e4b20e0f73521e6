"""Measure the page of `headway view` in Chromium: `python benchmarks/web/page.py`.

First paint of the paper's run, exported and opened from disk; the size of that file; and frames
while bars are panned and zoomed: the paper's run as a whole, with hundreds of thousands of spans,
and 100,000 jobs of one bar each, in rows that can be read and then with all rows on show, in the
order of their starts and the longest first. Frames a second are those that the browser presented,
at most as many as its screen has.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

FRAMES = 120
JOBS = 100_000

BARS = "job_id,arrival_s,gpus,iterations,forward_ms,backward_ms,gradient_mb,memory_mb\n" + "".join(
    f"{job},{job / 50},{1 + job % 2},{1 + job % 9},200,300,10,1000\n" for job in range(JOBS)
)

MEASURE = """
async (frames) => {
  const canvas = document.getElementById("gantt");
  const box = canvas.getBoundingClientRect();
  const event = (name, x, y, more = {}) => canvas.dispatchEvent(new PointerEvent(name, {
    pointerId: 1, button: 0, bubbles: true, clientX: box.left + x, clientY: box.top + y, ...more,
  }));
  canvas.setPointerCapture = () => {};
  const wheel = (deltaY) => canvas.dispatchEvent(new WheelEvent("wheel", {
    deltaY, ctrlKey: true, bubbles: true, cancelable: true,
    clientX: box.left + box.width / 2, clientY: box.top + 60,
  }));
  const frame = () => new Promise(requestAnimationFrame);
  const drawn = [];
  const draw = performance.now.bind(performance);
  event("pointerdown", 600, 100);
  const start = draw();
  for (let number = 0; number < frames; number++) {
    event("pointermove", 600 + 100 * Math.sin(number / 9), 100 + 80 * Math.sin(number / 7));
    if (number % 3 === 0) wheel(number % 60 < 30 ? -40 : 40);
    await frame();
    const before = draw();
    await frame();
    drawn.push(draw() - before);
  }
  event("pointerup", 600, 100);
  drawn.sort((one, other) => one - other);
  return {
    frames_a_second: (2 * frames) / ((draw() - start) / 1000),
    slowest_ms: drawn.at(-1),
    p95_ms: drawn[Math.floor(drawn.length * 0.95)],
  };
}
"""

PAINT = """
() => performance.getEntriesByName("first-contentful-paint")[0].startTime
"""


def headway(folder: Path, *words: str) -> None:
    """Run a command in a folder."""
    subprocess.run([sys.executable, "-m", "headway", *words], cwd=folder, check=True)


def measure(browser: Browser, path: Path, all_rows: bool) -> dict[str, Any]:
    """Return times and frames of an exported page; `all_rows` too, if they do not fit at first."""
    size: Any = {"width": 1440, "height": 900}
    page = browser.new_page(viewport=size)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-exact]")
    ready_ms = page.evaluate("performance.now()")
    paint_ms = page.evaluate(PAINT)
    page.wait_for_selector("body[data-exact=true]")
    found: dict[str, Any] = {"first_paint_ms": paint_ms, "drawn_ms": ready_ms}
    found |= page.evaluate(MEASURE, FRAMES)
    if all_rows:
        page.keyboard.press("r")
        for order in ("start", "longest"):
            page.locator("#order").select_option(order)
            page.keyboard.press("0")
            page.wait_for_selector(f"#gantt[data-rows='{JOBS}']")
            frames = page.evaluate(MEASURE, FRAMES)
            found |= {f"all rows, {order}: {what}": value for what, value in frames.items()}
    page.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "bars.csv").write_text(BARS)
        headway(folder, "simulate", "paper", "--timeline", "paper.parquet", "-q")
        options = ["--cluster", "64x4", "--policy", "ff+srsf:1"]
        headway(folder, "simulate", "bars.csv", *options, "--timeline", "bars.parquet", "-q")
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for run in ("paper", "bars"):
            headway(folder, "view", f"{run}.parquet", "-o", f"{run}.html")
            path = folder / f"{run}.html"
            print(f"{run}: {path.stat().st_size / 1e6:.2f} MB", flush=True)
            for what, value in measure(browser, path, run == "bars").items():
                print(f"  {what:<40}{value:10,.1f}", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
