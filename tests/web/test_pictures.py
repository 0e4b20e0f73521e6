"""The screenshots of the documentation are those of today's page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PICTURES = ("view-run", "view-jobs", "view-job", "view-compare")
SMALL = (48, 32)
MOST_DIFFERENT = 0.03
"""Of the range of colours, on average over a part of a picture: other fonts differ less."""


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with new screenshots."""
    path = ROOT / "scripts" / "pictures.py"
    found = importlib.util.spec_from_file_location("pictures", path)
    assert found is not None
    assert found.loader is not None
    script: Any = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    script.PICTURES = tmp_path_factory.mktemp("pictures")
    script.view(tmp_path_factory.mktemp("runs"))
    folder: Path = script.PICTURES
    return folder


def small(path: Path) -> Any:
    """Return a picture as few shares of red, green and blue."""
    with Image.open(path) as image:
        reduced = image.convert("RGB").resize(SMALL, Image.Resampling.BOX)
    return np.asarray(reduced, np.float64) / 255


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_documentation_shows_the_page_as_it_is(taken: Path, name: str) -> None:
    new, old = taken / f"{name}.png", ROOT / "docs" / "pictures" / f"{name}.png"
    with Image.open(new) as one, Image.open(old) as other:
        assert one.size == other.size
    # Of eight by eight parts, none may look different: make pictures renews them.
    apart = np.abs(small(new) - small(old)).mean(axis=2)
    parts = apart.reshape(8, SMALL[1] // 8, 8, SMALL[0] // 8).mean(axis=(1, 3))
    assert parts.max() < MOST_DIFFERENT
