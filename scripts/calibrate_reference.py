"""Print docs/reference/calibrate.md: the options of `headway calibrate`, as its parser has them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from headway.calibrate.command import parser

HEAD = """\
# headway calibrate

`headway calibrate` measures: [Calibrate your cluster](../how-to/calibrate.md) and
[Profile a model](../how-to/profile-a-model.md) show how. Where only PyTorch is installed,
`python -m headway.calibrate` is the same command.
"""


def page() -> Iterator[str]:
    """Yield the parts of the page."""
    yield HEAD
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from section(name, command)


def section(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield what there is to say about one command."""
    yield f"## headway calibrate {name}\n"
    yield f"```text\n{command.description}\n```\n"
    rows = ["| argument | meaning |", "|---|---|"]
    for action in command._actions:
        if not isinstance(action, argparse._HelpAction):
            metavar = action.metavar or ("|".join(action.choices) if action.choices else "N")
            names = ", ".join(f"`{option}`" for option in action.option_strings)
            words = f"{names} `{metavar}`".strip().replace("|", "\\|")
            text = (action.help or "") % {"default": action.default}
            rows.append(f"| {words} | {text} |")
    yield "\n".join(rows) + "\n"


if __name__ == "__main__":
    print("\n".join(page()), end="")
