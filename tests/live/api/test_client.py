"""The client, with servers that are missing, are not schedulers or disconnect."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.domain.errors import HeadwayError, InputError
from headway.live.api.client import Client, find
from headway.live.daemon.errors import ConflictError, NotFoundError
from headway.live.daemon.state_folder import ApiAddress, StateFolder, published_address


def make_folder(path: Path) -> StateFolder:
    """Return a state folder with a token."""
    folder = StateFolder(path)
    folder.token.write_text("x" * 32)
    folder.token.chmod(0o600)
    return folder


@contextmanager
def responding(data: bytes) -> Iterator[Client]:
    """Respond to one connection with these bytes, whatever it requests."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def respond() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=respond)
        thread.start()
        yield Client(ApiAddress(f"http://127.0.0.1:{listening.getsockname()[1]}"), "x" * 32)
        thread.join()


RESPONSES = {
    "nothing": (b"", "did not respond: "),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "did not respond: "),
    "half a response": (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "did not respond: "),
    "a page": (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n<ht>", "is not a Headway scheduler"),
    "a number": (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1", "is not a Headway scheduler"),
    "another error": (
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
        "the scheduler responded 502 Bad Gateway",
    ),
    "an error": (
        b'HTTP/1.1 400 Bad Request\r\ncontent-length: 24\r\n\r\n{"error": "gpus: wrong"}',
        "^gpus: wrong$",
    ),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_an_invalid_response_is_reported_in_one_sentence(name: str) -> None:
    data, message = RESPONSES[name]
    with responding(data) as client, pytest.raises(InputError, match=message) as caught:
        client.status()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("status", "kind"), [(404, NotFoundError), (409, ConflictError)])
def test_an_unknown_or_finished_job_is_an_error_of_its_own(
    status: int, kind: type[HeadwayError]
) -> None:
    data = b'HTTP/1.1 %d No\r\ncontent-length: 19\r\n\r\n{"error": "no job"}' % status
    with responding(data) as client, pytest.raises(kind, match=r"^no job$"):
        client.job("1")


def test_an_unacknowledged_submission_may_have_been_accepted() -> None:
    with responding(b"") as client, pytest.raises(InputError, match="It may have been done"):
        client.submit({})


@pytest.mark.parametrize("url", ["", "x", "http://", "http://h:x", "unix:/x", "http://h:99999"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="server: must be like http://"):
        Client(ApiAddress(url), "x" * 32)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"certificate": 1}'])
def test_an_invalid_address_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with published_address(StateFolder(tmp_path), ApiAddress("http://127.0.0.1:1")):
        (tmp_path / "address.json").write_bytes(content)
        with pytest.raises(InputError, match=r"address\.json: is not a scheduler's address file"):
            find(tmp_path)


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    address = ApiAddress("https://127.0.0.1:1", str(tmp_path / "no.pem"))
    with (
        published_address(folder, address),
        pytest.raises(InputError, match=r"no\.pem: cannot be trust"),
    ):
        find(tmp_path)


def test_an_address_is_published_while_its_scheduler_runs(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with published_address(folder, ApiAddress("http://127.0.0.1:1")):
        client = find(tmp_path)
        with pytest.raises(InputError, match=r"no scheduler is listening at http://127\.0\.0\.1:1"):
            client.status()
    assert not folder.address.exists()
    with pytest.raises(InputError, match=f"no scheduler is running on {tmp_path}"):
        client.status()


def test_no_token_is_sent_to_the_address_left_by_a_killed_scheduler(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        with published_address(folder, ApiAddress(url)):
            client, left = find(tmp_path), folder.address.read_bytes()
        folder.address.write_bytes(left)  # As after a kill: the file without its lock.
        for use in (client.status, lambda: find(tmp_path)):
            with pytest.raises(InputError, match=f"no scheduler is running on {tmp_path}"):
                use()
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_a_client_follows_a_scheduler_that_restarts_on_another_port(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with published_address(folder, ApiAddress("http://127.0.0.1:1")):
        client = find(tmp_path)
    again = published_address(folder, ApiAddress("http://127.0.0.1:2"))
    with again, pytest.raises(InputError, match=r"no scheduler is listening at http://.*:2"):
        client.status()


def test_a_certificate_requires_a_server_with_tls(tmp_path: Path) -> None:
    folder, file = make_folder(tmp_path), tmp_path / "no.pem"
    with pytest.raises(InputError, match="--certificate: requires --server"):
        find(tmp_path, certificate=file)
    with pytest.raises(InputError, match="certificate: requires an https:// address"):
        find(server="http://127.0.0.1:1", token_file=folder.token, certificate=file)
    with pytest.raises(InputError, match=r"no\.pem: cannot be trusted"):
        find(server="https://127.0.0.1:1", token_file=folder.token, certificate=file)
