"""The certificate of the API and the gate: checked at the start, and read again when renewed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from pathlib import Path

from headway.domain.errors import InputError

_UNUSABLE = {
    9: "is not valid yet",
    10: "has expired",
    62: "is not valid for {host}",  # a host name
    64: "is not valid for {host}",  # an IP address
}
"""By OpenSSL's error code, what makes jobs and commands refuse a certificate."""

_HANDSHAKE_TURNS = 10


class Certificate:
    """A certificate and its key in two files, for servers on these hosts."""

    def __init__(self, certificate: Path, key: Path, hosts: Iterable[str]) -> None:
        """Read the files.

        Raises:
            InputError: They do not belong together, or a host's clients would not accept them.
        """
        self.path, self._key, self._hosts = certificate, key, tuple(hosts)
        self._seen = self._look()
        self._current = self._read()
        self.context = self._read()
        """For servers: every new connection has the certificate that was read last."""
        self.context.sni_callback = self._choose

    def renew(self) -> bool:
        """Read the files again if they have changed; return whether they had.

        Raises:
            InputError: They cannot be used; new connections have the earlier certificate.
        """
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        self._current = self._read()
        return True

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._current

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Return what changes when one of the files is written or replaced."""
        found: list[tuple[int, int, int] | None] = []
        for path in (self.path, self._key):
            try:
                status = os.stat(path)
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
            except OSError:
                found.append(None)
        return found

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.path, self._key)
        except (OSError, ssl.SSLError) as error:
            raise InputError(
                f"cannot be used as a certificate with the key {self._key}: {error}.",
                source=str(self.path),
            ) from None
        for host in self._hosts:
            if problem := _refusal(context, self.path, host):
                raise InputError(
                    f"{problem}: jobs and commands would refuse it.", source=str(self.path)
                )
        return context


def _refusal(server: ssl.SSLContext, trusted: Path, host: str) -> str:
    """Return why a client that trusts the certificate would refuse it for a host; or nothing."""
    client = ssl.create_default_context(cafile=trusted)
    # Who has issued it is not the question here.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(back, there, server_hostname=host),
        server.wrap_bio(there, back, server_side=True),
    )
    for _ in range(_HANDSHAKE_TURNS):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return _UNUSABLE.get(error.verify_code, "").format(host=host)
    return ""
