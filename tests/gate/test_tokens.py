"""Tokens are private files, and each is valid for one purpose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.gate import tokens


def test_only_its_owner_can_read_a_new_token(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        token = tokens.create(tmp_path / "token")
    finally:
        os.umask(before)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert tokens.read(tmp_path / "token") == token
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    assert token != tokens.create(tmp_path / "another")


@pytest.mark.parametrize("taken", ["file", "link", "dangling"])
def test_an_existing_file_or_link_is_not_replaced(tmp_path: Path, taken: str) -> None:
    target, elsewhere = tmp_path / "token", tmp_path / "elsewhere"
    if taken == "file":
        target.write_text("mine")
    else:
        target.symlink_to(elsewhere)
    if taken == "link":
        elsewhere.write_text("mine")
    names = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="exists already"):
        tokens.create(target)
    assert sorted(tmp_path.iterdir()) == names
    if taken != "dangling":
        assert target.read_text() == "mine"


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none/token: No such file"):
        tokens.create(tmp_path / "none" / "token")
    with pytest.raises(InputError, match="No such file"):
        tokens.read(tmp_path / "token")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_file_that_others_can_read_or_change_is_an_error(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    tokens.create(path)
    path.chmod(mode)
    with pytest.raises(InputError, match=f"run chmod 600 {path}"):
        tokens.read(path)


def test_a_link_to_a_token_is_an_error(tmp_path: Path) -> None:
    tokens.create(tmp_path / "token")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    with pytest.raises(InputError, match="not a link"):
        tokens.read(tmp_path / "link")


def test_anything_but_a_plain_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InputError, match="plain file"):
        tokens.read(tmp_path / "pipe")
    with pytest.raises(InputError, match="plain file"):
        tokens.read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 40, b"a" * 2000, b"a b" * 20])
def test_a_file_without_a_token_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(InputError, match="32 to 512"):
        tokens.read(path)


def test_every_attempt_has_its_own_token() -> None:
    names = [
        (secret, job, number) for secret in "st" for job in ("", "1", "1\n1") for number in (1, 11)
    ]
    assert len({tokens.job_token(*name) for name in names}) == len(names)
    assert tokens.job_token("s", "j", 1) == tokens.job_token("s", "j", 1)


def test_any_two_strings_can_be_compared() -> None:
    assert tokens.same("abc", "abc")
    assert not tokens.same("abc", "abd")
    assert not tokens.same("abc", "äbc")
    assert tokens.same("\udc80", "\udc80")
