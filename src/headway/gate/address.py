"""Where a gate listens, and where its workers connect."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.errors import InputError, shown


@dataclass(frozen=True)
class GateAddress:
    """A Unix socket (`path`) or a TCP address (`host` and `port`), as text `unix:…` or `tcp:…`."""

    path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str, *, source: str | None = None) -> GateAddress:
        """Return the address of `unix:PATH` or `tcp:HOST:PORT`; an IPv6 host may have brackets.

        `source` says in an error where the text comes from.
        """
        kind, _, rest = text.partition(":")
        if kind == "unix" and rest:
            return cls(path=rest)
        host, _, port = rest.rpartition(":")
        if kind != "tcp" or not host or not (port.isascii() and port.isdigit() and len(port) < 6):
            raise InputError(
                f"must be unix:PATH or tcp:HOST:PORT, not {shown(text)}.", source=source
            )
        return cls(host=host.removeprefix("[").removesuffix("]"), port=int(port))

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"
