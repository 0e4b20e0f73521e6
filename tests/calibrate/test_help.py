"""The help of `headway calibrate` on narrow terminals."""

from __future__ import annotations

import pytest

from headway.calibrate.command import run


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", [[], ["network"], ["model"], ["gpu"]])
def test_help_fits_the_terminal(
    command: list[str],
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as caught:
        run([*command, "--help"])
    assert caught.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert max(map(len, lines)) <= width
