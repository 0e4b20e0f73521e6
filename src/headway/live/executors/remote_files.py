"""What executors for other machines keep or send: an identity, the certificate of the gate."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from headway.domain.errors import InputError
from headway.files import open_output
from headway.live.executors.node_tools import read_regular

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def identity(path: Path) -> str:
    """Return the id that distinguishes this scheduler's processes from others' on the cluster."""
    if not path.exists():
        with open_output(path) as stream:
            stream.write(secrets.token_hex(8).encode())
    try:
        return read_regular(path).decode()
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=str(path)) from None


def certificates(path: str) -> str:
    """Return the certificates in a file, without a private key that may be in it too."""
    return "\n".join([*_CERTIFICATE.findall(Path(path).read_text()), ""])
