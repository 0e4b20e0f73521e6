"""A client for the scheduler's HTTP API."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from headway.domain.errors import HeadwayError, InputError, shown
from headway.gate import tokens
from headway.live.daemon.errors import ConflictError, NoSchedulerError, NotFoundError
from headway.live.daemon.state_folder import (
    ApiAddress,
    StateFolder,
    default_folder,
    read_address,
)

TIMEOUT_S = 30.0
POLICY_TIMEOUT_S = 400.0
RETRY_S = 0.5
ATTEMPT_HEADER = "x-headway-attempt"
"""The attempt with which a log begins."""

_Answer = TypeVar("_Answer")
_BROKEN = (OSError, http.client.HTTPException)
"""What a connection raises when the scheduler ends."""
_CHUNK_BYTES = 64 * 1024
_KINDS: dict[int, type[HeadwayError]] = {404: NotFoundError, 409: ConflictError}


class Client:
    """Talks to one scheduler; every method returns decoded JSON."""

    def __init__(self, address: ApiAddress, token: str, folder: StateFolder | None = None) -> None:
        """Use the API at an address; with `folder`, follow the address published there."""
        self._token, self._folder = token, folder
        self._use(address)

    def _use(self, address: ApiAddress) -> None:
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
            raise InputError("requires an https:// address.", field="certificate")
        self.tls = _tls_context(address) if parts.scheme == "https" else None
        """How the server's certificate is verified; None without TLS."""

    def status(self) -> dict[str, Any]:
        """Return the state of the scheduler as a whole."""
        return self._ask("GET", "/v1/status")

    def jobs(self, limit: int = 1000, state: str | None = None) -> list[dict[str, Any]]:
        """Return jobs, unfinished ones first, then the most recent; only those in a state."""
        path = f"/v1/jobs?limit={limit}" + (f"&state={quote(state, safe='')}" if state else "")
        listed: list[dict[str, Any]] = self._ask("GET", path)["jobs"]
        return listed

    def job(self, job: str) -> dict[str, Any]:
        """Return a job, and why it is waiting."""
        return self._ask("GET", f"/v1/jobs/{quote(job, safe='')}")

    def submit(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Submit a job with the fields of a JobSpec; on return it is on disk."""
        return self._ask("POST", "/v1/jobs", spec)

    def cancel(self, job: str) -> dict[str, Any]:
        """Cancel a job."""
        return self._ask("POST", f"/v1/jobs/{quote(job, safe='')}/cancel")

    def set_priority(self, job: str, priority: int) -> dict[str, Any]:
        """Give a job another priority."""
        path = f"/v1/jobs/{quote(job, safe='')}/priority"
        return self._ask("PUT", path, {"priority": priority})

    def logs(
        self, job: str, rank: int = 0, follow: bool = False, number: int | None = None
    ) -> Iterator[bytes]:
        """Yield a rank's output as it arrives; with `follow`, until the job has ended.

        It is that of the latest attempt and those that follow, or only of attempt `number`. A
        scheduler that restarts is waited for.
        """
        path = f"/v1/jobs/{quote(job, safe='')}/logs?rank={rank}&follow={str(follow).lower()}"
        path += "" if number is None else f"&attempt={number}"
        attempt, seen_bytes, ended = "", 0, False
        while not ended:
            with contextlib.ExitStack() as stack:

                def connect(stack: contextlib.ExitStack = stack) -> http.client.HTTPResponse:
                    return stack.enter_context(self._request("GET", path, timeout_s=None))

                # Only a scheduler that was there is waited for.
                response = self.patiently(connect) if attempt else connect()
                began = str(response.headers[ATTEMPT_HEADER])
                # A new scheduler starts over with the latest attempt: skip what has been seen.
                seen_bytes = seen_bytes if began == attempt else 0
                attempt, position = began, 0
                with contextlib.suppress(*_BROKEN) if follow else contextlib.nullcontext():
                    while chunk := response.read1(_CHUNK_BYTES):
                        fresh = chunk[max(0, seen_bytes - position) :]
                        position += len(chunk)
                        seen_bytes = max(seen_bytes, position)
                        if fresh:
                            yield fresh
                    ended = True

    def patiently(self, request: Callable[[], _Answer]) -> _Answer:
        """Make a request, and again for as long as no scheduler answers: it may be restarting."""
        while True:
            try:
                return request()
            except NoSchedulerError:
                time.sleep(RETRY_S)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes, the jobs on them and the messages waiting there."""
        listed: list[dict[str, Any]] = self._ask("GET", "/v1/nodes")["nodes"]
        return listed

    def state(self) -> dict[str, Any]:
        """Return unfinished jobs, nodes and settings, for a simulation to continue from."""
        return self._ask("GET", "/v1/state")

    def what_if(self, change: dict[str, Any]) -> dict[str, Any]:
        """Return forecasts of the jobs: as things are, and with a change.

        The scheduler's forecasting process computes them.
        """
        return self._ask("POST", "/v1/what-if", change)

    def drain(self, node: str, draining: bool = True) -> dict[str, Any]:
        """Place no new jobs on a node, or allow them again."""
        action = "drain" if draining else "undrain"
        return self._ask("POST", f"/v1/nodes/{quote(node, safe='')}/{action}")

    def policy(self) -> str:
        """Return the current policy."""
        return str(self._ask("GET", "/v1/policy")["policy"])

    def set_policy(self, policy: str) -> str:
        """Switch to another policy, and return it; one of one's own is compiled and tried first."""
        chosen = self._ask("PUT", "/v1/policy", {"policy": policy}, timeout_s=POLICY_TIMEOUT_S)
        return str(chosen["policy"])

    def sign_in(self) -> str:
        """Return a link that opens the scheduler's page in a browser, once and within a minute."""
        link = str(self._ask("POST", "/v1/sign-in").get("link"))
        if _origin(link) != _origin(self._address.url):
            raise InputError(f"{self._address.url} returned a link to elsewhere: {shown(link)}.")
        return link

    def _ask(
        self, method: str, path: str, body: object = None, timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        with self._request(method, path, body, timeout_s) as response:
            data = response.read()
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise InputError(f"{self._address.url} is not a Headway scheduler.")
        return value

    @contextlib.contextmanager
    def _request(
        self, method: str, path: str, body: object = None, timeout_s: float | None = TIMEOUT_S
    ) -> Iterator[http.client.HTTPResponse]:
        if self._folder is not None and (current := read_address(self._folder)) != self._address:
            self._use(current)
        connection = self._connect(timeout_s)
        headers = {"authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise _refusal(response)
            yield response
        except _BROKEN as error:
            raise NoSchedulerError(self._no_response(method, error)) from None
        finally:
            connection.close()

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        assert self._host is not None
        if self.tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=self.tls
        )

    def _no_response(self, method: str, error: Exception) -> str:
        """Describe a failed request; a change may have been made all the same."""
        url = self._address.url
        if isinstance(error, ConnectionRefusedError):
            return f"no scheduler is listening at {url}; start one with headway serve."
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        text = " ".join(str(reason).split())[:200] or type(error).__name__
        doubt = "" if method == "GET" else " It may have been done: check headway status."
        return f"the scheduler at {url} did not respond: {text}.{doubt}"


def find(
    folder: Path | None = None,
    server: str | None = None,
    token_file: Path | None = None,
    certificate: Path | None = None,
) -> Client:
    """Return a client for the scheduler at `server`, or for the one that runs on a state folder.

    `token_file` defaults to the state folder's token. `certificate` is a PEM file of authorities to
    trust if `server` is https, by default the system's; a state folder names its own.
    """
    if certificate is not None and server is None:
        raise InputError("requires --server.", field="--certificate")
    if server is not None and token_file is None and folder is None:
        raise InputError(
            "requires --token-file, or the --folder that holds its token: the default token is not "
            "sent to other servers.",
            field="--server",
        )
    state = StateFolder(folder or default_folder())
    if server is None:
        return Client(read_address(state), tokens.read(token_file or state.token), state)
    address = ApiAddress(server, None if certificate is None else str(certificate))
    return Client(address, tokens.read(token_file or state.token))


def _origin(url: str) -> tuple[str, str | None, int]:
    """Return scheme, host and port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _tls_context(address: ApiAddress) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=address.certificate)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be trusted: {error}.", source=str(address.certificate)) from None


def _refusal(response: http.client.HTTPResponse) -> HeadwayError:
    """Return the error in a response, with the field that it names, such as `gpus: …`."""
    try:
        problem = str(json.loads(response.read(_CHUNK_BYTES))["error"])
    except (ValueError, KeyError, TypeError):
        return InputError(f"the scheduler responded {response.status} {response.reason}.")
    if kind := _KINDS.get(response.status):
        return kind(problem)
    named = re.match(r"([a-z_]+): (?=.)", problem)
    return InputError(problem[named.end() :], field=named[1]) if named else InputError(problem)
