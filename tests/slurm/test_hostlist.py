"""Host lists as Slurm writes them."""

from __future__ import annotations

import pytest

from headway.domain.errors import InputError
from headway.slurm.hostlist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("login", ["login"]),
        ("gpu[1-3],login", ["gpu1", "gpu2", "gpu3", "login"]),
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("gpu[1,5-6]", ["gpu1", "gpu5", "gpu6"]),
        ("r[1-2]n[01-02]x", ["r1n01x", "r1n02x", "r2n01x", "r2n02x"]),
    ],
)
def test_a_list_stands_for_its_names_in_order(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["", "gpu[", "gpu[1-3", "gpu]1", "a,,b", "gpu[3-1]", "gpu[x]", "gpu[]", "a b", "a,"]
)
def test_what_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="must be a list of hosts"):
        expand(text)


def test_a_list_of_too_many_names_is_an_error() -> None:
    with pytest.raises(InputError, match="more than 100,000 names"):
        expand("a[1-1000]b[1-1000]c[1-1000]")
