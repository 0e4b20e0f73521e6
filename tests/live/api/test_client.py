"""The client: servers that are not there, are something else, or break off."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.live.api.client import Client, find
from headway.live.daemon.state_folder import Address, Places, published


def make_places(folder: Path) -> Places:
    """Return a state folder with a token."""
    places = Places(folder)
    places.token.write_text("x" * 32)
    places.token.chmod(0o600)
    return places


@contextmanager
def answering(data: bytes) -> Iterator[Client]:
    """Answer one connection with these bytes, whatever it asks."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=answer)
        thread.start()
        yield Client(Address(f"http://127.0.0.1:{listening.getsockname()[1]}"), "x" * 32)
        thread.join()


ANSWERS = {
    "nothing": (b"", "did not answer: "),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "did not answer: "),
    "half an answer": (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "did not answer: "),
    "a page": (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n<ht>", "is not a Headway scheduler"),
    "a number": (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1", "is not a Headway scheduler"),
    "another error": (
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
        "the scheduler answered 502 Bad Gateway",
    ),
    "an error": (
        b'HTTP/1.1 404 Not Found\r\ncontent-length: 19\r\n\r\n{"error": "no job"}',
        "^no job$",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_no_answer_of_a_scheduler_is_one_sentence(name: str) -> None:
    data, message = ANSWERS[name]
    with answering(data) as client, pytest.raises(InputError, match=message) as caught:
        client.status()
    assert "\n" not in str(caught.value)


def test_a_submission_that_is_not_answered_may_have_been_taken() -> None:
    with answering(b"") as client, pytest.raises(InputError, match="It may have been done"):
        client.submit({})


@pytest.mark.parametrize("url", ["", "x", "http://", "http://h:x", "unix:/x", "http://h:99999"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="server: must be like http://"):
        Client(Address(url), "x" * 32)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"certificate": 1}'])
def test_an_address_file_that_makes_no_sense_is_refused(tmp_path: Path, content: bytes) -> None:
    with published(Places(tmp_path), Address("http://127.0.0.1:1")):
        (tmp_path / "address.json").write_bytes(content)
        with pytest.raises(InputError, match=r"address\.json: is not the address of a scheduler"):
            find(tmp_path)


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    address = Address("https://127.0.0.1:1", str(tmp_path / "no.pem"))
    with published(places, address), pytest.raises(InputError, match=r"no\.pem: cannot be trust"):
        find(tmp_path)


def test_an_address_is_there_as_long_as_its_scheduler(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with published(places, Address("http://127.0.0.1:1")):
        client = find(tmp_path)
        with pytest.raises(InputError, match=r"no scheduler answers at http://127\.0\.0\.1:1"):
            client.status()
    assert not places.address.exists()
    with pytest.raises(InputError, match=f"no scheduler runs on {tmp_path}"):
        client.status()


def test_an_address_that_a_killed_scheduler_left_is_sent_no_token(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        with published(places, Address(url)):
            client, left = find(tmp_path), places.address.read_bytes()
        places.address.write_bytes(left)  # As after a kill: the file without its lock.
        for use in (client.status, lambda: find(tmp_path)):
            with pytest.raises(InputError, match=f"no scheduler runs on {tmp_path}"):
                use()
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_a_client_follows_a_scheduler_that_comes_back_elsewhere(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with published(places, Address("http://127.0.0.1:1")):
        client = find(tmp_path)
    again = published(places, Address("http://127.0.0.1:2"))
    with again, pytest.raises(InputError, match=r"no scheduler answers at http://.*:2"):
        client.status()


def test_a_certificate_to_trust_goes_with_a_server_that_speaks_tls(tmp_path: Path) -> None:
    places, file = make_places(tmp_path), tmp_path / "no.pem"
    with pytest.raises(InputError, match="--certificate: goes with --server alone"):
        find(tmp_path, certificate=file)
    with pytest.raises(InputError, match="certificate: goes with an https:// address alone"):
        find(server="http://127.0.0.1:1", token_file=places.token, certificate=file)
    with pytest.raises(InputError, match=r"no\.pem: cannot be trusted"):
        find(server="https://127.0.0.1:1", token_file=places.token, certificate=file)
