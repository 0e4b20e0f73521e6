"""Talk to a scheduler: find it, and ask it over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from headway.domain.errors import InputError, shown
from headway.gate import tokens
from headway.live.daemon.state_folder import Address, Places, default_folder, read_address

PATIENCE_S = 30.0
_CHUNK_BYTES = 64 * 1024


class Client:
    """A scheduler at an address; every answer is what its JSON says."""

    def __init__(self, address: Address, token: str, places: Places | None = None) -> None:
        """Talk to the API at an address; with `places`, as long as a scheduler there says so."""
        self._token, self._places = token, places
        self._use(address)

    def _use(self, address: Address) -> None:
        self._address = address
        parts = urlsplit(address.url)
        try:
            self._host, self._port = parts.hostname, parts.port
        except ValueError:
            self._host = None
        if parts.scheme not in ("http", "https") or not self._host:
            raise InputError(
                f"must be like http://127.0.0.1:7077, not {shown(address.url)}.", field="server"
            )
        if address.certificate is not None and parts.scheme != "https":
            raise InputError("goes with an https:// address alone.", field="certificate")
        self._context = _context(address) if parts.scheme == "https" else None

    def status(self) -> dict[str, Any]:
        """Return what the scheduler says of itself."""
        return self._ask("GET", "/v1/status")

    def jobs(self, limit: int = 1000) -> list[dict[str, Any]]:
        """Return jobs, the unfinished first, then the latest."""
        listed: list[dict[str, Any]] = self._ask("GET", f"/v1/jobs?limit={limit}")["jobs"]
        return listed

    def job(self, job: str) -> dict[str, Any]:
        """Return what is known of a job, and why it waits."""
        return self._ask("GET", f"/v1/jobs/{quote(job, safe='')}")

    def submit(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Submit a job, with the fields of a JobSpec; when this returns it is on the disk."""
        return self._ask("POST", "/v1/jobs", spec)

    def cancel(self, job: str) -> dict[str, Any]:
        """End a job."""
        return self._ask("POST", f"/v1/jobs/{quote(job, safe='')}/cancel")

    def logs(self, job: str, rank: int = 0, follow: bool = False) -> Iterator[bytes]:
        """Return what a rank printed, as it comes."""
        path = f"/v1/jobs/{quote(job, safe='')}/logs?rank={rank}&follow={str(follow).lower()}"
        with self._answer("GET", path, patience_s=None) as answer:
            while chunk := answer.read1(_CHUNK_BYTES):
                yield chunk

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes, what they hold and who waits there."""
        listed: list[dict[str, Any]] = self._ask("GET", "/v1/nodes")["nodes"]
        return listed

    def drain(self, node: str, draining: bool = True) -> dict[str, Any]:
        """Give a node no new jobs, or give it them again."""
        word = "drain" if draining else "undrain"
        return self._ask("POST", f"/v1/nodes/{quote(node, safe='')}/{word}")

    def policy(self) -> str:
        """Return the policy that decides."""
        return str(self._ask("GET", "/v1/policy")["policy"])

    def choose_policy(self, policy: str) -> str:
        """Let another policy decide from now on."""
        return str(self._ask("PUT", "/v1/policy", {"policy": policy})["policy"])

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        with self._answer(method, path, body) as answer:
            data = answer.read()
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise InputError(f"{self._address.url} is not a Headway scheduler.")
        return value

    @contextlib.contextmanager
    def _answer(
        self, method: str, path: str, body: object = None, patience_s: float | None = PATIENCE_S
    ) -> Iterator[http.client.HTTPResponse]:
        if self._places is not None and (now := read_address(self._places)) != self._address:
            self._use(now)
        connection = self._connection(patience_s)
        headers = {"authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise InputError(_problem(answer))
            yield answer
        except (OSError, http.client.HTTPException) as error:
            raise InputError(self._absent(method, error)) from None
        finally:
            connection.close()

    def _connection(self, patience_s: float | None) -> http.client.HTTPConnection:
        assert self._host is not None
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=patience_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=patience_s, context=self._context
        )

    def _absent(self, method: str, error: Exception) -> str:
        """Say that no scheduler answered; a submission may have been taken all the same."""
        url = self._address.url
        if isinstance(error, ConnectionRefusedError):
            return f"no scheduler answers at {url}; start one with headway serve."
        told = error.strerror if isinstance(error, OSError) and error.strerror else error
        what = " ".join(str(told).split())[:200]
        doubt = "" if method == "GET" else " It may have been done: see headway status."
        return f"the scheduler at {url} did not answer: {what or type(error).__name__}.{doubt}"


def find(
    folder: Path | None = None,
    server: str | None = None,
    token_file: Path | None = None,
    certificate: Path | None = None,
) -> Client:
    """Return the scheduler at `server`, or the one of a state folder, whose token file counts.

    `certificate` is a file of the authorities to trust where `server` speaks TLS; without it the
    system's are, and a state folder's scheduler says itself.
    """
    if certificate is not None and server is None:
        raise InputError("goes with --server alone.", field="--certificate")
    if server is not None and token_file is None and folder is None:
        raise InputError(
            "needs --token-file too, or the --folder whose token it is: a secret is not sent just "
            "anywhere.",
            field="--server",
        )
    places = Places(folder or default_folder())
    if server is None:
        return Client(read_address(places), tokens.read(token_file or places.token), places)
    address = Address(server, None if certificate is None else str(certificate))
    return Client(address, tokens.read(token_file or places.token))


def _context(address: Address) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=address.certificate)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be trusted: {error}.", source=str(address.certificate)) from None


def _problem(answer: http.client.HTTPResponse) -> str:
    """Return what the scheduler says is wrong."""
    try:
        return str(json.loads(answer.read(_CHUNK_BYTES))["error"])
    except (ValueError, KeyError, TypeError):
        return f"the scheduler answered {answer.status} {answer.reason}."
