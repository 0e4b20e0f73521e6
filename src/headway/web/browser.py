"""Opens pages in the user's browser."""

from __future__ import annotations

import os
import sys
import webbrowser


def open_in_browser(link: str) -> None:
    """Open a link if that opens a window; it must not take over the terminal."""
    names = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform == "darwin" or any(os.environ.get(name) for name in names):
        webbrowser.open(link)
