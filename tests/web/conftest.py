"""Pages in a browser: Debian's Chromium, started once for a module."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

from waiting import PATIENCE_S

PATIENCE_MS = 1000 * PATIENCE_S


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser."""
    chromium = shutil.which("chromium")
    assert chromium, "these tests need chromium: make tools"
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, who runs the tests.
        options: dict[str, Any] = {"args": ["--no-sandbox"], "timeout": PATIENCE_MS}
        launched = playwright.chromium.launch(executable_path=chromium, **options)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a page; errors, and requests to other hosts, fail the test.

    Lines of the console that match `expected` do not.
    """
    problems: list[str] = []
    contexts = []

    def opened(address: str, expected: str = "$^", **options: Any) -> Page:
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        own = re.match(r"file://|http://127\.0\.0\.1:\d+/", address)
        assert own
        allowed = (own[0], "data:")

        def check_line(line: ConsoleMessage) -> None:
            if line.type == "error" and not re.search(expected, line.text):
                problems.append(line.text)

        def check_request(request: Request) -> None:
            if not request.url.startswith(allowed):
                problems.append(request.url)

        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", check_line)
        page.on("request", check_request)
        page.goto(address)
        page.wait_for_selector("#main > *")
        return page

    expect.set_options(timeout=PATIENCE_MS)
    yield opened
    for context in contexts:
        context.close()
    assert not problems
