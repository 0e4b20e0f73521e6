"""Where in the text of a TOML file something stands, so that an error can name it."""

from __future__ import annotations

import re


def locate(
    text: str, key: str, place: int | None, inner: str | None
) -> tuple[int | None, int | None]:
    """Return the line and column of a key, of one in its list, or of a key inside that."""
    word = re.escape(key)
    pattern = rf"^\s*\[\[\s*({word})\s*\]\]|^[ \t]*[\"']?({word})[\"']?[ \t]*[.=]"
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if not found:
        return None, None
    match = found[0]
    at = match.start(1) if match[1] else match.start(2)
    if place is not None:
        if match[1]:
            match = found[min(place, len(found) - 1)]
            at, end = match.start(1), match.end()
        else:
            at, end = _item(text, match.end(), place, at)
        if inner is not None and (
            within := re.compile(rf"[\"']?\b({re.escape(inner)})\b[\"']?[ \t]*[.=]").search(
                text, end
            )
        ):
            at = within.start(1)
    line_start = text.rfind("\n", 0, at) + 1
    return text.count("\n", 0, at) + 1, at - line_start + 1


def _item(text: str, start: int, place: int, otherwise: int) -> tuple[int, int]:
    """Return where the item of a list at a place begins, and where to look inside it."""
    token = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|#[^\n]*|[{}\[\],]|[^\s{}\[\],#\"']+")
    depth, count, fresh = 0, 0, True
    for match in token.finditer(text, start):
        part = match[0]
        if part.startswith("#"):
            continue
        if part in "]}":
            depth -= 1
            if depth <= 0 and part == "]":
                break
        elif part == "," and depth == 1:
            count, fresh = count + 1, True
        else:
            if fresh and count == place and (depth == 1 or (depth == 0 and part != "[")):
                return match.start() + part.startswith(("'", '"')), match.start()
            if part in "[{":
                depth += 1
            elif depth == 1:
                fresh = False
    return otherwise, start
