"""Who may see a page: the browser that opened a link that works once, at that address.

The link carries a token, which is exchanged for a cookie that scripts cannot read and other sites
cannot send. Both are good for the address that they were made for: a request that names another
host, such as a foreign name that resolves to this machine (DNS rebinding), gets nowhere. Requests
that may change something must come from the page itself. The page may load nothing from elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.gate import tokens

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Of every response to a page."""

SESSION_S = 7 * 24 * 3600
"""How long a session lasts."""
MAX_LINKS = 100
"""Links that are not used yet; beyond that the oldest is forgotten."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_READING = ("GET", "HEAD")


class Links:
    """The tokens of links that have not been used yet, each for one address."""

    def __init__(
        self, valid_s: float = float("inf"), now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._valid_s, self._now_s = valid_s, now_s
        # The address and the end of each link by the hash of its token.
        self._open: dict[bytes, tuple[str, float]] = {}

    def make(self, scheme: str, host: str) -> str:
        """Return a new link to a page at this address."""
        token = secrets.token_urlsafe(32)
        self._open[_digest(token)] = host, self._now_s() + self._valid_s
        if len(self._open) > MAX_LINKS:
            del self._open[next(iter(self._open))]
        return f"{scheme}://{host}/?token={token}"

    def use(self, token: str, host: str) -> bool:
        """Return whether a token is good at this address; it is not a second time."""
        made_for, until_s = self._open.get(_digest(token), ("", 0.0))
        if not _same_place(made_for, host):
            return False
        del self._open[_digest(token)]
        return self._now_s() <= until_s


class Sessions:
    """The cookies of signed-in browsers, each for one address.

    A session is signed under a secret and not stored: it outlives this process if the secret does.
    `ended` are the sessions that were ended before their time: until when they would have lasted,
    in seconds since 1970, by number.
    """

    def __init__(
        self,
        secret: str,
        ended: Mapping[str, int] | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._secret, self._now_s = secret.encode(), now_s
        self.ended = dict(ended or {})

    def begin(self, host: str) -> str:
        """Return the value of a new session's cookie."""
        number, until_s = secrets.token_hex(16), int(self._now_s()) + SESSION_S
        return f"{number}.{until_s}.{self._signature(number, until_s, host)}"

    def is_valid(self, value: str, host: str) -> bool:
        """Return whether a cookie is that of a session at this address that has not ended."""
        number, _, rest = value.partition(".")
        until, _, signature = rest.partition(".")
        if not (until.isascii() and until.isdigit() and len(until) < 16):
            return False
        if not tokens.same(signature, self._signature(number, int(until), host)):
            return False
        return self._now_s() < int(until) and number not in self.ended

    def end(self, value: str) -> None:
        """End a valid session, and forget those that are over anyway."""
        number, until, _ = value.split(".")
        now_s = self._now_s()
        self.ended = {one: last_s for one, last_s in self.ended.items() if last_s > now_s}
        self.ended[number] = int(until)

    def _signature(self, number: str, until_s: int, host: str) -> str:
        text = f"headway page\n{number}\n{until_s}\n{host}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


class Refusal(NamedTuple):
    """Why a request does not reach the page."""

    status: int
    why: str


class PageGuard:
    """An ASGI app around another one, which sees only requests of a signed-in page.

    `command` prints links. With `keep`, a browser keeps its cookie when it is closed.
    """

    def __init__(
        self, app: ASGIApp, links: Links, sessions: Sessions, command: str, keep: bool = False
    ) -> None:
        self._app, self.links, self.sessions = app, links, sessions
        self._command, self._keep = command, keep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            return
        app = self._answer(scope) or self._app
        await app(scope, receive, with_headers(send))

    def refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request is refused; None if a signed-in page has sent it."""
        host = header(scope, "host")
        if not self.sessions.is_valid(cookie(scope), host):
            return Refusal(401, f"Run {self._command} and open the link that it prints.")
        origin = f"{scope.get('scheme', 'http')}://{host}"
        if scope["method"] not in _READING and header(scope, "origin") != origin:
            return Refusal(403, "This request is not from the page itself.")
        return None

    def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to a request that does not reach the page."""
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        refusal = self.refusal(scope)
        if token and scope["path"] == "/" and scope["method"] == "GET":
            host = header(scope, "host")
            if self.links.use(token, host):
                return self._signed_in(host, scope.get("scheme") == "https")
            if refusal is None:
                return RedirectResponse("/", 303)
            refusal = Refusal(
                403,
                "This link has been used, has expired, or is for another address. "
                f"Run {self._command} again.",
            )
        if refusal is None:
            return None
        # Idle connections of strangers are not kept.
        return PlainTextResponse(f"{refusal.why}\n", refusal.status, {"connection": "close"})

    def _signed_in(self, host: str, secure: bool) -> Response:
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            cookie_name(host),
            self.sessions.begin(host),
            max_age=SESSION_S if self._keep else None,
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return answer


def header(scope: Scope, name: str) -> str:
    """Return a header of a request, or an empty string."""
    value: bytes = dict(scope["headers"]).get(name.encode(), b"")
    return value.decode("latin-1")


def cookie(scope: Scope) -> str:
    """Return the value of a request's cookie, or an empty string.

    Other servers on this host may have set cookies that only browsers accept.
    """
    return cookie_parser(header(scope, "cookie")).get(cookie_name(header(scope, "host")), "")


def cookie_name(host: str) -> str:
    """Return the name of a page's cookie: browsers send cookies to all ports of a host."""
    port = host.rpartition(":")[2]
    return f"headway-{port}" if port.isascii() and port.isdigit() else "headway"


def with_headers(send: Send) -> Send:
    """Return a function that sends responses with the headers for pages."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return send_with_headers


def _same_place(one: str, other: str) -> bool:
    """Return whether two addresses are the same, or the same port of this machine."""
    (name, _, port), (other_name, _, other_port) = one.rpartition(":"), other.rpartition(":")
    loopback = name in _LOOPBACK and other_name in _LOOPBACK
    return bool(one) and (one == other or (loopback and port == other_port))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
